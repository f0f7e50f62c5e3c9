# ruff: noqa: ARG001, ARG005 - losses have the arguments of losses
"""A18: a function takes along what it needs, small, by value; what cannot go is named before anything is sent."""

import asyncio
import importlib
import sys

import boto3
import gradient_codes
import numpy as np
import pytest
from numpy import exp

import serverless_gc as sgc
from serverless_gc.rounds.functions import MOST_BYTES
from serverless_gc.store import CountingStore, MemoryStore


@pytest.fixture
def stored():
    return CountingStore(MemoryStore())


@pytest.fixture
def data(stored, problem):
    with sgc.Session(store=stored) as s:
        yield s.encode(problem.X, problem.y, code=gradient_codes.frc())


def test_a_large_array_is_refused_with_its_name_and_size(data, stored, problem):
    table = np.ones(50 * 2**20 // 8)

    def loss(X, y, w):
        return X.T @ (X @ w - y) + table[: len(w)]

    before = stored.requests["put"]
    with pytest.raises(
        sgc.InputError, match=r"52,428,800 bytes, .* most of it in variable 'table'.*Pass arrays as data"
    ):
        data.gradient(problem.w, loss=loss)
    with pytest.raises(sgc.InputError, match=r"at most 1,048,576 .* most of it in default number 0"):
        data.gradient(problem.w, loss=lambda X, y, w, words=b"a" * 2 * MOST_BYTES: w * len(words))
    assert stored.requests["put"] == before


def test_a_small_array_goes_once_not_with_every_call(data, stored, problem):
    table = np.arange(20.0)

    def loss(X, y, w):
        return X.T @ (X @ w - y) + table

    for _ in range(3):
        np.testing.assert_allclose(data.gradient(problem.w, loss=loss), problem.gradient + 6 * table, rtol=1e-9)
    assert len(asyncio.run(functions_in(stored.inner))) == 1


async def functions_in(store):
    return [info.key async for info in store.list("") if "/functions/" in info.key]


def test_a_client_is_named(data, problem):
    client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")

    def loss(X, y, w):
        return client.get_object(Bucket="b", Key="k")["Body"]

    with pytest.raises(sgc.InputError, match=r"variable 'client' \(a botocore.client.S3\) cannot be pickled"):
        data.gradient(problem.w, loss=loss)
    client.close()


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    """Modules that are here and not where the worker runs."""
    (tmp_path / "lonely.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "lonely_losses.py").write_text(
        "import numpy as np\nfrom numpy import exp\nimport lonely\n"
        "def helper(z):\n    return exp(-z)\n"
        "def alone(X, y, w):\n    return X.T @ helper(np.abs(X @ w))\n"
        "def together(X, y, w):\n    return lonely.double(alone(X, y, w))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("lonely_losses")
    for name in ("lonely", "lonely_losses"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("aws")
def test_what_the_worker_lacks_is_named_and_what_is_ones_own_goes_along(problem, own_modules):
    expected = problem.X.T @ exp(-np.abs(problem.X @ problem.w))

    def from_numpy(X, y, w):
        return X.T @ exp(-np.abs(X @ w))

    with sgc.Session("aws") as s:
        data = s.encode(problem.X, problem.y, code=gradient_codes.frc())
        for loss in (from_numpy, own_modules.alone):
            np.testing.assert_allclose(data.gradient(problem.w, loss=loss), expected, rtol=1e-9)
        with pytest.raises(sgc.ConfigError, match=r"needs the module 'lonely', which this worker lacks"):
            data.gradient(problem.w, loss=own_modules.together)
        np.testing.assert_allclose(data.gradient(problem.w), problem.gradient, rtol=1e-9)
