"""Tasks of stochastic trainings: gradients on mini-batches, local steps, and what their workers are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.codes.gradient.ignore import IgnoreStragglersCode
from serverless_gc.data.gradient_call import stored_function
from serverless_gc.engine import Completion, Counts, RoundOutcome, VirtualHost
from serverless_gc.errors import InvokeError
from serverless_gc.fitting.gradient_tasks import GradientTasks
from serverless_gc.fitting.placing import Placing
from serverless_gc.fitting.schemes import Scheme
from serverless_gc.observe import Report
from serverless_gc.policies import Groups, has_changed
from serverless_gc.policies.compress import described
from serverless_gc.policies.triggers import LazyTrigger
from serverless_gc.rounds.collect import OVERFLOW
from serverless_gc.rounds.jobs import Job, StoredObjective
from serverless_gc.rounds.partials import PartsWatch
from serverless_gc.rounds.resources import Resources
from serverless_gc.types import Array, Compressor, TaskSpec
from serverless_gc.wire.sampled import Sampled

__all__ = ["SampleTasks", "Sampling"]


@dataclass(frozen=True, slots=True)
class Compression:
    """A compressor, and how tasks name it.

    Attributes
    ----------
    compressor
        The driver's half.
    named
        Name and parameters, or the stamp of one of the user's.
    key
        Store key of one of the user's; empty for one that every worker knows.
    """

    compressor: Compressor
    named: Mapping[str, Any]
    key: str = ""

    @classmethod
    async def of(cls, compressor: Compressor, res: Resources) -> Compression:
        """Store a compressor if workers do not know it.

        Raises
        ------
        InputError, LimitError
            If it cannot be pickled, or is too large.
        """
        known = described(compressor)
        if known is not None:
            return cls(compressor, {"name": known[0], "params": known[1]})
        return cls(compressor, *await stored_function(res, compressor, "compressor"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What the tasks of a training have in common.

    Attributes
    ----------
    objective
        The loss on the stored partitions.
    placing
        Which of them a task is about.
    shape
        Of the model.
    batch
        Rows of a mini-batch; 0 for all rows of the task's partitions.
    l2
        Adds ``0.5 * l2 * ||w||**2``.
    rate
        Step length of local steps, by the version.
    value
        Whether the loss is wanted: True, or ``"if-given"``.
    compression
        What is done to results on the wire; None for nothing.
    """

    objective: StoredObjective
    placing: Placing
    shape: tuple[int, ...]
    batch: int
    l2: float
    rate: Callable[[int], float]
    value: bool | str
    compression: Compression | None = None


class SampleTasks(GradientTasks):
    """Does the tasks of a scheme, through the session's invoker and store.

    Parameters
    ----------
    res
        The session's.
    scheme
        What tasks do.
    sampling
        And on what.
    n
        Number of slots.
    """

    def __init__(self, res: Resources, scheme: Scheme, sampling: Sampling, n: int) -> None:
        d = int(np.prod(sampling.shape))
        self._extra = {"": 0, "sum_of_squares": d, "fisher": d * d}[scheme.stats]
        self._messages = scheme.units if scheme.task == "mini-batches" else 1
        self._scheme = scheme
        self._sampling = sampling
        job = Job(
            code=IgnoreStragglersCode(n, n),
            label="gradient",
            kernel="sampled",
            blocks=self._blocks,
            shape=(d,),
            dtype=np.dtype(np.float64),
            params=self._params,
            stored=np.dtype(np.float64),
            finish=lambda total: total,
        )
        super().__init__(res, job)
        self._trigger: LazyTrigger | None = None
        policy = scheme.rule
        if isinstance(policy, Groups) and policy.trigger is not None and policy.trigger.site == "worker":
            self._trigger = policy.trigger
            self._inline = -1  # later tasks will read the models of this one
        self._late: list[tuple[int, list[str]]] = []  # reports so far, and what voided attempts may still store
        self._marks: list[tuple[float, str]] = []  # when they were put
        self._voided: set[int] = set()  # versions whose tasks were given up, and whose workers do not know it yet
        self._reports = 0
        self._watch: PartsWatch | None = None
        if self._messages > 1 and not self._virtual:
            self._watch = PartsWatch(res.store, f"{self._base}/", self, self._task, 1, self._attempts.counts)

    @property
    def watch(self) -> PartsWatch | None:
        """What looks for partial results, where somebody has to."""
        return self._watch

    @property
    def traceback(self) -> str:
        """What the worker said of the first failure of a user's function; empty if there was none."""
        return self._attempts.traceback

    @property
    def overflowed(self) -> bool:
        """Whether a worker met numbers beyond all bounds."""
        return self._attempts.reasons[OVERFLOW] > 0

    def samples(self, outcome: RoundOutcome) -> float:
        """Return how many rows are behind what a round used."""
        used = sum(arrival.work_done for arrival in outcome.arrivals if arrival.body is not None)
        used += sum(len(part.messages) for part in outcome.partials)
        return used * (self._sampling.batch if self._scheme.task == "mini-batches" else 1.0)

    @property
    def _virtual(self) -> bool:
        return isinstance(self._res.host, VirtualHost)

    async def _attempt(self, task: TaskSpec) -> tuple[Array, Mapping[str, Any]]:
        watch = self._watch
        if watch is not None:
            watch.expect(task)
        try:
            return await super()._attempt(task)
        except asyncio.CancelledError:
            self._voided.add(task.version)
            self._late.append((self._reports, [self._key(task), *self._part_keys(task)]))
            raise
        except InvokeError as error:
            if watch is not None and (error.may_have_run or error.kind == "function"):
                await watch.look()  # what it left behind counts
            raise
        finally:
            if watch is not None:
                watch.forget(task)

    def _part_keys(self, task: TaskSpec) -> list[str]:
        return [f"{self._key(task)}.{first:04d}" for first in range(self._messages - 1)]

    # -- tasks ---------------------------------------------------------------------------------------

    def _blocks(self, spec: TaskSpec) -> list[str]:
        sampling, placing = self._sampling, self._sampling.placing
        keys = sampling.objective.blocks(placing.hands[placing.hand(spec)])
        if sampling.compression is not None and sampling.compression.key:
            keys.append(sampling.compression.key)
        if self._may_be_silent(spec):
            keys.append(self._points[spec.payload["sent"], 0][1])
        return keys

    def _may_be_silent(self, spec: TaskSpec) -> bool:
        """Whether the worker decides if its gradient is worth sending; else it sends it in any case."""
        told = spec.payload
        return self._trigger is not None and not has_changed(0.0, 0.0, told["age"], told["max_age"])

    def _needed(self, point: tuple[int, int]) -> bool:
        return super()._needed(point) or (self._trigger is not None and point[0] in self._trigger.sent.values())

    def _params(self, spec: TaskSpec) -> Mapping[str, Any]:
        sampling, scheme, placing = self._sampling, self._scheme, self._sampling.placing
        hand = placing.hand(spec)
        share = placing.share(hand) if scheme.balance and scheme.task != "local-sgd" else 1.0
        objective = {**sampling.objective.params(placing.hands[hand]), "value": sampling.value}
        params: dict[str, Any] = {
            "node": 0,
            "shape": sampling.shape,
            "objective": objective,
            "scale": share / placing.rows[hand],
            "l2": sampling.l2,
            "batch": sampling.batch,
            "seed": spec.seed,
            "units": scheme.units,
            "extra": scheme.stats,
        }
        if scheme.task == "local-sgd":
            params["lr"] = sampling.rate(spec.version)
        if sampling.compression is not None:
            params["compressor"] = sampling.compression.named
        if self._may_be_silent(spec):
            params["threshold"] = spec.payload["threshold"]
        if self._messages > 1:
            params |= {"publish": 1, "n_messages": self._messages}
        if spec.stop_at is not None and self._virtual:
            params["units"] = int(spec.work)  # the virtual clock has said how many fit
        elif spec.stop_at is not None:
            params["stop_at"] = time.time() + (spec.stop_at - self._res.host.now)
        return params

    def _mark(self, version: int) -> str:
        return f"{self._base}/closed/{version:07d}"

    # -- results -------------------------------------------------------------------------------------

    def knows(self, spec: TaskSpec, places: range) -> bool:  # noqa: ARG002 - an inbox that keeps nothing
        """Whether messages are here already; an inbox's, see `serverless_gc.rounds.partials.Inbox`."""
        return False

    def file(self, spec: TaskSpec, first: int, value: Array) -> Array:  # noqa: ARG002 - as above
        """Return the gradients in some messages."""
        return self._stacked([self._opened(row) for row in value])

    def _completed(self, task: TaskSpec, x: Array, value: Array, stats: Mapping[str, Any]) -> Completion:
        placing = self._sampling.placing
        told: dict[str, Any] = {**stats, "rows": placing.rows[placing.hand(task)]}
        if self._scheme.task == "mini-batches":
            opened = [self._opened(row) for row in (value if value.ndim == 2 else value[None])]
            losses = [sampled.loss for sampled in opened if sampled.loss is not None]
            told |= {"loss": float(np.mean(losses))} if losses else {}
            return Completion(self._stacked(opened), float(len(opened)), told)
        sampled = self._opened(value)
        if sampled.loss is not None:
            told["loss"] = sampled.loss
        if sampled.body is None:
            return Completion(None, sampled.samples, told)
        if self._extra:
            told[self._scheme.stats] = sampled.extra.reshape(
                (x.size, x.size) if self._scheme.stats == "fisher" else x.shape
            )
        return Completion(self._decoded(sampled.body, task, x), sampled.samples, told)

    def _stacked(self, messages: Sequence[Sampled]) -> Array:
        return np.stack([self._shaped(sampled.body) for sampled in messages])

    def _decoded(self, body: Array | bytes, task: TaskSpec, x: Array) -> Array:
        """Return the body as it was before it was compressed, nearly."""
        compression = self._sampling.compression
        if compression is None:
            return self._shaped(body)
        found = self._shaped(compression.compressor.decode(body, task.seed) if isinstance(body, bytes) else body)
        return x + found if self._scheme.task == "local-sgd" else found

    def _opened(self, value: Array) -> Sampled:
        try:
            return Sampled.unpack(value, self._extra)
        except ValueError as error:
            raise _unfit(error) from error

    def _shaped(self, body: Any) -> Array:
        """Return a body in the model's shape."""
        try:
            return np.asarray(body, dtype=np.float64).reshape(self._sampling.shape)
        except ValueError as error:
            raise _unfit(error) from error

    # -- what is over --------------------------------------------------------------------------------

    def report(self, counts: Counts, outcome: RoundOutcome | None = None) -> Report:
        """Account for the tasks that ended; what they stored is deleted, and workers that were given up are told."""
        self._reports += 1
        now, patience = time.monotonic(), self._res.attempt_timeout
        for version in self._voided:
            self._marks.append((now, self._mark(version)))
            self._res.chore(self._res.store.put(self._mark(version), b""))
        self._voided = set()
        # Given-up workers store what they have up to the next look at the mark: it is cleared a while after.
        old = [keys for when, keys in self._late if when < self._reports - 2]
        self._late = [(when, keys) for when, keys in self._late if when >= self._reports - 2]
        self._over += [key for keys in old for key in keys]
        self._over += [key for when, key in self._marks if now - when > patience]
        self._marks = [(when, key) for when, key in self._marks if now - when <= patience]
        if outcome is not None and self._messages > 1:
            self._over += [key for arrival in outcome.arrivals for key in self._part_keys(arrival.task)]
        return super().report(counts, outcome)

    async def close(self) -> None:
        """Tell workers that are still at it to stop, and delete what is left but the marks that say so."""
        store = self._res.store
        told = {key for _, key in self._marks} | {self._mark(version) for version in self._voided}
        for version in self._voided:
            await store.put(self._mark(version), b"")
        self._voided = set()
        keys = [info.key async for info in store.list(f"{self._base}/")]
        self._res.chore(self._res.discard([key for key in keys if key not in told]))
        for point in list(self._points):
            self._res.once.pop(self._points.pop(point)[1], None)


def _unfit(error: ValueError) -> InvokeError:
    return InvokeError(f"the result is not one of a stochastic task: {error}", kind="bad-reply")
