# ruff: noqa: ARG005 - losses have the arguments of losses
"""A16: a worker of another version is refused with a way out, before it reads a block or unpickles anything."""

from dataclasses import replace

import gradient_codes
import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.invoke import LocalInvoker
from serverless_gc.rounds.functions import ship
from serverless_gc.store import CountingStore, MemoryStore
from serverless_gc.wire import Task


class Elsewhere(LocalInvoker):
    """The worker as it would see these tasks if it had another protocol, or ran another Python."""

    def __init__(self, store, change):
        super().__init__(store)
        self._change = change

    async def invoke(self, task, payload, *, timeout):
        return await super().invoke(task, self._change(Task.from_bytes(payload)).to_bytes(), timeout=timeout)


def session(change):
    store = CountingStore(MemoryStore())
    return sgc.Session(store=store, invoker=Elsewhere(store, change)), store


@pytest.mark.parametrize("code", ["mds", gradient_codes.frc()], ids=["data", "gradient"])
def test_another_protocol_is_refused_before_the_first_block_is_read(problem, code):
    closing, store = session(lambda task: replace(task, protocol=-1))
    with closing as s:
        data = s.encode(problem.X, problem.y, code=code)
        before = store.requests["get"]
        with pytest.raises(sgc.ServerlessGCError, match="deploy the worker again"):
            data.gradient(problem.w)
        assert store.requests["get"] == before


def pickled_by_310(task):
    if "function" not in task.params:
        return task
    return replace(task, params={**task.params, "function": {**task.params["function"], "python": "3.10"}})


def test_another_python_runs_built_in_losses_and_refuses_functions(problem):
    closing, _ = session(pickled_by_310)

    def loss(X, y, w):
        return X.T @ (X @ w - y)

    with closing as s:
        data = s.encode(problem.X, problem.y, code=gradient_codes.frc())
        problem.check(data.gradient(problem.w))
        with pytest.raises(sgc.ConfigError) as caught:
            data.gradient(problem.w, loss=loss)
        problem.check(data.gradient(problem.w))
    here = ship(loss).python
    assert f"pickled by Python 3.10 and this worker runs Python {here}" in str(caught.value)
    assert "serverless-gc deploy --python 3.10" in str(caught.value)


def test_a_function_that_was_exchanged_in_the_store_is_not_loaded(problem):
    closing, _ = session(
        lambda task: replace(task, params={**task.params, "function": {**task.params["function"], "digest": "0" * 64}})
    )
    with closing as s, pytest.raises(sgc.ConfigError, match="it is not the one that was given as loss="):
        s.encode(problem.X, problem.y, code=gradient_codes.frc()).gradient(problem.w, loss=lambda X, y, w: np.sin(w))
