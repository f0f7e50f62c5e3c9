"""A worker that adds other workers' results to its own, and one that sends a gradient along one direction."""

import numpy as np
import pytest

from serverless_gc.store.memory import MemoryStore
from serverless_gc.wire import CsrBlock, Reply, Task, pack_block
from serverless_gc.worker import entry, kernels

X, Y, W = np.arange(8.0).reshape(4, 2), np.ones(4), np.array([0.5, -1.0])
GRADIENT = X.T @ (X @ W - Y)


def test_messages_of_others_are_added_with_their_weights():
    params = {"messages": [[7, [0], [2.0]]], "added": [0.5, -1.0]}
    others = [np.array([10.0, 20.0]), np.array([1.0, 2.0])]
    made = kernels.get("gradient")([X, Y, *others], W, params)
    np.testing.assert_allclose(made, 2 * GRADIENT + [4.0, 8.0])


def test_a_worker_without_a_part_of_its_own_adds_all_the_same():
    params = {"messages": [[7, [], []]], "added": [3.0]}
    made = kernels.get("gradient")([np.array([1.0, 2.0])], W, params)
    np.testing.assert_allclose(made, [3.0, 6.0])


@pytest.mark.parametrize("other", [np.ones(3), CsrBlock(np.ones(1), np.zeros(1, int), np.array([0, 1]), (1, 2))])
def test_what_cannot_be_added_is_named(other):
    with pytest.raises(ValueError, match=r"cannot be added to one of shape \(2,\)"):
        kernels.get("gradient")([X, Y, other], W, {"added": [1.0]})


def test_parts_alike_are_summed_before_they_are_folded():
    blocks = [X[:1], Y[:1], X[1:], Y[1:]]
    rows = [[1.0, 0.0], [0.0, 1.0], [0.6, -0.8]]
    for row in rows:
        params = {"messages": [[0, [0, 1], [row]]], "alike": True, "fold": 2}
        np.testing.assert_allclose(kernels.get("gradient")(blocks, W, params), [GRADIENT @ row])
        same = {"messages": [[0, [0, 1], [row, row]]], "fold": 2}
        np.testing.assert_allclose(kernels.get("gradient")(blocks, W, same), [GRADIENT @ row])
    with pytest.raises(ValueError, match="message 0 combines 2 parts with 2 coefficients"):
        kernels.get("gradient")(blocks, W, {"messages": [[0, [0, 1], [[1.0, 0.0]] * 2]], "alike": True, "fold": 2})


class Here:
    """A task on a store in memory, and what another worker left there."""

    def __init__(self):
        self.store = MemoryStore()
        self.blobs = self.store.blobs()
        for key, block in (("x", X), ("y", Y)):
            self.blobs.put(key, b"".join(pack_block(block)))
        self.task = Task(
            "run",
            3,
            "3-0",
            0,
            0,
            "gradient",
            ("x", "y"),
            "r0",
            self.store.url,
            W,
            params={"added": [2.0]},
            results=("r1",),
        )

    def leave(self, **changes):
        fields = {"run": "run", "round": 3, "value": np.array([1.0, 2.0]), **changes}
        reply = Reply(task_id="3-1", slot=1, attempt=0, status="ok", result_key="r1", **fields)
        self.blobs.put("r1", reply.to_bytes())

    def run(self):
        return Reply.from_bytes(entry.run(self.task.to_bytes(), lambda _: self.blobs, warm=entry.Warm.of(1 << 20)))


def test_results_are_read_from_the_store_and_one_of_another_round_is_refused():
    here = Here()
    assert here.run().error["kind"] == "missing"
    here.leave()
    reply = here.run()
    assert (reply.status, reply.value) == ("ok", None)
    stored = Reply.from_bytes(here.blobs.get("r0"))
    np.testing.assert_allclose(stored.value, np.add(GRADIENT, [2.0, 4.0]))
    assert stored.stats["non_finite"] == 0
    for wrong in ({"round": 2}, {"run": "other"}, {"value": None}):
        here.leave(**wrong)
        reply = here.run()
        assert reply.error["kind"] == "corrupt"
        assert "'r1' is no result of round 3" in reply.error["message"]


def test_tasks_travel_with_the_results_they_combine():
    task = Here().task
    assert Task.from_bytes(task.to_bytes()).results == ("r1",)
