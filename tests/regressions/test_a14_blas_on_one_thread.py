"""A14: BLAS gets the threads that the function's memory pays for, before NumPy is loaded, and the log says so."""

import io
import json
import os
import zipfile

import pytest
from rig_functions import Sdk, worker_zip

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

PEEK = """
import ctypes, re
import handler as worker  # first: as in the deployed function, it sets the threads and then loads NumPy
import numpy as np

def handler(event, context):
    np.ones((64, 64)) @ np.ones((64, 64))
    with open("/proc/self/maps") as maps:
        path = re.search(r"(/[^ \\n]*openblas[^ \\n]*)", maps.read())[1]
    blas = ctypes.CDLL(path)
    for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads"):
        if hasattr(blas, name):
            return getattr(blas, name)()
"""


@pytest.fixture(scope="module")
def code():
    """The worker's zip with one module more, which asks the library itself."""
    content = io.BytesIO(worker_zip())
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("peek.py", PEEK)
    return content.getvalue()


@pytest.mark.parametrize(
    ("memory", "own", "vcpus"),
    [(1024, {}, 1), (3008, {}, 2), (10240, {}, 6), (10240, {"SERVERLESS_GC_BLAS_THREADS": "1"}, 1)],
    ids=["1024", "3008", "10240", "10240-overridden"],
)
@pytest.mark.usefixtures("on_rig")
def test_as_many_as_the_memory_buys(code, memory, own, vcpus):
    name = f"peek-{memory}-{len(own)}"
    with Sdk() as sdk:
        if not sdk.s3.list_buckets(Prefix="peek")["Buckets"]:
            sdk.s3.create_bucket(Bucket="peek")
            sdk.s3.put_object(Bucket="peek", Key="zip", Body=code)
        where = {"S3Bucket": "peek", "S3Key": "zip"}
        sdk.deploy(name, where, Handler="peek.handler", MemorySize=memory, Environment={"Variables": own})
        done = sdk.invoke(name, LogType="Tail")
        sdk.functions.delete_function(FunctionName=name)
    assert done.error is None, done.raw
    assert done.value == min(vcpus, CORES)  # OpenBLAS itself stays within the cores of the machine
    (line,) = [line for line in done.log.splitlines() if "cold start" in line]
    said = json.loads(line)
    assert said["blas_threads"] == vcpus
    assert said["memory_mb"] == str(memory)
