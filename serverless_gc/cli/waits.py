"""Waiting policies by words of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from serverless_gc.errors import InputError
from serverless_gc.policies.waiting import PolicyFactory
from serverless_gc.types import WaitPolicy

__all__ = ["ANY_CODE", "GRADIENT_CODE", "Waiting", "parse_policy"]

Answers: TypeAlias = Literal["exact", "approximate", "stale"]

ANY_CODE = (
    *("wait-all", "backup", "until-decodable", "until-decodable:2", "speculate", "k-sync:{most}"),
    *("deadline:0.3", "cutoff", "cutoff-kalman"),
)
"""What ``all`` stands for with a data code; ``{most}`` is seven eighths of the workers, ``{half}`` half of them."""
GRADIENT_CODE = (*ANY_CODE, "until-error:0.25", "fresh-k:{most}", "k-async:{half}", "k-batch-async:{half}")
"""The same with a gradient code."""

_FULL_EVERY = 8
"""Rounds of which one is complete, for predictors that learn from those only."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One policy.

    Attributes
    ----------
    word
        What it was called.
    make
        A fresh one for a training: function from code to policy, each training's memory its own.
    answers
        What gradients it gives with a code that could give exact ones.
    """

    word: str
    make: Callable[[], PolicyFactory]
    answers: Answers = "exact"


def parse_policy(word: str) -> Waiting:
    """Return the policy that a word of the command line stands for.

    Raises
    ------
    InputError
        If the word is unknown or its number is missing or wrong.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> parse_policy("k-sync:3").make()(get("mds", n_workers=4, k=2)).k
    3
    """
    name, colon, number = word.partition(":")
    if not colon and name in _plain():
        return Waiting(word, _plain()[name])
    counted = _counted()
    if name in counted:
        kind, make, answers = counted[name]
        try:
            value = kind(number)
        except ValueError as exc:
            raise InputError(
                f"policy {word!r} needs a number behind its colon, as in k-sync:14 or deadline:0.3"
            ) from exc
        factory = make(value)
        return Waiting(word, lambda: factory, answers)
    known = [*_plain(), *(f"{each}:{'K' if kind is int else 'NUMBER'}" for each, (kind, _, _) in counted.items())]
    raise InputError(f"unknown policy {word!r}; choose some of {', '.join(known)}")


def _plain() -> Mapping[str, Callable[[], PolicyFactory]]:
    from serverless_gc.policies import Cutoff, EmpiricalWindow, KalmanLog, Speculate, UntilDecodable, WaitAll

    def cutoff(predictor: Any, full_every: int | None) -> PolicyFactory:
        # A round has a policy of its own, the forecast is of all rounds.
        return lambda _: Cutoff(predictor, full_every=full_every)

    return {
        "wait-all": lambda: lambda _: WaitAll(),
        "backup": lambda: lambda _: Speculate(WaitAll()),
        "until-decodable": lambda: UntilDecodable,
        "speculate": lambda: lambda code: Speculate(UntilDecodable(code)),
        "cutoff": lambda: cutoff(EmpiricalWindow(), _FULL_EVERY),
        "cutoff-kalman": lambda: cutoff(KalmanLog(), None),
    }


def _counted() -> Mapping[str, tuple[type[int | float], Callable[[Any], PolicyFactory], Answers]]:
    from serverless_gc.policies import Deadline, FreshK, KAsync, KBatchAsync, KSync, UntilDecodable, UntilError, WaitAll

    def same(kind: Callable[[int], WaitPolicy]) -> Callable[[int], PolicyFactory]:
        def make(number: int) -> PolicyFactory:
            policy = kind(number)
            return lambda _: policy

        return make

    def margin(number: int) -> PolicyFactory:
        if number < 0:
            raise InputError(f"until-decodable:K needs a K of at least 0, got {number}")
        return lambda code: UntilDecodable(code, margin=number)

    def deadline(seconds: float) -> PolicyFactory:
        Deadline(WaitAll(), seconds)  # raises
        return lambda _: Deadline(WaitAll(), seconds, "close")

    def error(most: float) -> PolicyFactory:
        if not most >= 0:
            raise InputError(f"until-error:NUMBER needs a number of at least 0, got {most}")
        return lambda code: UntilError(code, max_error=most)  # type: ignore[arg-type]  # of a gradient code

    return {
        "until-decodable": (int, margin, "exact"),
        "k-sync": (int, same(KSync), "exact"),
        "deadline": (float, deadline, "exact"),
        "until-error": (float, error, "approximate"),
        "fresh-k": (int, same(FreshK), "stale"),
        "k-async": (int, same(KAsync), "stale"),
        "k-batch-async": (int, same(KBatchAsync), "stale"),
    }
