"""Byte code for a chosen Python, and finding that Python."""

import marshal
import sys

import pytest

from serverless_gc.deploy.bytecode import compile_sources, find_interpreter
from serverless_gc.errors import ConfigError

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER = "3.12" if HERE != "3.12" else "3.13"


def fake_python(folder, name, says, status=0):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "{says}"\nexit {status}\n')
    path.chmod(0o755)
    return str(path)


def test_this_python_is_found_without_looking():
    found = find_interpreter(HERE, {})
    assert found.path == sys.executable
    assert found.version == "{}.{}.{}".format(*sys.version_info)


@pytest.mark.parametrize(
    ("says", "status"),
    [
        ("pyenv: command not found", 127),
        ("cpython beta {}.0", 0),  # byte code of a beta is not that of the release
        ("pypy final {}.9", 0),
        ("cpython final 3.7.9", 0),
        ("", 0),
    ],
)
def test_what_is_not_a_release_of_that_python_is_passed_over(tmp_path, says, status):
    fake_python(tmp_path, f"python{OTHER}", says.format(OTHER), status)
    assert find_interpreter(OTHER, {"PATH": str(tmp_path), "HOME": str(tmp_path)}) is None


def test_a_python_on_the_path_is_taken_and_a_broken_one_does_not_hide_pyenvs(tmp_path):
    environ = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    good = fake_python(tmp_path, f".pyenv/versions/{OTHER}.7/bin/python", f"cpython final {OTHER}.7")
    assert find_interpreter(OTHER, environ).path == good
    fake_python(tmp_path, f"bin/python{OTHER}", "shim", 127)
    assert find_interpreter(OTHER, environ).path == good
    on_path = fake_python(tmp_path, f"bin/python{OTHER}", f"cpython final {OTHER}.1")
    found = find_interpreter(OTHER, environ)
    assert (found.path, found.version) == (on_path, f"{OTHER}.1")


def test_uvs_pythons_are_found(tmp_path):
    name = f"uv/python/cpython-{OTHER}.4-linux-x86_64-gnu/bin/python{OTHER}"
    path = fake_python(tmp_path, name, f"cpython final {OTHER}.4")
    assert find_interpreter(OTHER, {"PATH": "", "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}).path == path


SOURCES = {
    "handler.py": b"WORDS = {'a', 'b', 'c', 'd'}\ndef f(x):\n    return x in {'one', 'two', 'three', 'four'}\n",
    "package/__init__.py": b"",
    "package/deep/module.py": b"raise ValueError('at run time only')\n",
}


def test_byte_code_is_taken_as_it_is_and_names_the_place_of_deployment():
    compiled = compile_sources(SOURCES, find_interpreter(HERE), "/var/task")
    tag = sys.implementation.cache_tag
    assert set(compiled) == {
        f"__pycache__/handler.{tag}.pyc",
        f"package/__pycache__/__init__.{tag}.pyc",
        f"package/deep/__pycache__/module.{tag}.pyc",
    }
    for data in compiled.values():
        assert int.from_bytes(data[4:8], "little") == 0b01  # by hash, not compared with the source
    code = marshal.loads(compiled[f"package/deep/__pycache__/module.{tag}.pyc"][16:])  # noqa: S302 - compiled here
    assert code.co_filename == "/var/task/package/deep/module.py"


def test_the_same_sources_give_the_same_byte_code():
    me = find_interpreter(HERE)
    assert compile_sources(SOURCES, me, "/opt") == compile_sources(dict(reversed(SOURCES.items())), me, "/opt")


def test_a_file_that_does_not_compile_is_named():
    with pytest.raises(ConfigError, match=r"(?s)could not compile the package.*package/bad\.py"):
        compile_sources({"package/bad.py": b"def ("}, find_interpreter(HERE), "/var/task")
