"""The package against what bounds it: compressing its bytes for a build, importing NumPy for a cold start."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import time
import zipfile
import zlib

import pytest

from serverless_gc.deploy.bundle import build_bundle
from serverless_gc.deploy.bytecode import find_interpreter

ARCH = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
PYTHON = next((python for python in ("3.13", "3.12") if find_interpreter(python)), HERE)
TIMED = """
import sys, time
sys.path[:0] = [{!r}]
start = time.perf_counter()
import {}
print(time.perf_counter() - start)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return build_bundle(tmp_path_factory.mktemp("bench"), python=PYTHON, arch=ARCH)


def test_a_build_from_the_cache(benchmark, bundle, tmp_path):
    benchmark.pedantic(lambda: build_bundle(tmp_path, python=PYTHON, arch=ARCH), rounds=3)
    with zipfile.ZipFile(bundle.path) as opened:
        contents = [opened.read(name) for name in opened.namelist()]
    start = time.perf_counter()
    for data in contents:
        zlib.compress(data, 6)
    bound = time.perf_counter() - start
    benchmark.extra_info["times compressing alone"] = round(benchmark.stats.stats.min / bound, 2)


def unpack(bundle, folder):
    with zipfile.ZipFile(bundle.path) as opened:
        opened.extractall(folder)
    return folder


def seconds_to_import(module, folder):
    """Seconds inside the interpreter; byte code is neither written nor, unless it is in the package, there."""
    command = [find_interpreter(PYTHON).path, "-I", "-S", "-B", "-c", TIMED.format(str(folder), module)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"OPENBLAS_NUM_THREADS": "1"})
    return float(done.stdout.splitlines()[-1])


def test_cold_start(benchmark, hold, bundle, tmp_path):
    compiled, sources = unpack(bundle, tmp_path / "compiled"), unpack(bundle, tmp_path / "sources")
    for cache in list(sources.rglob("__pycache__")):
        shutil.rmtree(cache)

    def times(ours, folder, bound):
        pairs = [(seconds_to_import(ours, folder), seconds_to_import(bound, compiled)) for _ in range(9)]
        mine, theirs = map(min, zip(*pairs, strict=True))
        return mine / theirs

    benchmark.pedantic(lambda: seconds_to_import("handler", compiled), rounds=3)
    benchmark.extra_info["times with byte code"] = round(times("handler", sources, "handler"), 2)
    hold(
        "import of the handler, in imports of NumPy",
        lambda: times("handler", compiled, "numpy"),
        at_most=1.5,
        tolerance=1,
    )
