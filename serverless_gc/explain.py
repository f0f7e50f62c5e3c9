"""What to tell the user: why a round has no answer, and what made it slow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

from serverless_gc.codes.base import Code
from serverless_gc.engine import RoundOutcome
from serverless_gc.errors import ConfigError, DeadlineExceeded, NotDecodableError, ServerlessGCError

__all__ = ["undecodable", "waves"]


def undecodable(code: Code, arrived: Collection[int], outcome: RoundOutcome, logs_hint: str = "") -> ServerlessGCError:
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
    """
    tracker = code.tracker()
    for number in arrived:
        tracker.add(number)
    missing = tracker.missing()
    shown = ", ".join(map(str, missing[:16])) + (", ..." if len(missing) > 16 else "")
    causes = [f"{count}x {why}" for why, count in Counter(outcome.failures.values()).most_common(5)]
    results = outcome.counts.used + outcome.counts.surplus
    silent = code.n_workers - results - len(outcome.failures)
    if silent > 0:
        causes.append(f"{silent}x no reply")
    said = (
        f"{results} of {code.n_workers} results arrived within {outcome.duration:.1f} s of submission; "
        f"{len(missing)} of {code.k} blocks cannot be reconstructed ({shown}). "
        f"Causes: {'; '.join(causes) or 'none reported'}."
    )
    counts = outcome.counts
    if counts.failed and counts.failed == counts.failures.get("denied", 0):
        advice = "The function's role may not read or write the bucket: `serverless-gc doctor` prints what it needs."
        return ConfigError(" ".join(filter(None, (said, advice, logs_hint))))
    if outcome.error == "deadline":
        advice = (
            "Likely: functions killed for memory or time, throttled, or a deadline that is too short. Raise deadline=, "
            f"or use a code with more redundancy (n_workers={code.n_workers}, k={code.k})."
        )
        kind: type[NotDecodableError] = DeadlineExceeded
    else:
        advice = "Nothing more can arrive. Mend the causes, raise max_attempts=, or use a code with more redundancy."
        kind = NotDecodableError
    message = " ".join(filter(None, (said, advice, logs_hint)))
    return kind(message, missing=missing, failures=dict(outcome.failures))


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
