"""A recommendation, and its reasons in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from serverless_gc.plan.choice import Choice, Goal, Refusal
from serverless_gc.plan.memory import Problem
from serverless_gc.plan.prices import AS_OF

__all__ = ["Advice", "seconds_in_words"]

_TIE = 0.02

_ROUNDING = 1e-10
"""Relative errors below this need no word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to use, and why.

    Attributes
    ----------
    problem, goal
        What was asked.
    choices
        Finalists, the best first; the plain uncoded computation is always among them, if it fits.
    refused
        What does not fit.
    looked_at
        How many codes and sizes were compared.
    alone
        Seconds of one processor that has the matrix in its memory, by `Platform.scan_bytes_per_second`.
    """

    problem: Problem
    goal: Goal
    choices: tuple[Choice, ...]
    refused: tuple[Refusal, ...]
    looked_at: int
    alone: float

    @property
    def best(self) -> Choice:
        """The first of `choices`."""
        return self.choices[0]

    def explain(self) -> str:
        """Say in words what was chosen and why."""
        return _explained(self)

    def __str__(self) -> str:
        return self.explain()


def _explained(advice: Advice) -> str:
    """Say what was chosen, why, against what, and what was left out."""
    best = advice.best
    lines = [f"Use {_described(best)}.", *_reasons(best, advice)]
    lines += [_against(other, best, advice.goal) for other in _others(advice)]
    if advice.alone < best.mean:
        lines.append(
            f"One processor with the matrix in its memory takes about {seconds_in_words(advice.alone)}: your own "
            "machine is faster than any fan-out."
        )
    if above := [one.title for one in advice.choices if one.mean > one.p99]:
        lines.append(f"A mean above its p99 ({', '.join(above)}): less than one in 100 takes many times longer.")
    lines += _accuracy(advice)
    lines += _left_out(advice)
    lines.append(f"Prices as of {AS_OF}; {advice.looked_at} codes and sizes were looked at.")
    return "\n".join(lines)


def _described(choice: Choice) -> str:
    code = choice.code
    what = {"uncoded": "no code, waiting for all", "speculative": "no code, with backup copies of late tasks"}
    return f"{what.get(choice.name, choice.label)}, {code.n_workers} workers, {code.k} blocks"


def _reasons(best: Choice, advice: Advice) -> list[str]:
    n = best.code.n_workers
    late = n - best.awaited
    times = f"{seconds_in_words(best.mean)} on average, {seconds_in_words(best.p99)} in the worst of 100"
    money = f"${best.cost.total:.2g} (function time ${best.cost.compute:.2g})"
    lines = [f"One {advice.problem.task} takes {times}, and costs {money}."]
    if late >= 1:
        lines.append(
            f"A round waits for {best.awaited:.0f} of {n} results: the slowest {late:.0f} do not matter, at "
            f"{best.work:.2f} passes over the data."
        )
    if best.decode > _TIE * best.mean or best.encode > 1:
        decode, encode = seconds_in_words(best.decode), seconds_in_words(best.encode)
        lines.append(f"Decoding takes {decode} of it; encoding takes {encode} once.")
    if best.error is not None and best.error > _ROUNDING:
        what = "have" if best.code.exact else "are approximate, with"
        lines.append(f"Answers {what} a relative error of about {best.error:.0e}.")
    return lines


def _others(advice: Advice) -> list[Choice]:
    """List the baseline, the runner-up of another name, and the cheapest."""
    best = advice.best
    others = [choice for choice in advice.choices if choice.name != best.name]
    picked = (
        [c for c in others if c.name == "uncoded"][:1] + others[:1] + sorted(others, key=lambda c: c.cost.total)[:1]
    )
    return list(dict.fromkeys(picked))


def _against(other: Choice, best: Choice, goal: Goal) -> str:
    ratio = other.by(goal) / best.by(goal)
    word = {"mean time": "time on average", "p99": "time of the worst of 100", "cost": "cost"}[goal]
    close = " (no real difference)" if ratio < 1 + _TIE else ""
    dearer = other.cost.total / best.cost.total
    money = "" if goal == "cost" else f", at {dearer:.2f} times the cost"
    return (
        f"{other.title}: {ratio:.2f} times the {word}{close}{money}; {seconds_in_words(other.mean)}, "
        f"p99 {seconds_in_words(other.p99)}, ${other.cost.total:.2g}."
    )


def _accuracy(advice: Advice) -> list[str]:
    """Say of which other codes the answers are approximate, or their accuracy is not known."""
    lines = []
    approximate = [one for one in advice.choices[1:] if not one.code.exact and one.error is not None]
    if approximate:
        said = ", ".join(f"{one.title} {one.error:.0e}" for one in approximate)
        lines.append(f"Approximate answers, by their relative errors: {said}.")
    if unknown := [one.title for one in advice.choices if one.error is None]:
        lines.append(f"How accurate answers are is not known of: {', '.join(unknown)}.")
    return lines


def _left_out(advice: Advice) -> list[str]:
    counts = Counter(one.limit for one in advice.refused)
    first = {one.limit: one for one in reversed(advice.refused)}
    return [
        f"Refused for {limit}: {count}, such as {first[limit].name}({first[limit].n_workers}, {first[limit].k}): "
        f"{first[limit].why}."
        for limit, count in counts.most_common()
    ]


def seconds_in_words(seconds: float) -> str:
    """Return seconds with three digits, in the unit that needs no exponent.

    Examples
    --------
    >>> seconds_in_words(0.1), seconds_in_words(4e-7), seconds_in_words(12.0), seconds_in_words(1800.4)
    ('100 ms', '0.400 us', '12.0 s', '1,800 s')
    """
    if not seconds or seconds >= 999.5:
        return f"{seconds:,.0f} s"
    unit, size = next(
        ((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= 0.9995 * size), ("us", 1e-6)
    )
    return f"{seconds / size:#.3g}".rstrip(".") + f" {unit}"
