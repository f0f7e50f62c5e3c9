"""Which code, how much redundancy, how many workers: ranked by time or cost, with the reasons in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.errors import InputError, LimitError
from serverless_gc.plan.candidates import DEFAULT_CODES, candidates
from serverless_gc.plan.choice import GOALS, Choice, Goal, Refusal
from serverless_gc.plan.coding import decode_seconds, encode_seconds, predicted_error
from serverless_gc.plan.cost import price
from serverless_gc.plan.explain import Advice
from serverless_gc.plan.memory import Problem, Task, refusals
from serverless_gc.plan.methods import Method
from serverless_gc.plan.montecarlo import Independent
from serverless_gc.plan.platform import Platform
from serverless_gc.plan.predict import Prediction, default_delay, predict
from serverless_gc.stragglers import Trace

__all__ = ["recommend"]

_WORKERS = (8, 16, 32, 64, 128, 256)
_FIRST_LOOK, _CLOSE_LOOK = (100_000, 40), (1_000_000, 300)
"""Delays drawn and orders of arrival tried for each candidate, and for each finalist."""

_FINALISTS = 8
_PASSES: dict[Task, int] = {"gradient": 2, "matvec": 1}
_RARELY = 1e-3


def recommend(
    rows: int,
    cols: int,
    dtype: str = "float64",
    *,
    n_workers: int | None = None,
    budget: float | None = None,
    delay: Independent | Trace | None = None,
    measured_workers: int | None = None,
    goal: Goal = "mean time",
    tolerance: float | None = None,
    task: Task = "gradient",
    columns: int = 1,
    rounds: int = 100,
    codes: Iterable[str] = DEFAULT_CODES,
    platform: Platform | None = None,
    seed: int = 0,
) -> Advice:
    """Recommend a code, its redundancy and the number of workers.

    Every candidate's completion time is sampled from the law of delay: arrivals until the code can decode, the ramp
    in which the driver sends invocations, waves where the account runs fewer at once, and decoding. What does not fit
    the memory, the sizes or the time of a function is refused by the name of the limit.

    Parameters
    ----------
    rows, cols, dtype
        Of the matrix.
    n_workers
        How many workers; several numbers are tried if None.
    budget
        Dollars that one computation may cost.
    delay
        Law of one task (`serverless_gc.stragglers`), or a recorded `Trace`, of ``measured_workers`` workers that each
        multiply their equal share of the matrix once. By default estimated from the sizes.
    measured_workers
        See ``delay``; ``n_workers`` if None.
    goal
        ``"mean time"``, ``"p99"`` or ``"cost"``.
    tolerance
        Largest acceptable predicted relative error, of rounding or of an approximation; a code of which it is not known
        is left out, too.
    task
        ``"gradient"`` of a generalized linear loss, or ``"matvec"``.
    columns
        Columns of what multiplies the matrix.
    rounds
        How often the computation is repeated on the same encoded data: encoding and storing are shared by them.
    codes
        Names to choose from, ``"speculative"`` (uncoded with backup tasks) included.
    platform
        The function, its surroundings and prices.
    seed
        Of the sampled delays.

    Returns
    -------
    Advice
        Ranked choices; ``print`` it for the reasons.

    Raises
    ------
    InputError
        If an argument is wrong, or nothing is within the budget or the tolerance.
    LimitError
        If nothing fits; names the limits.

    Examples
    --------
    >>> import serverless_gc as sgc
    >>> law = sgc.stragglers.parse_law("shifted-exponential:shift=1,rate=1")
    >>> advice = sgc.recommend(100_000, 500, n_workers=32, delay=law, task="matvec", codes=["uncoded", "mds"])
    >>> advice.best.name, advice.best.code.n_workers, advice.best.code.k < 32
    ('mds', 32, True)
    """
    problem = Problem(rows=rows, cols=cols, dtype=dtype, columns=columns, task=task)
    where = Platform() if platform is None else platform
    _check(goal, n_workers, budget, tolerance, rounds, delay, measured_workers)
    search = _Search(problem, where, goal, budget, rounds, seed)
    sizes = _WORKERS if n_workers is None else (n_workers,)
    for n in sizes:
        law = default_delay(problem, n, where) if delay is None else delay
        unit = 1.0 / (measured_workers or n)
        search.look(candidates(codes, n, task), law.law() if isinstance(law, Trace) else law, unit)
    return search.advice(tolerance)


def _check(
    goal: str,
    n_workers: int | None,
    budget: float | None,
    tolerance: float | None,
    rounds: int,
    delay: object,
    measured_workers: int | None,
) -> None:
    if goal not in GOALS:
        raise InputError(f"goal must be one of {', '.join(map(repr, GOALS))}, got {goal!r}")
    for name, value in (("n_workers", n_workers), ("measured_workers", measured_workers), ("rounds", rounds)):
        if value is not None and (value != int(value) or value < 1):
            raise InputError(f"{name} must be an integer of at least 1, got {value!r}")
    for name, amount in (("budget", budget), ("tolerance", tolerance)):
        if amount is not None and not amount > 0:
            raise InputError(f"{name} must be positive, got {amount}")
    if delay is not None and not isinstance(delay, (Independent, Trace)):
        raise InputError(f"delay must be a law of independent times or a Trace, got {delay!r}")
    if delay is not None and n_workers is None and measured_workers is None:
        raise InputError("with delay= and no n_workers, say by measured_workers= among how many the matrix was shared")


class _Search:
    """Looks at many candidates briefly, and at the best of them closely."""

    def __init__(
        self, problem: Problem, platform: Platform, goal: Goal, budget: float | None, rounds: int, seed: int
    ) -> None:
        self._problem, self._platform, self._goal = problem, platform, goal
        self._budget = math.inf if budget is None else budget
        self._rounds, self._seed = rounds, seed
        self._seen: list[tuple[float, Method, Independent, float]] = []
        self._refused: list[Refusal] = []

    def look(self, methods: Iterable[Method], delay: Independent, unit: float) -> None:
        for method in methods:
            broken = refusals(self._problem, method.code, self._platform)
            broken += self._too_slow(method, delay, unit)
            if broken:
                self._refuse(method, *broken[0])
                continue
            found = self._sampled(method, delay, unit, _FIRST_LOOK)
            if found is not None:
                quick = self._choice(method, found, encode=0.0, decode=0.0, error=None)
                if self._affordable(method, quick):
                    self._seen.append((quick.by(self._goal), method, delay, unit))

    def _too_slow(self, method: Method, delay: Independent, unit: float) -> tuple[tuple[str, str], ...]:
        limit = self._platform.limits.function_timeout
        factor = 2.0 if method.code.kind == "gradient" else 1.0
        work = float(method.work(unit).max()) * factor
        drawn = delay.totals(work, np.random.default_rng(self._seed), 4000)
        share = float((drawn > limit).mean())
        if share <= _RARELY:
            return ()
        longest = float(np.quantile(drawn, 1 - _RARELY))
        why = (
            f"{share:.1%} of its tasks would take longer than the {limit:g} s that a function may run (one in a "
            f"thousand {longest:.0f} s): take more workers"
        )
        return (("function_timeout", why),)

    def _refuse(self, method: Method, limit: str, why: str) -> None:
        self._refused.append(Refusal(method.name, method.code.n_workers, method.code.k, limit, why))

    def _sampled(self, method: Method, delay: Independent, unit: float, look: tuple[int, int]) -> Prediction | None:
        draws, orders = look
        closely = look is _CLOSE_LOOK
        found = predict(
            method,
            self._problem,
            self._platform,
            delay,
            unit,
            draws=draws,
            orders=orders,
            seed=self._seed,
            closely=closely,
        )
        if found.failed > _RARELY:
            why = f"in {found.failed:.1%} of the rounds not even all results suffice: take fewer blocks"
            self._refuse(method, "decodability", why)
            return None
        return found

    def _choice(
        self, method: Method, found: Prediction, *, encode: float, decode: float, error: float | None
    ) -> Choice:
        code, seconds = method.code, found.seconds + decode
        once = encode / self._rounds
        cost = price(
            self._problem,
            code,
            self._platform,
            billed=[float(one.billed.mean()) for one in found.rounds],
            issued=[code.n_workers + one.copies for one in found.rounds],
            awaited=[float(one.awaited.mean()) for one in found.rounds],
            seconds=float(seconds.mean()),
            rounds=self._rounds,
        )
        return Choice(
            name=method.name,
            parameters=method.parameters,
            code=code,
            mean=float(seconds.mean()) + once,
            p99=float(np.quantile(seconds, 0.99)) + once,
            standard_error=float(seconds.std()) / math.sqrt(seconds.size),
            cost=cost,
            awaited=found.awaited,
            work=found.work,
            encode=encode,
            decode=decode,
            error=error,
        )

    def advice(self, tolerance: float | None) -> Advice:
        self._seen.sort(key=lambda entry: entry[0])
        looked_at = len(self._seen) + len(self._refused)
        finalists = _one_of_each(self._seen)
        choices = []
        for _, method, delay, unit in finalists:
            choice = self._closely(method, delay, unit, tolerance)
            if choice is not None:
                choices.append(choice)
        if not choices:
            raise self._nothing_left()
        choices.sort(key=lambda choice: choice.by(self._goal))
        return Advice(
            problem=self._problem,
            goal=self._goal,
            choices=tuple(choices),
            refused=tuple(self._refused),
            looked_at=looked_at,
            alone=_PASSES[self._problem.task] * self._problem.nbytes / self._platform.scan_bytes_per_second,
        )

    def _closely(self, method: Method, delay: Independent, unit: float, tolerance: float | None) -> Choice | None:
        error = predicted_error(self._problem, method.code)
        if tolerance is not None and (error is None or error > tolerance):
            self._refuse(method, "tolerance", self._inaccurate(method.code, error))
            return None
        found = self._sampled(method, delay, unit, _CLOSE_LOOK)
        if found is None:
            return None
        encode = encode_seconds(self._problem, method.code)
        decode = decode_seconds(self._problem, method.code)
        choice = self._choice(method, found, encode=encode, decode=decode, error=error)
        return choice if self._affordable(method, choice) else None

    def _inaccurate(self, code: Code, error: float | None) -> str:
        if error is None:
            return "how accurate its answers are is not known"
        remedy = "it is a code for approximate answers" if not code.exact else "take fewer workers or another code"
        if code.exact and self._problem.itemsize < np.dtype(np.float64).itemsize:
            remedy = "take float64"
        return f"answers have a relative error of up to {error:.1e}: {remedy}"

    def _affordable(self, method: Method, choice: Choice) -> bool:
        total = choice.cost.total
        if total > self._budget:
            self._refuse(method, "budget", f"a computation costs ${total:.3g}, the budget is ${self._budget:.3g}")
        return total <= self._budget

    def _nothing_left(self) -> InputError:
        limits = {one.limit for one in self._refused}
        first = {one.limit: one for one in reversed(self._refused)}
        said = "; ".join(
            f"{limit}: {one.name} with {one.n_workers} workers: {one.why}" for limit, one in sorted(first.items())
        )
        if not self._refused:
            return InputError(
                "none of the codes exists for these numbers of workers: try another number, or other codes"
            )
        kind = LimitError if limits - {"budget", "tolerance", "decodability"} else InputError
        return kind(f"nothing fits {self._problem.rows} x {self._problem.cols} {self._problem.dtype}. {said}")


def _one_of_each(
    seen: Sequence[tuple[float, Method, Independent, float]],
) -> list[tuple[float, Method, Independent, float]]:
    """Return the best sizes over all, the best of each name, and so always the baselines."""
    chosen = list(seen[:_FINALISTS])
    names = {entry[1].name for entry in chosen}
    for entry in seen[_FINALISTS:]:
        if entry[1].name not in names:
            names.add(entry[1].name)
            chosen.append(entry)
    return chosen
