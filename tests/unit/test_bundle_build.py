"""The package as a whole, from a small wheel: what is in it, what it says of itself, and its limits."""

import dataclasses
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import cloudpickle
import pytest
from numpy_wheels import contents, elf, only, write_wheel

import serverless_gc
from serverless_gc.deploy.bundle import build_bundle
from serverless_gc.errors import InputError, LimitError
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.wire import PROTOCOL

ROOT = Path(__file__).parents[2]
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
ABI = "cp" + HERE.replace(".", "")


@pytest.fixture
def world(tmp_path):
    """Pip sees a small NumPy for this Python, on both architectures."""
    for machine in ("aarch64", "x86_64"):
        write_wheel(tmp_path / "offered", machine, abi=ABI, platform="manylinux2014")
    pip = tmp_path / "bin" / "pip3"  # for the script, which runs without site-packages
    pip.parent.mkdir()
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip "$@"\n')
    pip.chmod(0o755)
    return {**only(tmp_path / "offered", tmp_path / "cache"), "PATH": f"{pip.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def build(tmp_path, world):
    def call(**options):
        settings = {"python": HERE, "numpy": "9.9.9", "environ": world, **options}
        return build_bundle(settings.pop("output", tmp_path / "out"), **settings)

    return call


def names(archive):
    with zipfile.ZipFile(archive.path) as opened:
        return {name for name in opened.namelist() if not name.endswith(".pyc")}


def own_modules():
    package = ROOT / "serverless_gc"
    paths = [package / "__init__.py", *(package / "worker").glob("*.py"), *(package / "wire").glob("*.py")]
    return {path.relative_to(ROOT).as_posix() for path in paths}


PICKLING = {"cloudpickle/__init__.py", "cloudpickle/cloudpickle.py", "cloudpickle/cloudpickle_fast.py"}
OWN = own_modules() | {"handler.py", "bundle.json"} | PICKLING


def licences(found):
    return {name for name in found if name.startswith("cloudpickle-") and "LICENSE" in name}


def test_the_function_holds_the_handler_the_worker_numpy_and_cloudpickle_alone(build, tmp_path):
    bundle = build()
    found = names(bundle.function)
    assert {name for name in found if not name.startswith("numpy")} == OWN | licences(found)
    assert len(licences(found)) == 1
    assert "numpy/__init__.py" in found
    assert bundle.layer is None
    assert bundle.path == tmp_path / "out" / f"function-python{HERE}-arm64.zip"
    with zipfile.ZipFile(bundle.path) as opened:
        assert json.loads(opened.read("bundle.json")) == {
            "serverless_gc": serverless_gc.__version__,
            "protocol": PROTOCOL,
            "python": HERE,
            "arch": "arm64",
            "numpy": "9.9.9",
            "cloudpickle": cloudpickle.__version__,
            "layer": False,
        }
        assert opened.read("handler.py") == (ROOT / "lambda" / "handler.py").read_bytes()


def test_every_module_has_byte_code_of_the_targets_python(build):
    bundle = build()
    assert bundle.bytecode == "{}.{}.{}".format(*sys.version_info)
    with zipfile.ZipFile(bundle.path) as opened:
        sources = [name for name in opened.namelist() if name.endswith(".py")]
        compiled = [name for name in opened.namelist() if name.endswith(f".{sys.implementation.cache_tag}.pyc")]
    assert len(sources) == len(compiled) > 10


def test_without_the_targets_python_there_are_sources_and_the_summary_says_so(build, world, tmp_path):
    other = "3.12" if HERE != "3.12" else "3.13"
    write_wheel(tmp_path / "offered", abi="cp" + other.replace(".", ""))
    nowhere = dict.fromkeys(("PATH", "HOME", "PYENV_ROOT", "XDG_DATA_HOME"), str(tmp_path))
    bundle = build(python=other, environ={**world, **nowhere})
    assert bundle.bytecode == ""
    assert f"no byte code (no Python {other} on this machine)" in bundle.summary()
    with zipfile.ZipFile(bundle.path) as opened:
        assert not [name for name in opened.namelist() if name.endswith(".pyc")]


def test_a_layer_has_numpy_where_the_runtime_looks_for_it(build):
    bundle = build(as_layer=True, arch="x86_64")
    prefix = f"python/lib/python{HERE}/site-packages/"
    assert all(name.startswith(prefix + "numpy") for name in names(bundle.layer))
    assert prefix + "numpy.libs/libscipy_openblas64_-1234.so" in names(bundle.layer)
    assert names(bundle.function) == OWN | licences(names(bundle.function))
    assert bundle.zipped_bytes == bundle.function.zipped_bytes + bundle.layer.zipped_bytes
    together = build(arch="x86_64")
    assert together.unzipped_bytes - bundle.unzipped_bytes < 200  # byte code names another place; the stamp differs


def test_two_builds_give_one_hash_and_another_architecture_another(build, tmp_path):
    one, two = build(output=tmp_path / "a"), build(output=tmp_path / "b")
    assert one.sha256 == two.sha256
    assert one.code_sha256 == two.code_sha256
    assert build(arch="x86_64").sha256 != one.sha256
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.arch = "x86_64"


def test_sizes_beyond_lambdas_are_refused_with_both_numbers(build):
    small = build()
    with pytest.raises(LimitError, match=rf"has {small.zipped_bytes:,} bytes, Lambda takes 1,000 directly"):
        build(limits=Limits(code_zip_bytes=1000))
    limit = small.unzipped_bytes  # it fits, but without room for another layer
    with pytest.raises(LimitError, match=rf"has {limit:,} bytes unzipped; Lambda takes {limit:,}, of which"):
        build(limits=Limits(code_bytes=limit))
    build(limits=Limits(code_bytes=int(limit / 0.79)))


def test_the_limits_are_the_documented_ones():
    assert DEFAULT_LIMITS.code_zip_bytes == 52_428_800
    assert DEFAULT_LIMITS.code_bytes == 262_144_000
    with pytest.raises(InputError, match="limit code_bytes must be at least 1"):
        Limits(code_bytes=0)


def test_the_summary_has_all_that_a_deployment_needs(build):
    bundle = build(as_layer=True)
    text = bundle.summary()
    for archive in bundle.archives:
        assert f"{archive.path}\n" in text
        assert archive.sha256 in text
        assert archive.code_sha256 in text
    assert f"runtime python{HERE}, architecture arm64, handler handler.handler" in text
    assert "numpy 9.9.9" in text
    assert "left out of numpy: " in text
    assert "MB unzipped (0% of the limit)" in text


def command(world, *arguments, script):
    program = [str(ROOT / "lambda" / "build.py")] if script else ["-c", "from serverless_gc.cli import main; main()"]
    isolation = ["-I", "-S"] if script else []  # the script needs neither NumPy nor typer
    arguments = ("build", *arguments) if not script else arguments
    environ = {**world, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *isolation, *program, *arguments], capture_output=True, text=True, check=False, env=environ
    )


@pytest.mark.parametrize("script", [False, True])
def test_command_and_script_build_the_same_and_print_it(build, world, tmp_path, script):
    bundle = build()
    numpy = ("--python", HERE, "--numpy", "9.9.9", "--output", str(tmp_path / "printed"))
    done = command(world, *numpy, script=script)
    assert (done.returncode, done.stderr) == (0, "")
    expected = bundle.summary().replace(str(tmp_path / "out"), str(tmp_path / "printed"))
    if script:  # which was run where cloudpickle is not installed: its zip is another one, and it says so
        for text in ("sha256 ", "CodeSha256", "MB zipped", "MB unzipped"):
            assert text in done.stdout
        told = [line for line in expected.splitlines() if line.startswith(("for runtime", "byte code", "left out"))]
        assert len(told) == 3
        assert set(told) < set(done.stdout.splitlines())
        assert ", no cloudpickle: built-in losses only" in done.stdout
    else:
        assert done.stdout == expected + "\n"
    done = command(world, *numpy, "--layer", "--arch", "x86_64", script=script)
    assert f"layer-python{HERE}-x86_64.zip" in done.stdout


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--python", "2.7"), "python must be one of 3.11, 3.12, 3.13, 3.14, which Lambda runs; got '2.7'"),
        (("--arch", "arm"), "arch must be one of arm64, x86_64; got 'arm'"),
        (("--numpy", "0.0.1"), "pip could not download NumPy 0.0.1 for Python 3.13 on arm64"),
        (("--numpy", "latest"), "numpy must be a version such as 2.4.6, got 'latest'"),
    ],
)
def test_errors_are_one_readable_line(world, tmp_path, script, options, message):
    done = command(world, *options, "--output", str(tmp_path / "out"), script=script)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_wheel_with_the_wrong_code_inside_is_refused_before_anything_is_written(tmp_path, build):
    wrong = contents(extra={"numpy/linalg/lapack_lite.so": elf("x86_64")}, version="9.9.7")
    write_wheel(tmp_path / "offered", version="9.9.7", abi=ABI, platform="manylinux2014", files=wrong)
    with pytest.raises(serverless_gc.ConfigError, match=r"lapack_lite\.so is ELF code for x86_64"):
        build(numpy="9.9.7")
    assert not (tmp_path / "out").exists()
