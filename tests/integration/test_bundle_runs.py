"""The real package, built for this machine's architecture, unpacked and run by the Python it was built for.

The interpreter sees its standard library and the unpacked folder, nothing else: no site-packages, no clone.
"""

import base64
import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import boto3
import numpy as np
import pytest

from serverless_gc.deploy.bundle import build_bundle
from serverless_gc.deploy.bytecode import find_interpreter
from serverless_gc.wire import CsrBlock, Reply, Task, pack_block

ARCH = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
OTHER_ARCH = "x86_64" if ARCH == "arm64" else "arm64"
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
PYTHONS = [python for python in ("3.13", "3.12") if find_interpreter(python)] or [HERE]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or ARCH not in {"arm64", "x86_64"}, reason="the package runs on Linux, as in Lambda"
)


class Unpacked:
    """A package as the runtime sees it."""

    def __init__(self, bundle, folder):
        self.python, self.archive = bundle.python, bundle.function
        self.roots = [folder / "function"]
        for archive, name in zip(bundle.archives, ("function", "layer"), strict=False):
            with zipfile.ZipFile(archive.path) as opened:
                opened.extractall(folder / name)
        if bundle.layer is not None:
            self.roots.append(folder / "layer" / "python" / "lib" / f"python{bundle.python}" / "site-packages")

    @property
    def function(self):
        return self.roots[0]

    def run(self, code, *, python=None, layers=True, stdin="", **environment):
        """Run code with the package alone; what it printed after the cold start's line, and that line."""
        roots = [str(root) for root in (self.roots if layers else self.roots[:1])]
        path = python or find_interpreter(self.python).path
        done = subprocess.run(
            [path, "-I", "-S", "-c", f"import sys; sys.path[:0] = {roots!r}\n{code}"],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={"PATH": os.environ["PATH"], **environment},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Build and unpack, each once."""
    known = {}

    def get(python=PYTHONS[0], arch=ARCH, *, as_layer=False):
        key = (python, arch, as_layer)
        if key not in known:
            folder = tmp_path_factory.mktemp("bundle")
            known[key] = Unpacked(build_bundle(folder, python=python, arch=arch, as_layer=as_layer), folder)
        return known[key]

    return get


ANSWER = """
import json
from handler import handler
print(json.dumps([handler(event, None) for event in json.load(sys.stdin)]))
"""


def event(task):
    return {"sgc": base64.b64encode(task.to_bytes()).decode()}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("as_layer", [False, True])
def test_it_answers_tasks_over_s3(unpacked, s3_bucket, aws_environment, python, as_layer):
    endpoint, bucket = s3_bucket
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((50, 20)), rng.standard_normal(20)
    sparse = CsrBlock(np.array([2.0, 3.0]), np.array([1, 4]), np.array([0, 1, 2]), (2, 20))
    client.put_object(Bucket=bucket, Key="run/dense", Body=b"".join(pack_block(X)))
    client.put_object(Bucket=bucket, Key="run/sparse", Body=b"".join(pack_block(sparse)))
    store = f"s3://{bucket}/run?region=us-east-1"
    common = {"kernel": "matvec", "store": store, "operand": w, "inline_limit": 1000}
    tasks = [
        Task("r", 0, name, slot, attempt, blocks=(name,), result_key=f"out/{name}", **common)
        for name, slot, attempt in [("dense", 0, 0), ("sparse", 1, 0), ("dense", 0, 1), ("absent", 2, 0)]
    ]
    package = unpacked(python, as_layer=as_layer)
    environment = {**aws_environment, "AWS_ENDPOINT_URL_S3": endpoint, "NO_PROXY": "127.0.0.1"}
    *_, answer = package.run(ANSWER, stdin=json.dumps([event(task) for task in tasks]), **environment)
    dense, parts, again, absent = [Reply.from_bytes(base64.b64decode(reply["sgc"])) for reply in json.loads(answer)]

    np.testing.assert_allclose(dense.value, X @ w, rtol=1e-13)
    np.testing.assert_allclose(parts.value, [2 * w[1], 3 * w[4]], rtol=1e-13)
    assert (dense.status, again.status, again.duplicate) == ("ok", "ok", True)
    assert (absent.status, absent.error["kind"]) == ("error", "missing")
    assert dense.stats["python"].startswith(python + ".")
    assert [reply.stats["cold"] for reply in (dense, parts)] == [True, False]
    stored = client.get_object(Bucket=bucket, Key="run/out/dense")["Body"].read()
    np.testing.assert_array_equal(Reply.from_bytes(stored).value, dense.value)
    client.close()


FUNCTION = """
import hashlib, io, json, handler, numpy as np
from serverless_gc.wire import pack
from serverless_gc.worker import functions
import cloudpickle  # what a driver has; the worker imports it when it loads a function

code = np.frombuffer(cloudpickle.dumps(lambda X, y, w: X.T @ (X @ w - y)), np.uint8)
data = pack({"kind": "function"}, (code,))
stamp = {"digest": hashlib.sha256(data).hexdigest(), "python": "%d.%d" % sys.version_info[:2]}
loss = functions.load(np.frombuffer(data, np.uint8), stamp)
print(functions.call(loss, [np.eye(2), np.ones(2)], np.zeros(2), "", value=False)[1].tolist())
try:
    functions.load(np.frombuffer(data, np.uint8), {**stamp, "python": "3.10"})
except functions.FunctionRefused as refused:
    print(refused)
"""


@pytest.mark.parametrize("python", PYTHONS[:1])
def test_functions_given_as_losses_can_be_loaded(unpacked, python):
    """A16."""
    *_, gradient, refusal = unpacked(python).run(FUNCTION)
    assert gradient == "[-1.0, -1.0]"
    assert f"pickled by Python 3.10 and this worker runs Python {python}" in refusal


LOADED = """
import json, pkgutil, importlib
import handler, serverless_gc
modules = [m.name for m in pkgutil.walk_packages(serverless_gc.__path__, "serverless_gc.")]
for name in modules:
    importlib.import_module(name)
files = {n.split(".")[0]: getattr(m, "__file__", None) for n, m in sys.modules.items()}
print(json.dumps([modules, files, sorted(sys.stdlib_module_names)]))
"""


def test_only_the_package_and_the_standard_library_are_loaded(unpacked):
    package = unpacked()
    *_, answer = package.run(LOADED)
    modules, files, standard = json.loads(answer)
    assert {name.split(".")[1] for name in modules} == {"wire", "worker"}
    foreign = {name: path for name, path in files.items() if path and name not in {*standard, "__main__"}}
    assert {name for name in foreign if not name.startswith("_")} == {"handler", "numpy", "serverless_gc"}
    assert all(Path(path).is_relative_to(package.function) for path in foreign.values())


PUBLIC = """
from numpy import *
import numpy, numpy.char, numpy.core, numpy.ctypeslib, numpy.exceptions, numpy.fft, numpy.lib.format
import numpy.linalg, numpy.ma, numpy.matlib, numpy.polynomial, numpy.random, numpy.rec, numpy.typing
A = numpy.random.default_rng(0).standard_normal((5, 5))
assert numpy.allclose(numpy.linalg.solve(A, A @ numpy.ones(5)), 1)
assert numpy.allclose(numpy.fft.ifft(numpy.fft.fft(A)), A)
print("ok")
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_left_out_of_numpy_is_not_missed(unpacked, python):
    assert unpacked(python).run(PUBLIC) == ["ok"]


BLAS = """
import ctypes, glob, handler, os
name, = glob.glob(os.path.join(sys.path[0], "numpy.libs", "libscipy_openblas*"))
print(ctypes.CDLL(name).scipy_openblas_get_num_threads64_())
"""


@pytest.mark.parametrize(
    ("memory", "environment", "threads"),
    [("3008", {}, 2), ("10240", {}, 6), ("1769", {}, 1), ("10240", {"SERVERLESS_GC_BLAS_THREADS": "1"}, 1)],
)
def test_blas_has_as_many_threads_as_the_memory_buys(unpacked, memory, environment, threads):
    """A14."""
    log, count = unpacked().run(BLAS, AWS_LAMBDA_FUNCTION_MEMORY_SIZE=memory, **environment)
    assert json.loads(log)["blas_threads"] == threads
    assert json.loads(log)["memory_mb"] == memory
    assert int(count) == min(threads, len(os.sched_getaffinity(0)))  # OpenBLAS never takes more than there are cores


# As the runtime's own loader does: the message of an ImportError is reported, without a traceback.
IMPORT = """
try:
    import handler
except ImportError as error:
    print(error)
print("numpy" in sys.modules)
"""


def test_another_python_gets_one_sentence(unpacked):
    other = next(p for p in (*PYTHONS, HERE, "3.11", "3.9", "3.8") if p != PYTHONS[0] and find_interpreter(p))
    sentence, numpy = unpacked().run(IMPORT, python=find_interpreter(other).path)
    assert sentence == (
        f"this function was built for Python {PYTHONS[0]} on Linux {ARCH}, but runs on Python {other} on Linux {ARCH}: "
        f"set its runtime to python{PYTHONS[0]} and its architecture to {ARCH}, or build again with: "
        f"serverless-gc build --python {other} --arch {ARCH}"
    )
    assert numpy == "False"


def test_another_architecture_gets_one_sentence(unpacked):
    sentence, numpy = unpacked(arch=OTHER_ARCH).run(IMPORT)
    assert f"built for Python {PYTHONS[0]} on Linux {OTHER_ARCH}, but runs on Python {PYTHONS[0]}" in sentence
    assert sentence.endswith(f"build again with: serverless-gc build --python {PYTHONS[0]} --arch {ARCH}")
    assert numpy == "False"


def test_a_function_without_its_layer_says_so(unpacked):
    *_, sentence, numpy = unpacked(as_layer=True).run(IMPORT, layers=False)
    assert sentence.startswith("this function was built without NumPy, to be used with the layer that was built beside")
    assert numpy == "False"


@pytest.mark.parametrize("arch", [ARCH, OTHER_ARCH])
def test_the_package_is_small_enough_to_be_fetched_quickly(unpacked, arch):
    """Well below Lambda's 50 and 250 MB: what a cold start downloads."""
    archive = unpacked(arch=arch).archive
    assert archive.zipped_bytes < 15.5e6
    assert archive.unzipped_bytes < 60e6


TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def test_a_cold_start_is_hardly_longer_than_importing_numpy(unpacked):
    package = unpacked()
    times = {"numpy": [], "handler": []}
    for _ in range(9):  # side by side, so that both see the machine's moods
        for name, measured in times.items():
            measured.append(float(package.run(TIMED.format(name), AWS_LAMBDA_FUNCTION_MEMORY_SIZE="1769")[-1]))
    assert min(times["handler"]) < 1.5 * min(times["numpy"])


@pytest.mark.parametrize("as_layer", [False, True])
def test_byte_code_is_taken_as_it_is_whatever_the_files_times(unpacked, as_layer):
    package = unpacked(as_layer=as_layer)
    sources = [package.function / "serverless_gc/worker/entry.py", package.roots[-1] / "numpy/linalg/__init__.py"]
    texts = [path.read_bytes() for path in sources]
    try:
        for path in sources:
            path.write_bytes(b"raise RuntimeError('the source was compiled again')\n")
        code = "from serverless_gc.worker.entry import run; print(run.__code__.co_filename)"
        assert package.run(code) == [str(sources[0])]
    finally:
        for path, text in zip(sources, texts, strict=True):
            path.write_bytes(text)
