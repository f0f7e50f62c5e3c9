"""What of a NumPy wheel goes into the package."""

import sys

import pytest
from numpy_wheels import contents, elf, write_wheel

from serverless_gc.deploy.contents import read_wheel
from serverless_gc.errors import ConfigError

KEPT = {
    "numpy/__init__.py",
    "numpy/linalg/__init__.py",
    "numpy/testing/__init__.py",  # a stand-in
    "numpy/f2py/__init__.py",  # a stand-in
    "numpy/_core/_multiarray_umath.cpython-313-aarch64-linux-gnu.so",
    "numpy.libs/libscipy_openblas64_-1234.so",
    "numpy/random/LICENSE.md",
    "numpy-9.9.9.dist-info/METADATA",
    "numpy-9.9.9.dist-info/WHEEL",
    "numpy-9.9.9.dist-info/licenses/LICENSE.txt",
}


def test_what_a_function_opens_and_the_licences_are_kept(tmp_path):
    found = read_wheel(write_wheel(tmp_path), "aarch64")
    assert set(found.files) == KEPT
    assert found.files["numpy/__init__.py"] == contents()["numpy/__init__.py"]


def test_bytes_left_out_are_counted_by_kind(tmp_path):
    found = read_wheel(write_wheel(tmp_path), "aarch64")
    whole = sum(map(len, contents().values()))
    stand_ins = len(found.files["numpy/testing/__init__.py"]) + len(found.files["numpy/f2py/__init__.py"])
    kept = sum(map(len, found.files.values())) - stand_ins
    assert sum(found.left_out.values()) == whole - kept
    assert set(found.left_out) >= {"tests", "type stubs", "f2py and distutils", "headers and static libraries"}
    assert list(found.left_out.values()) == sorted(found.left_out.values(), reverse=True)


@pytest.mark.parametrize("folder", ["_core", "core"])
def test_the_test_module_that_older_numpys_import_is_kept(tmp_path, folder):
    name = f"numpy/{folder}/_multiarray_tests.so"
    assert name in read_wheel(write_wheel(tmp_path, files=contents(extra={name: elf()})), "aarch64").files


def test_a_stand_in_says_that_it_is_one(tmp_path, monkeypatch):
    source = read_wheel(write_wheel(tmp_path), "aarch64").files["numpy/testing/__init__.py"]
    (tmp_path / "stand_in.py").write_bytes(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    import stand_in

    monkeypatch.delitem(sys.modules, "stand_in")
    with pytest.raises(AttributeError, match="stand_in is left out of functions that serverless_gc builds"):
        stand_in.assert_allclose  # noqa: B018 - looking it up is the test


def test_code_for_another_machine_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"numpy/_core/_multiarray_umath.*is ELF code for x86_64"):
        read_wheel(write_wheel(tmp_path, "x86_64"), "aarch64")


def test_a_wheel_built_on_a_mac_is_refused(tmp_path):
    mac = contents(extra={"numpy/_core/_multiarray_umath.cpython-313-darwin.so": b"\xcf\xfa\xed\xfe" + bytes(28)})
    with pytest.raises(ConfigError, match=r"darwin\.so is macOS code"):
        read_wheel(write_wheel(tmp_path, files=mac), "aarch64")


def test_what_is_not_numpys_wheel_is_refused(tmp_path):
    broken = tmp_path / "numpy.whl"
    broken.write_bytes(b"<html>not found</html>")
    with pytest.raises(ConfigError, match="cannot be read as a wheel"):
        read_wheel(broken, "aarch64")
    with pytest.raises(ConfigError, match="holds no NumPy"):
        read_wheel(write_wheel(tmp_path, files={"scipy/__init__.py": b""}), "aarch64")


@pytest.mark.parametrize("name", ["/etc/cron.py", "numpy/../../cron.py"])
def test_files_that_would_land_elsewhere_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="would land outside its folder"):
        read_wheel(write_wheel(tmp_path, files=contents(extra={name: b""})), "aarch64")
