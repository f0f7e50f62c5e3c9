"""Runtimes of Lambda, and which compiled code runs there."""

import pytest
from numpy_wheels import elf

from serverless_gc.deploy.target import PYTHONS, Target, check_shared_object
from serverless_gc.errors import ConfigError, InputError


def test_platform_tags_of_a_runtime_are_best_first():
    assert Target("3.13", "arm64").platforms == (
        "manylinux_2_34_aarch64",
        "manylinux_2_28_aarch64",
        "manylinux_2_27_aarch64",
        "manylinux2014_aarch64",
    )
    assert Target("3.11", "x86_64").platforms == ("manylinux2014_x86_64",)  # glibc 2.26
    assert {Target(python, "x86_64").abi for python in PYTHONS} == {"cp311", "cp312", "cp313", "cp314"}


@pytest.mark.parametrize(
    ("python", "arch", "message"),
    [
        ("3.10", "arm64", "python must be one of 3.11, 3.12, 3.13, 3.14, which Lambda runs; got '3.10'"),
        ("3", "arm64", "python must be one of"),
        ("3.13", "aarch64", "arch must be one of arm64, x86_64; got 'aarch64'"),
    ],
)
def test_other_runtimes_are_refused(python, arch, message):
    with pytest.raises(InputError, match=message):
        Target(python, arch)


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_code_for_the_machine_passes(machine):
    check_shared_object("numpy/a.so", elf(machine), machine)
    check_shared_object("numpy.libs/libgfortran.so.5", elf(machine), machine)


@pytest.mark.parametrize("data", [b"", b"text", b"\x7fELE"])
def test_files_that_are_not_code_pass(data):
    check_shared_object("numpy/notes.txt", data, "aarch64")


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.so", elf("x86_64"), "ELF code for x86_64"),
        ("liba.so.5", elf("x86_64"), "ELF code for x86_64"),
        ("tool", elf("x86_64"), "ELF code for x86_64"),  # whatever its name
        ("a.so", elf(40, bits=1), "32-bit ELF code for arm"),
        ("a.so", elf(22, order=2), "ELF code for machine 22"),
        ("a.so", b"\x7fELF\x02\x01", "a truncated ELF file"),
        ("a.so", b"\xcf\xfa\xed\xfe" + bytes(28), "macOS code"),
        ("a.dylib", b"\xca\xfe\xba\xbe" + bytes(28), "macOS code"),
        ("a.pyd", b"MZ" + bytes(62), "Windows code"),
        ("a.so", b"version https://git-lfs", "no compiled code"),
    ],
)
def test_other_code_is_refused_by_name(name, data, found):
    with pytest.raises(ConfigError) as caught:
        check_shared_object(name, data, "aarch64")
    assert str(caught.value).startswith(f"{name} is {found}, but the function needs ELF code for aarch64")
