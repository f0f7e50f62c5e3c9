"""Entry point of the deployed function: set the threads of BLAS before NumPy is imported, then hand over."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import MutableMapping

MB_PER_VCPU = 1769
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def set_blas_threads(environ: MutableMapping[str, str]) -> int:
    """Give BLAS as many threads as the memory buys vCPUs; variables that the user has set stay as they are."""
    memory = int(environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "0"))
    threads = environ.get("SERVERLESS_GC_BLAS_THREADS") or str(max(1, round(memory / MB_PER_VCPU)))
    for name in _THREAD_VARIABLES:
        environ.setdefault(name, threads)
    return int(environ[_THREAD_VARIABLES[0]])


_threads = set_blas_threads(os.environ)
_memory = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
sys.stdout.write(json.dumps({"serverless_gc": "cold start", "blas_threads": _threads, "memory_mb": _memory}) + "\n")

from serverless_gc.worker.entry import handle as handler  # noqa: E402 - after the variables that NumPy reads

__all__ = ["handler", "set_blas_threads"]
