"""The driver loop of training: rounds of an engine, each ending in one update of the model.

What a round waits for is the engine's policy; what becomes of the results is decided here, by plug-ins: transforms
correct or drop single results, the aggregator makes one update of them, the optimizer steps. Equal for a virtual and a
real clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.engine import Completion, Engine, Host, Progressed, RoundOutcome, VirtualHost, Watch
from serverless_gc.errors import DeadlineExceeded, InputError, NotDecodableError
from serverless_gc.types import (
    Aggregator,
    Array,
    Arrival,
    ArrivalTransform,
    FollowsSteps,
    Optimizer,
    TaskSpec,
    Update,
    UpdateContext,
)

__all__ = ["Step", "Training", "Work"]

Work: TypeAlias = Callable[[TaskSpec, Array], Awaitable[Completion]]
"""Does one attempt at a task with the model of the task's version; raises `InvokeError` when it fails.

A task with ``milestones`` delivers its messages stacked, ``(messages, ...)``: one more than it has milestones.
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One update.

    Attributes
    ----------
    version
        Of the model that the round opened with; ``x`` has the next one.
    x
        The new model, read-only.
    outcome
        How the round went; partial results of unfinished tasks count as results.
    update
        What the aggregator made of it; a direction of zeros if every result was dropped.
    staleness
        ``version - task.version`` of each consumed result, before transforms; results are taken by version and slot, so
        that the order of arrival changes nothing.
    """

    version: int
    x: Array
    outcome: RoundOutcome
    update: Update
    staleness: tuple[int, ...]


class Training:
    """Runs a model through rounds.

    Parameters
    ----------
    engine
        With the waiting policy.
    host
        Virtual or real.
    work
        Does a task.
    x
        First model; version ``engine.version``.
    aggregator, optimizer, transforms
        The plug-ins, `serverless_gc.types`. Those with a method ``after_step``, and the policy if it has one, are told
        of each step (`serverless_gc.types.FollowsSteps`).
    seed
        Of the generator that plug-ins may draw from.
    snapshots
        How many of the newest models are kept in any case, besides those that something in flight refers to.
    watch
        Finds partial results where the host has to look for them; their bodies are stacks of the new messages.

    Examples
    --------
    Each of two workers sends the gradient of ``x**2 / 2``:

    >>> import asyncio
    >>> from serverless_gc.engine import VirtualHost
    >>> from serverless_gc.policies import WaitAll
    >>> from serverless_gc.stragglers import Constant
    >>> class Mean:
    ...     def combine(self, arrivals, ctx):
    ...         return Update(np.mean([a.body for a in arrivals], axis=0))
    >>> class Halve:
    ...     def init(self, x):
    ...         return None
    ...
    ...     def step(self, x, update, state, t):
    ...         return x - 0.5 * update.direction, state
    >>> async def work(task, x):
    ...     return Completion(x)
    >>> training = Training(
    ...     Engine(WaitAll(), n_slots=2), VirtualHost(Constant(1.0)), work, np.array([8.0]),
    ...     aggregator=Mean(), optimizer=Halve(),
    ... )
    >>> async def run():
    ...     return [float(step.x[0]) async for step in training.steps(3)]
    >>> asyncio.run(run())
    [4.0, 2.0, 1.0]
    """

    def __init__(
        self,
        engine: Engine,
        host: Host,
        work: Work,
        x: Array,
        *,
        aggregator: Aggregator,
        optimizer: Optimizer,
        transforms: Sequence[ArrivalTransform] = (),
        seed: int = 0,
        snapshots: int = 1,
        watch: Watch | None = None,
    ) -> None:
        if snapshots < 1:
            raise InputError(f"snapshots must be at least 1, got {snapshots}")
        self.engine = engine
        self.host = host
        self.aggregator = aggregator
        self.optimizer = optimizer
        self.transforms = tuple(transforms)
        self.rng = np.random.default_rng(seed)
        self.snapshots = snapshots
        self._work = work
        self._watch = watch
        self._done: dict[str, Completion] = {}  # of tasks in flight that deliver bit by bit
        self.x = _frozen(x)
        self.state: Any = optimizer.init(self.x)
        self._models: dict[int, Array] = {engine.version: self.x}

    def model_at(self, version: int) -> Array:
        """Return the model of a version that something in flight, or buffered, still refers to.

        Raises
        ------
        InputError
            If the version was forgotten or is to come: see ``snapshots``.
        """
        if version not in self._models:
            raise InputError(f"no model of version {version} is kept; kept are {sorted(self._models)}")
        return self._models[version]

    async def steps(self, rounds: int) -> AsyncIterator[Step]:
        """Run rounds, yielding each update as it is made.

        Raises
        ------
        DeadlineExceeded, NotDecodableError
            If a round was aborted: its deadline passed, or nothing more could come.
        """
        for _ in range(rounds):
            yield await self._step()

    def in_flight(self) -> tuple[dict[str, Any], dict[int, Array]] | None:
        """Return what is in flight between two steps, as JSON types, and the models that it refers to.

        Only a virtual host can say; plug-ins with a memory of their own (`serverless_gc.stateful.Stateful`) are not
        told. None where it cannot be said.
        """
        host, engine = self.host, self.engine.state_dict()
        if not isinstance(host, VirtualHost) or engine is None:
            return None
        told = {
            "engine": engine,
            "flights": host.flights(self.engine),
            "now": host.now,
            "generator": dict(self.rng.bit_generator.state),
        }
        return told, {version: x for version, x in self._models.items() if version != self.engine.version}

    def take_up(self, told: Mapping[str, Any], models: Mapping[int, Array]) -> None:
        """Go on with what `in_flight` told, also after a way through JSON; before the first step.

        Raises
        ------
        InputError
            If the engine is at another version, or the host is not virtual.
        """
        host = self.host
        if not isinstance(host, VirtualHost):
            raise InputError("what was in flight can be taken up on a virtual clock only: real attempts have ended")
        shift = host.now - told["now"]
        tasks = self.engine.load_state_dict(told["engine"], shift=shift)
        flights = [(task, attempt, start + shift, seconds) for task, attempt, start, seconds in told["flights"]]
        host.carry_on(self.engine, tasks, flights)
        self.rng.bit_generator.state = told["generator"]
        self._models.update({version: _frozen(x) for version, x in models.items()})

    async def close(self) -> None:
        """Void what the policy kept in flight."""
        await self.host.close(self.engine)

    async def _step(self) -> Step:
        version = self.engine.version

        async def execute(task: TaskSpec) -> Completion:
            done = await self._work(task, self.model_at(task.version))
            if task.milestones:
                self._done[task.task_id] = done
            return done

        outcome = await self.host.run(self.engine, execute, watch=self._watch)
        if outcome.error is not None:
            kind = DeadlineExceeded if outcome.error == "deadline" else NotDecodableError
            raise kind(f"update {version} was given up: {outcome.reason}", failures=dict(outcome.failures))
        # Sums are rounded in one order, whatever the order of arrival.
        here = (*outcome.arrivals, *self._unfinished(outcome))
        arrivals = sorted(here, key=lambda arrival: (arrival.task.version, arrival.task.slot))
        staleness = tuple(version - arrival.task.version for arrival in arrivals)
        update = self._aggregate(arrivals, version, outcome.t_close)
        x, self.state = self.optimizer.step(self.x, update, self.state, version)
        before, self.x = self.x, _frozen(x)
        self._models[version + 1] = self.x
        for plug_in in (*self.transforms, self.aggregator, self.engine.policy):
            if isinstance(plug_in, FollowsSteps):
                plug_in.after_step(before, self.x, update)
        self._forget(version + 1)
        return Step(version, self.x, outcome, update, staleness)

    def _unfinished(self, outcome: RoundOutcome) -> list[Arrival]:
        """Make one result of what each unfinished task published."""
        parts: dict[str, list[Progressed]] = {}
        for part in outcome.partials:
            parts.setdefault(part.task.task_id, []).append(part)
        return [
            Arrival(
                published[0].task,
                outcome.t_open,
                outcome.t_close,
                work_done=float(sum(len(part.messages) for part in published)),
                body=np.concatenate([self._messages(part) for part in published]),
            )
            for published in parts.values()
        ]

    def _messages(self, part: Progressed) -> Array:
        if part.body is not None:
            return np.asarray(part.body)
        # A virtual host says only when messages are there; the work was done at the first of them.
        return np.asarray(self._done[part.task.task_id].body)[list(part.messages)]

    def _aggregate(self, arrivals: Sequence[Arrival], version: int, t: float) -> Update:
        ctx = UpdateContext(self.x, version, t, self.rng, self.model_at)
        kept = [a for a in (self._transformed(arrival, ctx) for arrival in arrivals) if a is not None]
        if not kept:  # the version advances all the same, so that no policy can wait for ever
            return Update(np.zeros_like(self.x), n_eff=0.0)
        return self.aggregator.combine(kept, ctx)

    def _transformed(self, arrival: Arrival | None, ctx: UpdateContext) -> Arrival | None:
        for transform in self.transforms:
            if arrival is None:
                return None
            arrival = transform(arrival, ctx)
        return arrival

    def _forget(self, current: int) -> None:
        """Keep the newest models, and those that tasks in flight or results in the buffer were made for."""
        view = self.engine.view
        flying = [flight.task for flight in view.in_flight()]
        self._done = {task.task_id: self._done[task.task_id] for task in flying if task.task_id in self._done}
        needed = {task.version for task in flying}
        needed.update(arrival.task.version for arrival in view.buffer)
        needed.update(range(current + 1 - self.snapshots, current + 1))
        self._models = {version: x for version, x in self._models.items() if version in needed}


def _frozen(x: Array) -> Array:
    """Return a read-only copy: workers, plug-ins and the caller share it."""
    x = np.array(x, copy=True)
    x.setflags(write=False)
    return x
