"""What to tell the user: why a round has no answer, and what made it slow."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from serverless_gc.codes.base import Certificate, Code
from serverless_gc.codes.gradient.base import EXACT, GradientCode
from serverless_gc.engine import RoundOutcome
from serverless_gc.errors import ConfigError, DeadlineExceeded, NotDecodableError, ServerlessGCError

__all__ = ["approximation", "undecodable", "waves"]

PLACE = " on partition "
"""Where a worker's message about a user's function begins to say where."""


def undecodable(
    code: Code, arrived: Collection[int], outcome: RoundOutcome, logs_hint: str = "", *, inherent: bool = False
) -> ServerlessGCError:
    """Turn an aborted round into the error that names blocks, causes and what to do.

    Parameters
    ----------
    code
        The code of the round.
    arrived
        Messages that arrived.
    outcome
        How the round ended.
    logs_hint
        Where the workers' logs are, in a sentence.
    inherent
        Whether every failure lies in the user's function or numbers, so that no redundancy helps.
    """
    tracker = code.tracker()
    for number in arrived:
        tracker.add(number)
    missing = tracker.missing()
    here = set(arrived)
    n_results = sum(here.issuperset(code.placement(slot)) for slot in range(code.n_workers))
    blocks, lost = ("partitions", "counted") if code.target == "sum" else ("blocks", "reconstructed")
    causes = _counted(outcome.failures.values())
    started = {record.slot for record in outcome.records} or set(range(code.n_workers))
    unstarted = [slot for slot in range(code.n_workers) if slot not in started]
    if unstarted:
        causes.append(f"{len(unstarted)}x not started for want of results to combine (workers {_listed(unstarted)})")
    silent = code.n_workers - n_results - len(outcome.failures) - len(unstarted)
    if silent > 0 and outcome.error == "deadline":
        causes.append(f"{silent}x no reply")
    elif silent > 0:
        causes.append(f"{silent}x not awaited: could not make up for what is lost")
    said = (
        f"{n_results} of {code.n_workers} results arrived within {outcome.duration:.1f} s of submission; "
        + (
            f"{len(missing)} of {code.k} {blocks} cannot be {lost} ({_listed(missing)}). "
            if missing
            else f"all {code.k} {blocks} can be {lost} from them, but the wait policy wants more results. "
        )
        + f"Causes: {'; '.join(causes) or 'none reported'}."
    )
    counts = outcome.counts
    if counts.failed and counts.failed == counts.failures.get("denied", 0):
        advice = "The function's role may not read or write the bucket: `serverless-gc doctor` prints what it needs."
        return ConfigError(" ".join(filter(None, (said, advice, logs_hint))))
    kind: type[NotDecodableError]
    if inherent and outcome.error != "deadline":
        advice = "Every worker would meet the same: mend it and call again."
        kind = NotDecodableError
    elif outcome.error == "deadline":
        advice = (
            "Likely: functions killed for memory or time, throttled, or a deadline that is too short. Raise deadline=, "
            f"or use a code with more redundancy (n_workers={code.n_workers}, k={code.k})."
        )
        kind = DeadlineExceeded
    else:
        advice = "Nothing more can arrive. Mend the causes, raise max_attempts=, or use a code with more redundancy."
        kind = NotDecodableError
    if isinstance(code, GradientCode) and arrived and not inherent:
        advice += " Or take the best approximation from what arrived: on_undecodable='approximate'."
    message = " ".join(filter(None, (said, advice, logs_hint)))
    return kind(message, missing=missing, failures=dict(outcome.failures))


def _counted(failures: Iterable[str]) -> list[str]:
    """Tell each cause once, with how often and where it was met first; the five most frequent ones.

    Examples
    --------
    >>> _counted(["function: the loss raised KeyError: 3, on partition 0 (rows 0..2) for message 0",
    ...           "function: the loss raised KeyError: 3, on partition 1 (rows 3..5) for message 1"])
    ['2x function: the loss raised KeyError: 3, first on partition 0 (rows 0..2) for message 0']
    """
    places: dict[str, list[str]] = {}
    for failure in failures:
        why, _, where = failure.partition(PLACE)
        places.setdefault(why.rstrip(",;"), []).append(where)
    most = sorted(places.items(), key=lambda entry: -len(entry[1]))[:5]
    return [f"{len(where)}x {why}{_place(where)}" for why, where in most]


def _place(where: Sequence[str]) -> str:
    return f", {'first ' if len(where) > 1 else ''}{PLACE.strip()} {where[0]}" if where[0] else ""


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:16])) + (", ..." if len(numbers) > 16 else "")


def approximation(code: Code, certificate: Certificate, n_results: int) -> str:
    """Say that an answer is approximate, and by how much; nothing if it is exact.

    Examples
    --------
    >>> from serverless_gc.codes.gradient import LinearGradientCode
    >>> approximation(LinearGradientCode([[1, 0], [0, 1]]), Certificate("lstsq", error=1.0), 1)
    'the gradient is approximate: 1 of 2 results leave a squared error of 1 in how often partitions are counted, 0.5...'
    """
    if certificate.error <= EXACT * code.k:
        return ""
    return (
        f"the gradient is approximate: {n_results} of {code.n_workers} results leave a squared error of "
        f"{certificate.error:.3g} in how often partitions are counted, {certificate.error / code.k:.3g} per partition. "
        "It misses the gradient by at most the root of that times the largest singular value of the matrix of all "
        "partition gradients"
    )


def waves(admitted: int | None, n_workers: int) -> str:
    """Say what a small account costs in time; nothing if it admitted all workers at once.

    Examples
    --------
    >>> waves(10, 64)
    'the account admitted 10 invocations at once, fewer than the 64 workers: a round takes 7 waves instead of one...'
    >>> waves(None, 64)
    ''
    """
    if admitted is None or admitted >= n_workers:
        return ""
    return (
        f"the account admitted {admitted} invocations at once, fewer than the {n_workers} workers: a round takes "
        f"{math.ceil(n_workers / admitted)} waves instead of one. Raise it: aws service-quotas "
        "request-service-quota-increase --service-code lambda --quota-code L-B99A9384 --desired-value 1000"
    )
