"""What goes wrong on purpose: steps by number of the attempt, or drawn from the task that the payload holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from serverless_gc.errors import InputError, InvokeError
from serverless_gc.inject import Faults, Injection, Stragglers
from serverless_gc.invoke.envelope import decode_reply
from serverless_gc.testing.lambda_endpoint import Step, error_step
from serverless_gc.types import TaskSpec
from serverless_gc.wire import FrameError, Task

__all__ = ["Doing", "Plan"]

_RAISED = Step(
    action="reply",
    headers={"X-Amz-Function-Error": "Unhandled"},
    body=json.dumps({"errorType": "RuntimeError", "errorMessage": "injected fault", "stackTrace": []}),
)
_THROTTLED = error_step(
    429, "TooManyRequestsException", "Rate Exceeded.", Reason="ConcurrentInvocationLimitExceeded", times=0
)


@dataclass(frozen=True, slots=True)
class Doing:
    """What to do with one attempt: a step, and how many times longer than it does the function shall take."""

    step: Step = field(default_factory=Step)
    stretch: float = 1.0


class Plan:
    """Decides about attempts. The same attempts get the same faults, in whatever order they come.

    Parameters
    ----------
    steps
        Per function: number of the attempt, from 1, to step. They go before what is drawn.
    inject
        Stragglers and faults for payloads that are tasks of this package, drawn from slot, round and attempt.
    """

    def __init__(self, steps: Mapping[str, Mapping[int, Step]], inject: Iterable[Injection] = ()) -> None:
        self._steps = {function: dict(of_function) for function, of_function in steps.items()}
        self._inject = tuple(inject)
        self._numbers: dict[str, int] = {}
        self._throttled: dict[tuple[str, int, int], int] = {}

    def set(self, function: str, steps: Mapping[int, Step]) -> None:
        """Replace a function's steps; its next attempt is number 1."""
        self._steps[function] = dict(steps)
        self._numbers[function] = 0

    def next(self, function: str, payload: bytes) -> Doing:
        """Decide about a function's next attempt."""
        number = self._numbers.get(function, 0) + 1
        self._numbers[function] = number
        step = self._steps.get(function, {}).get(number)
        if step is not None:
            return Doing(step)
        task = _task_in(payload) if self._inject else None
        return Doing() if task is None else self._drawn(task)

    def _drawn(self, task: Task) -> Doing:
        doing = Doing()
        for item in self._inject:
            if isinstance(item, Stragglers):
                factor = item.factor(task.slot, task.round, task.attempt)
                doing = Doing(Step(delay=doing.step.delay + factor * item.base), doing.stretch * factor)
        for item in self._inject:
            step = self._fault(item, task) if isinstance(item, Faults) else None
            if step is not None:
                return Doing(step, doing.stretch)
        return doing

    def _fault(self, faults: Faults, task: Task) -> Step | None:
        def hits(name: str) -> bool:
            return faults.hits(name, task.slot, task.round)

        key = (task.task_id, task.round, task.slot)
        if hits("throttle") and self._throttled.get(key, 0) < faults.throttle_times:
            self._throttled[key] = self._throttled.get(key, 0) + 1
            return _THROTTLED
        if hits("drop"):
            return Step(action="hang")
        if task.attempt < faults.fail_times and hits("fail"):
            return _RAISED
        return Step(action="lose") if hits("lose_reply") else None


def _task_in(payload: bytes) -> Task | None:
    """Find the task in a payload, if it is one."""
    nobody = TaskSpec("", 0, 0)
    try:
        return Task.from_bytes(decode_reply(nobody, payload))
    except (InvokeError, FrameError, InputError):
        return None
