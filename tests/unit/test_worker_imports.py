"""What the worker loads, and how the deployed shim starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

LISTED = "import sys, json; import {}; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"


def python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": ".", "PATH": os.environ["PATH"], **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_worker_loads_numpy_and_the_standard_library_only():
    loaded = set(json.loads(python(LISTED.format("serverless_gc.worker.entry"))))
    beyond_numpy = loaded - set(json.loads(python(LISTED.format("numpy"))))
    foreign = beyond_numpy - set(sys.stdlib_module_names)
    assert {name for name in foreign if not name.startswith("_")} == {"serverless_gc"}


def test_importing_the_worker_loads_only_the_floors_it_may():
    code = "import sys, json, serverless_gc.worker.entry; print(json.dumps(sorted(sys.modules)))"
    names = [name for name in json.loads(python(code)) if name.startswith("serverless_gc.")]
    assert {name.split(".")[1] for name in names} == {"wire", "worker"}
    assert "serverless_gc.worker.s3" not in names  # workers on files need no HTTP


SHIM = """
import sys; sys.path.insert(0, "lambda")
assert "numpy" not in sys.modules
import handler, json, os, threadpoolctl
import numpy
pools = [p["num_threads"] for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
print(json.dumps([os.environ["OPENBLAS_NUM_THREADS"], pools[0], handler.handler.__module__]))
"""


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128"}, 1),
        ({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769"}, 1),
        ({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "3008"}, 2),
        ({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "10240"}, 6),
        ({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "10240", "SERVERLESS_GC_BLAS_THREADS": "1"}, 1),
        ({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "10240", "OPENBLAS_NUM_THREADS": "2"}, 2),
        ({}, 1),
    ],
)
def test_blas_has_as_many_threads_as_the_memory_buys(environment, threads):
    """A14."""
    log, result = python(SHIM, **environment).splitlines()
    asked, got, module = json.loads(result)
    assert int(asked) == threads
    assert got == min(threads, len(os.sched_getaffinity(0)))  # OpenBLAS never takes more than there are cores
    assert module == "serverless_gc.worker.entry"
    assert json.loads(log)["blas_threads"] == threads
