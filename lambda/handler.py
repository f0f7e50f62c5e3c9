"""Entry point of the deployed function: check where it runs, set the threads of BLAS, import NumPy, hand over.

This file is kept readable for Pythons older than the package supports, so that it can say what is wrong there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

MB_PER_VCPU = 1769
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
_ARCHITECTURES = {"aarch64": "arm64"}


def set_blas_threads(environ: MutableMapping[str, str]) -> int:
    """Give BLAS as many threads as the memory buys vCPUs; variables that the user has set stay as they are."""
    memory = int(environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "0"))
    threads = environ.get("SERVERLESS_GC_BLAS_THREADS") or str(max(1, round(memory / MB_PER_VCPU)))
    for name in _THREAD_VARIABLES:
        environ.setdefault(name, threads)
    return int(environ[_THREAD_VARIABLES[0]])


def read_stamp(folder: str) -> Mapping[str, Any] | None:
    """Read what the package was built for; in a clone or a container image there is no stamp."""
    path = os.path.join(folder, "bundle.json")  # noqa: PTH118 - pathlib costs a cold start some milliseconds
    if not os.path.exists(path):  # noqa: PTH110 - as above
        return None
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as above
        stamp: Mapping[str, Any] = json.load(file)
        return stamp


def wrong_place(stamp: Mapping[str, Any], system: str, machine: str, python: str) -> str:
    """Say in one sentence why the package cannot run here, and what to do; empty if it can."""
    arch = _ARCHITECTURES.get(machine, machine)
    if (system, arch, python) == ("linux", stamp["arch"], stamp["python"]):
        return ""
    layer = " --layer" if stamp["layer"] else ""
    again = f"build again with: serverless-gc build --python {python} --arch {arch}{layer}"
    return (
        f"this function was built for Python {stamp['python']} on Linux {stamp['arch']}, but runs on Python {python} "
        f"on {_SYSTEMS.get(system, system)} {arch}: set its runtime to python{stamp['python']} and its architecture "
        f"to {stamp['arch']}" + (f", or {again}" if system == "linux" else "; it runs on AWS Lambda only")
    )


_stamp = read_stamp(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - as above
if _stamp is not None:
    _machine = os.uname().machine if hasattr(os, "uname") else ""
    _fault = wrong_place(_stamp, sys.platform, _machine, f"{sys.version_info[0]}.{sys.version_info[1]}")
    if _fault:
        raise ImportError(_fault)  # the runtime reports its message alone, without a traceback

_threads = set_blas_threads(os.environ)
_memory = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
_version = _stamp["serverless_gc"] if _stamp else ""
_cold_start = {"serverless_gc": "cold start", "version": _version, "blas_threads": _threads, "memory_mb": _memory}
sys.stdout.write(json.dumps(_cold_start) + "\n")

try:
    from serverless_gc.worker.entry import handle as handler
except ModuleNotFoundError as missing:
    if missing.name != "numpy":
        raise
    raise ImportError(
        "this function was built without NumPy, to be used with the layer that was built beside it "
        "(layer-python*.zip): attach that layer, or build again without --layer: serverless-gc build"
    ) from None

__all__ = ["handler", "set_blas_threads"]
