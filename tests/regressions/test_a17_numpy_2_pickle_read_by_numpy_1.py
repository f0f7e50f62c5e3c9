"""A17: no array travels as a pickle, and a worker under the oldest supported NumPy reads what the newest wrote."""

import pathlib
import pickletools
import subprocess
import sys

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.limits import Limits
from serverless_gc.rounds.functions import ship
from serverless_gc.store import MemoryStore, StoreWrapper
from serverless_gc.wire import Reply, Task, pack_block, unpack, unpack_block

OLDEST = "1.26.4"


class Recording(StoreWrapper):
    """Keeps everything that is ever read, by driver or workers."""

    def __init__(self, inner):
        super().__init__(inner)
        self.seen = {}

    def _after_get(self, key, data):
        self.seen[key] = bytes(data)
        return data


def is_pickle(data):
    try:
        return sum(1 for _ in pickletools.genops(data)) > 2
    except Exception:  # noqa: BLE001 - whatever a parser of pickles says about bytes that are none
        return False


def test_nothing_stored_is_a_pickle(problem):
    store = Recording(MemoryStore())
    with sgc.Session(store=store, limits=Limits(reply_bytes=20_000)) as s:
        data = s.encode(problem.X, problem.y, code="polar", n_workers=16, k=12)
        problem.check(data.gradient(problem.w))
    assert len(store.seen) > 16
    for key, data in store.seen.items():
        assert data[:4] == b"SGCF", key
        assert not is_pickle(data), key
        assert b"numpy" not in data[: data.index(b"}")], key


def closing_over(array, scalar):
    from numpy import exp

    def loss(X, y, w):
        return X.T @ (exp(-np.abs(X @ w)) * scalar - y) + array

    return loss


def test_no_array_is_in_the_pickle_of_a_function(problem):
    """What a function refers to is stored beside its pickle: arrays, NumPy's numbers and ufuncs live elsewhere in 1."""
    store = Recording(MemoryStore())
    loss = closing_over(np.arange(20.0), np.float64(0.5))
    code = LinearGradientCode(np.tile(np.eye(4), (2, 1)))
    with sgc.Session(store=store) as s:
        g = s.encode(problem.X, problem.y, code=code).gradient(problem.w, loss=loss)
    expected = loss(problem.X, problem.y, problem.w) + 3 * np.arange(20.0)  # it is added once for each partition
    np.testing.assert_allclose(g, expected, rtol=1e-10)
    (stored,) = [data for key, data in store.seen.items() if "/functions/" in key]
    pickled, *arrays = unpack(unpack_block(stored).tobytes()).arrays
    assert [a.shape for a in arrays] == [(20,), ()]
    words = {str(arg) for _, arg, _ in pickletools.genops(pickled.tobytes()) if isinstance(arg, str)}
    assert not [word for word in words if "_core" in word or "numpy.core" in word or "reconstruct" in word]
    assert len(words) > 10


WORKER = """
import sys, numpy
from serverless_gc.worker.entry import run
from serverless_gc.worker.opening import open_blobs
assert numpy.__version__ == sys.argv[1], numpy.__version__
sys.stdout.buffer.write(run(sys.stdin.buffer.read(), open_blobs))
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason=f"NumPy {OLDEST} has no wheels for this Python")
def test_worker_under_the_oldest_numpy(tmp_path):
    target = tmp_path / "numpy"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    got = subprocess.run(
        [*command, "--target", str(target), f"numpy=={OLDEST}"], check=False, capture_output=True, text=True
    )
    if got.returncode:
        pytest.skip(f"NumPy {OLDEST} cannot be installed here: {got.stderr[-200:]}")
    rng = np.random.default_rng(0)
    block, operand = rng.standard_normal((40, 30)), rng.standard_normal(30)
    (tmp_path / "block").write_bytes(b"".join(pack_block(block)))
    shipment = ship(closing_over(rng.standard_normal(30), np.float64(0.5)))
    (tmp_path / "function").write_bytes(b"".join(pack_block(np.frombuffer(shipment.data, np.uint8))))
    y = rng.standard_normal(40)
    (tmp_path / "y").write_bytes(b"".join(pack_block(y)))
    common = {"store": tmp_path.as_uri(), "operand": operand, "inline_limit": 10_000}
    product = Task("r", 1, "1-0", 0, 0, "matvec", ("block",), "out", **common)
    params = {"function": shipment.stamp}
    gradient = Task("r", 1, "1-1", 1, 0, "gradient", ("block", "y", "function"), "out1", params=params, **common)
    expected = closing_over(*unpack(shipment.data).arrays[1:])(block, y, operand)
    for task, right in ((product, block @ operand), (gradient, expected)):
        reply = answer(task, target)
        assert reply.status == "ok", reply.error
        assert reply.stats["numpy"] == OLDEST
        np.testing.assert_allclose(reply.value, right, rtol=1e-12, atol=1e-12)


def answer(task, target):
    root = pathlib.Path(sgc.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", WORKER, OLDEST],
        check=False,
        input=task.to_bytes(),
        capture_output=True,
        env={"PYTHONPATH": f"{target}:{root}", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr.decode()
    return Reply.from_bytes(done.stdout)
