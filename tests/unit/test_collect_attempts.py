"""What becomes of one attempt: a value, an error with kind and reason, or the end of the round."""

from dataclasses import replace

import numpy as np
import pytest

from serverless_gc.errors import ConfigError, InvokeError, ProtocolMismatch
from serverless_gc.invoke import SimulatedInvoker
from serverless_gc.invoke.base import Invoker
from serverless_gc.rounds.collect import Attempts
from serverless_gc.store import MemoryStore
from serverless_gc.types import TaskSpec
from serverless_gc.wire import Reply, Task, pack_block

SPEC = TaskSpec("1-3", slot=3, version=1)


class Answering(Invoker):
    """Answers with what a function makes of the task."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    async def invoke(self, task, payload, *, timeout):
        del task, timeout
        answer = self.answer(Task.from_bytes(payload))
        return answer.to_bytes() if isinstance(answer, Reply) else answer


def attempts(answer, store=None):
    store = store or MemoryStore()
    accepted = []

    def make_task(spec):
        return Task(
            run="mine",
            round=1,
            task_id=spec.task_id,
            slot=spec.slot,
            attempt=spec.attempt,
            kernel="matvec",
            blocks=("block",),
            result_key="result",
            store=store.url,
            operand=np.ones(2),
            inline_limit=1000,
        )

    invoker = answer if isinstance(answer, Invoker) else Answering(answer)
    made = Attempts(store, invoker, 10.0, make_task, lambda spec, value: accepted.append((spec.slot, value)))
    return made, accepted


def reply(task, status="ok", **fields):
    fields = {"value": np.arange(2.0)} | fields if status == "ok" else fields
    return replace(Reply(task.run, task.round, task.task_id, task.slot, task.attempt, status), **fields)


def error(task, kind, message="what the worker said"):
    return reply(task, "error", error={"kind": kind, "type": "SomeError", "message": message})


async def failure(answer):
    made, accepted = attempts(answer)
    with pytest.raises(InvokeError) as caught:
        await made.run(SPEC)
    assert accepted == []
    assert made.reasons == {caught.value.reason: 1}
    return caught.value


async def test_a_good_reply_is_accepted():
    made, accepted = attempts(reply)
    value, _ = await made.run(SPEC)
    assert value.tolist() == [0.0, 1.0]
    assert [slot for slot, _ in accepted] == [3]
    assert made.reasons == {}


@pytest.mark.parametrize(
    ("said", "kind", "retryable"),
    [
        ("function", "function", True),
        ("corrupt", "corrupt", True),
        ("missing", "missing", False),
        ("denied", "denied", False),
        ("unavailable", "unavailable", True),
        ("bad-reply", "bad-reply", True),
        ("of a later version", "function", True),
    ],
)
async def test_what_a_worker_reports_keeps_its_kind(said, kind, retryable):
    caught = await failure(lambda task: error(task, said))
    assert (caught.kind, caught.retryable, caught.may_have_run) == (kind, retryable, False)
    assert "SomeError: what the worker said" in str(caught)


async def test_a_missing_block_is_the_matter_of_its_slot_alone():
    store = MemoryStore()
    made, _ = attempts(SimulatedInvoker(store), store)
    with pytest.raises(InvokeError, match="block") as caught:
        await made.run(SPEC)
    assert (caught.value.kind, caught.value.retryable) == ("missing", False)
    await store.put("block", pack_block(np.eye(2)))
    value, _ = await made.run(SPEC)
    assert value.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("change", [{"run": "another"}, {"round": 2}, {"task_id": "1-4"}, {"attempt": 7}])
async def test_replies_to_something_else_are_stale(change):
    caught = await failure(lambda task: replace(reply(task), **change))
    assert (caught.kind, caught.reason) == ("bad-reply", "stale reply")


async def test_an_error_of_another_run_is_stale_too():
    caught = await failure(lambda task: replace(error(task, "function"), run="another"))
    assert caught.reason == "stale reply"


async def test_a_task_that_arrived_damaged_is_told_as_such():
    """The worker could not read whose task it was, so nothing of its reply matches; what it says is still the cause."""
    caught = await failure(lambda task: replace(error(task, "corrupt"), run="", round=-1, task_id="", slot=-1))
    assert caught.kind == "corrupt"
    assert "what the worker said" in str(caught)


async def test_bytes_that_are_no_reply():
    assert (await failure(lambda _: b"something else")).reason == "not a reply"


@pytest.mark.parametrize("kind", ["denied", "missing"])
async def test_what_the_service_refuses_ends_the_round(kind):
    def refuse(_):
        raise InvokeError("no such function nobody", kind=kind)

    made, _ = attempts(refuse)
    with pytest.raises(ConfigError, match="no such function nobody"):
        await made.run(SPEC)


async def test_a_worker_of_another_protocol_ends_the_round():
    """Whatever its reply's own version is: the worker says in it what it understands."""

    def other(task):
        return replace(error(task, "protocol", "the driver speaks 1, this worker 2: deploy again"), protocol=2)

    made, _ = attempts(other)
    with pytest.raises(ProtocolMismatch, match="deploy again"):
        await made.run(SPEC)
