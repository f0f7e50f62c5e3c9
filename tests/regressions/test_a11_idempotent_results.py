"""A11: an original and its copy write different results; exactly one is used, the same one for every reader."""

import threading

import numpy as np
import pytest

from serverless_gc.store import LocalStore, MemoryStore
from serverless_gc.wire import Reply, Task, pack_block
from serverless_gc.worker import entry


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_one_result_wins_for_everybody(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    blobs = store.blobs()
    blobs.put("block", pack_block(np.eye(4)))
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(100):
        answers = {}
        barrier = threading.Barrier(2)

        def attempt(number, trial=trial, answers=answers, barrier=barrier):
            task = Task(
                run="r",
                round=trial,
                task_id=f"{trial}-5",
                slot=5,
                attempt=number,
                kernel="matvec",
                blocks=("block",),
                result_key=f"out/{trial}",
                store=store.url,
                operand=np.full(4, float(number)),
                inline_limit=1000,
            )
            barrier.wait()
            answers[number] = Reply.from_bytes(bytes(b"".join([entry.run(task.to_bytes(), lambda _: blobs)])))

        order = rng.permutation(2)
        threads = [threading.Thread(target=attempt, args=(int(i),)) for i in order]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        stored = Reply.from_bytes(blobs.get(f"out/{trial}"))
        assert stored.value[0] in (0.0, 1.0)
        for reply in answers.values():
            assert reply.status == "ok"
            np.testing.assert_array_equal(reply.value, stored.value)
        assert sum(reply.duplicate for reply in answers.values()) == 1
        refused += 1
    assert refused == 100
