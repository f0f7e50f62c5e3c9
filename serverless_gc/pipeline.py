"""One round, from operand to decoded product: the file to read first.

Data flows one way::

    encode -> store -> invoke -> (work) -> collect -> decode -> update

Encoding happened before (`serverless_gc.encode`), the update is the caller's (`serverless_gc.session`); `run_round` is
what lies between. What is computed is a `Job`. The engine decides when to stop waiting, the host runs it on a real or a
virtual clock, the invoker runs one attempt somewhere, the collector keeps what arrived, the code decodes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from serverless_gc import observe
from serverless_gc.codes.accuracy import check_accuracy
from serverless_gc.codes.base import Certificate, Certifier, Code
from serverless_gc.codes.received import default_tolerance
from serverless_gc.engine import (
    AbortRound,
    Action,
    Arrived,
    CloseRound,
    Completion,
    Engine,
    Event,
    Failed,
    Issue,
    OnEvent,
    RoundOutcome,
    milestones,
)
from serverless_gc.errors import DecodeError, InvokeError, NotDecodableError, WrongResult
from serverless_gc.observe import Report
from serverless_gc.observe.timeline import spans_of
from serverless_gc.rounds.collect import INHERENT, Attempts, Collector
from serverless_gc.rounds.explain import approximation, undecodable, waves
from serverless_gc.rounds.jobs import Job
from serverless_gc.rounds.operands import ENVELOPE, publish_operand
from serverless_gc.rounds.partials import Collected, PartsWatch
from serverless_gc.rounds.resources import Resources
from serverless_gc.types import Array, TaskSpec, WaitPolicy
from serverless_gc.wire import Task

__all__ = ["run_round"]

INTERRUPT_PATIENCE = 0.5
"""Seconds that an interrupted call waits for its cancel mark to be stored; the user waits for the call to end."""

SINGLE_SLACK = 1e4
"""How much further surplus results may disagree when blocks are stored in single precision."""

CLEAR_SECONDS = 5.0
"""Seconds between two clean-ups of what workers stored for rounds that were over."""


@dataclass(slots=True)
class _Round:
    """What all attempts of one round share."""

    number: int
    job: Job
    operand_key: str
    cancel_key: str
    collector: Collector
    attempts: Attempts
    delivered: set[int]
    watch: PartsWatch | None


async def run_round(res: Resources, job: Job, make_policy: Callable[[Code], WaitPolicy]) -> tuple[Array, Report]:
    """Compute what the job says, without waiting for stragglers.

    Parameters
    ----------
    res
        The session's store, invoker and host.
    job
        What each worker computes from which blocks, and what the decoded blocks make.
    make_policy
        Code to waiting policy; called once a round.

    Returns
    -------
    array, report
        The answer, and what the round cost.

    Raises
    ------
    NotDecodableError, DeadlineExceeded
        If too few results arrived (in time); the message names blocks and causes.
    DecodeError
        If the predicted error of the answer exceeds the session's tolerance, or what `check_accuracy` allows.
    ConfigError, ProtocolMismatch
        At once, if bucket, function or credentials are refused, or the deployed worker is of another version.
    """
    code = job.code
    policy = make_policy(code)  # which may refuse a parameter: nothing is stored yet
    before = res.service_counts()
    published = time.perf_counter()
    rnd = await _publish(res, job)  # store

    engine = Engine(
        policy,
        code.n_workers,
        max_attempts=res.max_attempts,
        seed=rnd.number,
        version=rnd.number,
        milestones=(lambda slot: milestones(len(code.placement(slot)), job.publish)) if rnd.watch else None,
    )

    async def execute(spec: TaskSpec) -> Completion:  # (work) and collect
        if rnd.watch is not None:
            rnd.watch.expect(spec)
        try:
            value, stats = await rnd.attempts.run(spec)
        except InvokeError as exc:
            if rnd.watch is not None and (exc.may_have_run or exc.kind == "function"):
                await rnd.watch.look()  # what it left behind may decide, also if it was the last one
            raise
        rnd.delivered.add(spec.slot)
        return Completion(value, stats=stats)

    begun = time.perf_counter()
    try:
        with _announced(res, rnd) as on_event:
            outcome = await res.host.run(engine, execute, on_event=on_event, watch=rnd.watch)  # invoke
    except asyncio.CancelledError as exc:
        await _interrupted(res, rnd, engine, exc)
        raise
    finally:
        res.chore(_retire(res, rnd))
    # What landed behind the deciding result is counted as given up, so it is not used either.
    slots = [arrival.task.slot for arrival in outcome.arrivals if not job.stays(arrival.task.slot)]
    consumed = [message for slot in slots for message in code.placement(slot)]
    consumed += [code.placement(part.task.slot)[place] for part in outcome.partials for place in part.messages]
    if outcome.error or not consumed:
        kept = [message for slot in rnd.delivered if job.stays(slot) for message in code.placement(slot)]
        inherent = bool(rnd.attempts.reasons) and set(rnd.attempts.reasons) <= INHERENT
        error = undecodable(code, [*rnd.collector.values, *kept], outcome, res.logs_hint, inherent=inherent)
        if rnd.attempts.traceback:
            error.add_note(f"The first failure of the loss, on its worker:\n{rnd.attempts.traceback}")
        raise error

    decoding = time.perf_counter()
    blocks, certificate = _decode_without_wrong(rnd, consumed, res.tolerance)  # decode
    answer = job.finish(blocks)
    ended = time.perf_counter()
    warmed, res.warmed = res.warmed, 0

    return answer, _report(
        rnd,
        outcome,
        certificate,
        admitted=res.invoker.admitted,
        elapsed=(begun - published) + outcome.duration + (ended - decoding),
        decode_seconds=ended - decoding,
        warmed=warmed,
        simulated=res.simulated,
        requests=res.store_requests(),
        **{name: after - before[name] for name, after in res.service_counts().items()},
    )


def _decode_without_wrong(rnd: _Round, consumed: Sequence[int], tolerance: float | None) -> tuple[Array, Certificate]:
    """Decode; if the results contradict one another and all but one agree, leave that one out and say so."""
    try:
        return _decode(rnd, consumed, tolerance)
    except WrongResult as exc:
        code, values = rnd.job.code, rnd.collector.values
        suspects = code.suspects({message: values[message] for message in consumed})
        if not suspects:
            raise
        senders = [slot for slot in range(code.n_workers) if set(code.placement(slot)) & set(suspects)]
        who = f"worker{'s' if len(senders) > 1 else ''} {', '.join(map(str, senders))}"
        exc.add_note(f"All results but that of {who} agree, but they do not suffice without it.")
        try:
            blocks, certificate = _decode(rnd, [i for i in consumed if i not in suspects], tolerance)
        except NotDecodableError:
            raise exc from None
    note = f"the result of {who} contradicts all others, which agree; it was left out"
    return blocks, replace(certificate, warning="; ".join(filter(None, (certificate.warning, note))))


def _decode(rnd: _Round, consumed: Sequence[int], tolerance: float | None) -> tuple[Array, Certificate]:
    """Decode, knowing what the code cannot: how large the summed terms were, and how the blocks were rounded.

    What has lost its digits is refused, whether the caller gave a tolerance or not.
    """
    blocks, certificate = _decoded(rnd, consumed, tolerance)
    if tolerance is None:
        coarsest = max(rnd.job.stored, rnd.collector.dtype, key=lambda dtype: np.finfo(dtype).eps)
        check_accuracy(rnd.job.code, certificate, len(consumed), coarsest)
    return blocks, certificate


def _decoded(rnd: _Round, consumed: Sequence[int], tolerance: float | None) -> tuple[Array, Certificate]:
    job, collector = rnd.job, rnd.collector
    coarser = float(np.finfo(job.stored).eps / np.finfo(collector.dtype).eps)
    if coarser <= 1:
        return collector.decode(consumed, tolerance, scale=job.scale, **job.decoding)
    # Blocks stored in single precision: their rounding, not that of the arithmetic, is what a decode amplifies.
    try:
        blocks, certificate = collector.decode(consumed, None, scale=job.scale * SINGLE_SLACK, **job.decoding)
    except WrongResult:
        if not isinstance(job.code, Certifier):
            raise
        # Surplus results disagree by about what is amplified, and none of them need be wrong.
        slack = 10 * job.code.certify(consumed, job.stored).predicted_error / default_tolerance(collector.dtype)
        if slack <= SINGLE_SLACK:
            raise
        blocks, certificate = collector.decode(consumed, None, scale=job.scale * slack, **job.decoding)
    predicted = certificate.predicted_error * coarser
    if tolerance is not None and predicted > tolerance:
        raise DecodeError(
            f"blocks stored in single precision would give a relative error of about {predicted:.1e}, the tolerance is "
            f"{tolerance:.1e}: encode with dtype=np.float64, or wait for more results",
            predicted=predicted,
            tolerance=tolerance,
        )
    return blocks, replace(certificate, predicted_error=predicted)


@contextmanager
def _announced(res: Resources, rnd: _Round) -> Iterator[OnEvent | None]:
    """Show the round's progress, if the session has somewhere to show it."""
    progress, number, code = res.progress, rnd.number, rnd.job.code
    if progress is None:
        yield None
        return

    def on_event(event: Event | Action, t: float) -> None:
        match event:
            case Issue(task):
                progress(observe.TaskIssued(t, number, task.slot, task.attempt))
            case Arrived(task):
                progress(observe.TaskArrived(t, number, task.slot, task.attempt))
            case Failed(task, kind, message):
                progress(observe.TaskFailed(t, number, task.slot, task.attempt, kind, message))
            case CloseRound() | AbortRound():
                progress(observe.RoundClosed(t, number))
            case _:
                pass

    progress(observe.RoundOpened(0.0, number, code.n_workers, code.k, f"{rnd.job.label} ({code.name})"))
    watch = asyncio.get_running_loop().create_task(progress.watch())
    try:
        yield on_event
    finally:
        watch.cancel()


async def _publish(res: Resources, job: Job) -> _Round:
    """Store the operand if it is large, check the sizes, and lay out where results go."""
    number = next(res.rounds)
    base = f"{res.prefix}/round/{number:07d}"
    message_bytes = math.prod(job.shape) * job.dtype.itemsize
    inline_reply = res.limits.reply_bytes * 3 // 4 - ENVELOPE
    operand = await publish_operand(res.store, res.limits, job, f"{base}/operand")
    collector = Collector(job.code, job.shape, job.dtype)
    alive_key = await res.alive()

    def make_task(spec: TaskSpec) -> Task:
        n_messages = len(job.code.placement(spec.slot))
        reply_bytes = message_bytes * n_messages
        return Task(
            run=res.run,
            round=number,
            task_id=spec.task_id,
            slot=spec.slot,
            attempt=spec.attempt,
            kernel=job.kernel,
            blocks=tuple(job.blocks(spec)),
            results=tuple(f"{base}/{slot:05d}" for slot in job.inputs(spec)),
            result_key=f"{base}/{spec.slot:05d}",
            store=res.store.url,
            **operand.fields(spec.slot),
            inline_limit=reply_bytes if reply_bytes <= inline_reply and not job.stays(spec.slot) else 0,
            cancel_key=f"{base}/cancel",
            alive_key=alive_key,
            params={**job.params(spec), **({"publish": job.publish, "n_messages": n_messages} if job.publish else {})},
        )

    def accept(spec: TaskSpec, value: Array) -> None:
        collector.file_all(job.code.placement(spec.slot), value)

    attempts = Attempts(
        res.store,
        res.invoker,
        res.attempt_timeout,
        make_task,
        accept,
        stays=job.stays,
        bytes_up=operand.uploaded,
        presign=res.presign,
    )
    watch = None
    if job.publish:
        watch = PartsWatch(res.store, f"{base}/", Collected(collector), make_task, job.publish, attempts.counts)
    return _Round(number, job, operand.key, f"{base}/cancel", collector, attempts, set(), watch)


async def _retire(res: Resources, rnd: _Round) -> None:
    """Tell workers that are still at it to stop, and remove what the round stored."""
    base = rnd.cancel_key.removesuffix("cancel")
    late = len(rnd.delivered) < rnd.job.code.n_workers
    if late:
        await res.store.put(rnd.cancel_key, b"")
    keys = {f"{base}{slot:05d}" for slot in range(rnd.job.code.n_workers)}
    if rnd.operand_key:
        keys.add(rnd.operand_key)
    if rnd.watch is not None:
        keys.update([info.key async for info in res.store.list(base) if info.key != rnd.cancel_key])
    await res.discard(keys)
    if rnd.watch is not None:
        await res.clear_late(base if late else "", every=CLEAR_SECONDS)


async def _interrupted(res: Resources, rnd: _Round, engine: Engine, exc: BaseException) -> None:
    """Say on the exception what may still be billed, and leave the cancel mark."""
    running = engine.last.counts.voided if engine.last else 0
    exc.add_note(
        f"{running} invocation{'s' if running != 1 else ''} of round {rnd.number} "
        f"{'were' if running != 1 else 'was'} running when the call was interrupted and may still be billed; "
        "they stop at their next look at the cancel mark."
    )
    # In a task of its own: clients take a cancellation of the task they run in for their own, even an old one.
    mark = res.chore(res.store.put(rnd.cancel_key, b""))
    await asyncio.wait([mark], timeout=INTERRUPT_PATIENCE)
    if mark.done() and (error := mark.exception()):
        exc.add_note(f"The cancel mark could not be stored ({error}): workers run to their end.")


def _report(
    rnd: _Round,
    outcome: RoundOutcome,
    certificate: Certificate,
    *,
    admitted: int | None,
    elapsed: float,
    decode_seconds: float,
    warmed: int,
    simulated: bool,
    requests: tuple[int, int],
    throttles: int,
    retries: int,
    slow_downs: int,
) -> Report:
    """Put the round's counts together."""
    counts, seen = outcome.counts, rnd.attempts.counts
    return Report.of(
        counts,
        elapsed=elapsed,
        certificate=certificate,
        awaited=counts.used + counts.surplus,
        retries=counts.retries + retries,
        throttles=throttles,
        recovered=seen["recovered"],
        stale=seen["stale"],
        refused_writes=seen["refused_writes"],
        slow_downs=slow_downs + seen["slow_downs"],
        by_reference=seen["by_reference"],
        reads=requests[0] + seen["reads"],
        writes=requests[1] + seen["writes"],
        reasons=dict(rnd.attempts.reasons),
        code=rnd.job.code.name,
        n_workers=rnd.job.code.n_workers,
        k=rnd.job.code.k,
        bytes_up=rnd.attempts.bytes_up,
        bytes_down=seen["bytes_down"],
        decode_seconds=decode_seconds,
        warmed=warmed,
        simulated=simulated,
        spans=tuple(spans_of(outcome.records, rnd.number)),
        polls=rnd.watch.polls if rnd.watch else 0,
        decodable={rnd.number: outcome.t_close},
        notes=tuple(
            filter(
                None,
                (
                    approximation(rnd.job.code, certificate, counts.used),
                    certificate.warning,
                    waves(admitted, rnd.job.code.n_workers),
                ),
            )
        ),
    )
