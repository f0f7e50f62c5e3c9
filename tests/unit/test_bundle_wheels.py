"""Wheels from a folder that pip takes for the world: downloaded once, verified, kept."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numpy_wheels import only, write_wheel

from serverless_gc.deploy.target import ARCHITECTURES, PYTHONS, Target
from serverless_gc.deploy.wheels import cache_path, numpy_wheel, pinned_numpy
from serverless_gc.errors import ConfigError, InputError

ARM = Target("3.13", "arm64")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def offered(tmp_path):
    """A folder with wheels for several platforms."""
    for machine, abi, platform in (
        ("aarch64", "cp313", "manylinux2014"),
        ("aarch64", "cp313", "manylinux_2_28"),
        ("aarch64", "cp312", "manylinux_2_28"),
        ("x86_64", "cp313", "manylinux_2_28"),
    ):
        write_wheel(tmp_path / "offered", machine, abi=abi, platform=platform)
    write_wheel(tmp_path / "offered", "arm64", platform="macosx_11_0", files={"numpy/__init__.py": b""})
    return tmp_path / "offered"


def test_pip_is_asked_for_the_best_wheel_of_the_target_and_it_is_kept(tmp_path, offered):
    world = only(offered, tmp_path / "cache")
    wheel = numpy_wheel(ARM, "9.9.9", world)
    assert wheel.path.name == "numpy-9.9.9-cp313-cp313-manylinux_2_28_aarch64.whl"
    assert wheel.path.parent == tmp_path / "cache" / "wheels" / wheel.sha256
    assert wheel.sha256 == digest(wheel.path) == digest(offered / wheel.path.name)
    assert [path.name for path in (tmp_path / "cache" / "wheels").iterdir()] == [wheel.sha256]  # nothing half-done
    assert numpy_wheel(Target("3.12", "arm64"), "9.9.9", world).path.name.startswith("numpy-9.9.9-cp312-")
    assert numpy_wheel(Target("3.13", "x86_64"), "9.9.9", world).path.name.endswith("x86_64.whl")


def test_the_second_time_nothing_is_downloaded(tmp_path, offered):
    first = numpy_wheel(ARM, "9.9.9", only(offered, tmp_path / "cache"))
    assert numpy_wheel(ARM, "9.9.9", only(tmp_path / "nothing", tmp_path / "cache")) == first


def test_a_damaged_wheel_is_downloaded_again(tmp_path, offered, caplog):
    world = only(offered, tmp_path / "cache")
    first = numpy_wheel(ARM, "9.9.9", world)
    first.path.write_bytes(first.path.read_bytes()[:-1])
    second = numpy_wheel(ARM, "9.9.9", world)
    assert second == first
    assert digest(second.path) == second.sha256
    assert "is damaged and is downloaded again" in caplog.text


def test_a_wheel_for_newer_systems_is_not_taken_for_an_older_runtime(tmp_path):
    write_wheel(tmp_path / "offered", abi="cp311")
    with pytest.raises(ConfigError, match=r"could not download NumPy 9\.9\.9 for Python 3\.11 on arm64"):
        numpy_wheel(Target("3.11", "arm64"), "9.9.9", only(tmp_path / "offered", tmp_path / "cache"))


def test_another_file_under_the_pinned_name_is_refused(tmp_path):
    pin = pinned_numpy(ARM)
    write_wheel(tmp_path / "offered", version=pin.version)
    with pytest.raises(ConfigError, match="DO NOT MATCH THE HASHES"):
        numpy_wheel(ARM, None, only(tmp_path / "offered", tmp_path / "cache"))
    assert not list((tmp_path / "cache").rglob("*.whl"))


def test_what_pip_says_when_it_fails_is_one_sentence(tmp_path, offered):
    with pytest.raises(ConfigError) as caught:
        numpy_wheel(ARM, "9.9.8", only(offered, tmp_path / "cache"))
    message = str(caught.value)
    assert message.startswith(
        "pip could not download NumPy 9.9.8 for Python 3.13 on arm64 (exit status 1): "
        "Could not find a version that satisfies the requirement numpy==9.9.8 (from versions: 9.9.9)"
    )
    assert "pip config list" in message
    assert "\n" not in message


NO_PIP = """
import sys; sys.path.insert(0, sys.argv[1])
from serverless_gc.deploy.wheels import numpy_wheel
from serverless_gc.deploy.target import Target
from serverless_gc.errors import ConfigError
assert "numpy" not in sys.modules
try:
    print(numpy_wheel(Target("3.13", "arm64"), "9.9.9").path)
except ConfigError as exc:
    print(exc)
"""


@pytest.mark.parametrize("on_path", [False, True])
def test_without_pip_the_message_says_how_to_get_it_and_one_on_the_path_is_used(tmp_path, offered, on_path):
    if on_path:
        pip = tmp_path / "bin" / "pip3"
        pip.parent.mkdir()
        pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip "$@"\n')
        pip.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", NO_PIP, os.fspath(Path(__file__).parents[2])],  # no site-packages: no pip
        capture_output=True,
        text=True,
        check=False,
        env={**only(offered, tmp_path / "cache"), "PATH": str(tmp_path / "bin")},
    )
    assert done.returncode == 0, done.stderr
    if on_path:
        assert done.stdout.endswith("manylinux_2_28_aarch64.whl\n")
    else:
        assert done.stdout.startswith("pip is needed to download NumPy")
        assert f"`{sys.executable} -m ensurepip`" in done.stdout


def test_a_cache_that_cannot_be_written_is_named(tmp_path, offered):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"cannot keep wheels in .*file.wheels: .*SERVERLESS_GC_CACHE_DIR"):
        numpy_wheel(ARM, "9.9.9", only(offered, tmp_path / "file"))


@pytest.mark.parametrize("version", ["", "2", ">=2", "2.4.6 --index-url x", "newest", "2.4.*"])
def test_what_is_not_a_version_is_refused(version):
    with pytest.raises(InputError, match=r"numpy must be a version such as 2\.4\.6, got"):
        numpy_wheel(ARM, version)


def test_every_runtime_has_its_own_pin():
    pins = {(python, arch): pinned_numpy(Target(python, arch)) for python in PYTHONS for arch in ARCHITECTURES}
    assert len({pin.sha256 for pin in pins.values()}) == len(pins) == 8
    for python in PYTHONS:
        assert pins[python, "arm64"].version == pins[python, "x86_64"].version


def test_where_wheels_are_kept():
    assert cache_path({"XDG_CACHE_HOME": "/x"}) == Path("/x/serverless_gc/wheels")
    assert cache_path({}) == Path.home() / ".cache" / "serverless_gc" / "wheels"
