"""Whole fits by encoded optimization: one of four iterations, each round answered by whoever is fast enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from serverless_gc.background import blocking, homed
from serverless_gc.codes.encoded.code import EncodedCode
from serverless_gc.codes.encoded.frames import deviation
from serverless_gc.data.encoded import EncodedData, encode_columns, read_whole, run_iteration, steps_of
from serverless_gc.encode import as_source, scan
from serverless_gc.errors import InputError
from serverless_gc.observe import Report
from serverless_gc.optim.encoded import (
    AskSteps,
    Iterate,
    Iteration,
    coordinate_descent,
    lbfgs,
    proximal_gradient,
    safe_step,
)
from serverless_gc.optim.proximal import soft_threshold
from serverless_gc.prepare import check_number, check_operand, check_targets, find_loss
from serverless_gc.session import Session, current_session, default_session
from serverless_gc.types import Array, FloatArray

__all__ = ["EncodedFit", "encoded_least_squares", "encoded_least_squares_async"]

Method = Literal["lbfgs", "gradient", "proximal", "coordinate"]


CURVATURE = {"logistic": 0.25}
"""Largest second derivative of a loss with respect to ``X w``, where it is not 1."""

MOST_DEVIATION = 0.8
"""A set of answers farther from a tight frame does not make line searches more careful still."""


@dataclass(frozen=True, slots=True)
class EncodedFit:
    """What a fit found.

    Attributes
    ----------
    w
        The last iterate, ``(p,)``.
    path
        All iterates, the last one included.
    report
        Account of all rounds together.
    """

    w: FloatArray
    path: Sequence[FloatArray]
    report: Report


async def encoded_least_squares_async(
    X: Any,
    y: Any,
    *,
    method: Method = "lbfgs",
    rounds: int = 30,
    l1: float = 0.0,
    l2: float = 0.0,
    loss: str = "squared",
    n_workers: int = 16,
    frame: str = "hadamard",
    beta: float = 2.0,
    wait: int | None = None,
    seed: int = 0,
    session: Session | None = None,
    backend: str | None = None,
    on_step: Callable[[Iterate], None] | None = None,
) -> EncodedFit:
    """Fit a linear model on encoded data, using in each round the workers that answer first.

    Parameters
    ----------
    X
        ``(n, p)``, dense and real.
    y
        ``(n,)`` targets.
    method
        ``"lbfgs"``; ``"gradient"``: gradient descent; ``"proximal"``: the same with ``l1``; ``"coordinate"``: block
        coordinate descent on encoded columns, which tends to the exact solution whoever straggles.
    rounds
        Steps to make.
    l1, l2
        Weights of ``||w||_1`` (``"proximal"`` only) and ``0.5 * ||w||**2``.
    loss
        ``"squared"``; ``"coordinate"`` also takes ``"logistic"`` (labels 0 and 1) and ``"huber"``.
    n_workers, frame, beta, seed
        Of the code, `serverless_gc.codes.encoded.code.EncodedCode`.
    wait
        Workers to wait for in each round; nine tenths by default.
    session, backend
        Where to run.
    on_step
        Told every step.

    Returns
    -------
    EncodedFit

    Raises
    ------
    InputError
        If an argument is wrong, or does not go with the method.
    NotDecodableError, DeadlineExceeded
        If fewer than ``wait`` workers answered (in time).

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> y = X @ [1.0, -2.0, 0.5]
    >>> sgc.encoded_least_squares(X, y, rounds=12, n_workers=8, wait=6).w.round(4)
    array([ 1. , -2. ,  0.5])
    """
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}")
    for name, value in (("l1", l1), ("l2", l2)):
        if not 0 <= check_number(name, value) < np.inf:
            raise InputError(f"{name} must be a finite number of at least 0, got {value!r}")
    if method not in {"lbfgs", "gradient", "proximal", "coordinate"}:
        raise InputError(f"method must be 'lbfgs', 'gradient', 'proximal' or 'coordinate', got {method!r}")
    if l1 and method != "proximal":
        raise InputError(f"l1 goes with method='proximal', got method={method!r}")
    if method == "coordinate" and l2:
        raise InputError("l2 does not go with method='coordinate'")
    if loss != "squared" and (method != "coordinate" or loss not in {"logistic", "huber"}):
        raise InputError(f"loss={loss!r} needs method='coordinate' and one of 'squared', 'logistic', 'huber'")
    chosen = session or current_session() or default_session(backend)
    code = EncodedCode(n_workers, n_workers, frame=frame, beta=beta, seed=seed, wait=wait)
    path: list[FloatArray] = []
    costs: list[Report] = []

    def note(step: Iterate, cost: Report) -> None:
        path.append(np.array(step.w))
        costs.append(cost)
        if on_step is not None:
            on_step(step)

    fit = _Fit(chosen, code, method, rounds, l1, l2, loss, note)
    await homed(fit.by_columns if method == "coordinate" else fit.by_rows)(X, y)
    report = costs[0]
    for cost in costs[1:]:
        report = report.merge(cost)
    return EncodedFit(path[-1], tuple(path), report)


@dataclass(frozen=True, slots=True)
class _Fit:
    """One fit."""

    session: Session
    code: EncodedCode
    method: Method
    rounds: int
    l1: float
    l2: float
    loss: str
    note: Callable[[Iterate, Report], None]

    @property
    def wait(self) -> int:
        """Answers awaited in each round."""
        return self.code.awaited or self.code.n_workers

    async def by_rows(self, X: Any, y: Any) -> None:
        """Step on encoded rows."""
        data = await self.session.encode_async(X, y, code=self.code)
        assert isinstance(data, EncodedData)  # noqa: S101 - what this code gives
        try:
            iteration = self._iteration(data, read_whole(as_source(X)))
            await run_iteration(iteration, self.rounds, lambda ask: data.answer(ask, self.wait), self.note)
        finally:
            await data.close_async()

    def _iteration(self, data: EncodedData, X: FloatArray) -> Iteration:
        m, beta, start = self.code.n_workers, data.frame.beta, np.zeros(data.n_cols)
        if self.method == "lbfgs":
            # One look at a typical set of answers says by how much a line search may overshoot.
            e = min(deviation(data.frame, range(self.wait), X), MOST_DEVIATION)
            return lbfgs(start, n_workers=m, beta=beta, backoff=(1 - e) / (1 + e), l2=self.l2)
        step = safe_step(float(np.linalg.norm(X, 2)) ** 2 + self.l2, m, self.wait)
        prox = soft_threshold(self.l1) if self.method == "proximal" else None
        return proximal_gradient(start, step=step, n_workers=m, beta=beta, prox=prox, l2=self.l2)

    async def by_columns(self, X: Any, y: Any) -> None:
        """Step on encoded columns, a block of coordinates a worker."""
        source = as_source(X)
        scanned = scan(source)
        matrix = read_whole(source)
        targets, loss = _targets(y, len(matrix)), find_loss(self.loss)
        try:
            loss.check((len(matrix),), targets, None)
        except ValueError as exc:
            raise InputError(str(exc)) from exc
        name = f"{scanned.fingerprint[:16]}-columns"
        parts, frames = await encode_columns(self.session, matrix, self.code, name)
        beta = self.code.frame_for(matrix.shape[1]).beta
        step = 1 / (CURVATURE.get(self.loss, 1.0) * float(np.linalg.norm(matrix, 2)) ** 2 * beta)
        largest = max(len(frame) for frame in frames.values())

        def slope(z: Array) -> Array:
            return loss.residual(z, targets, None)

        async def answer(ask: AskSteps) -> tuple[dict[int, Array], Report]:
            return await steps_of(parts, ask, self.wait, len(matrix), largest)

        iteration = coordinate_descent(len(matrix), frames, slope, step=step)
        try:
            await run_iteration(iteration, self.rounds, answer, self.note)
        finally:
            await parts.remove()


def _targets(y: Any, n: int) -> Array:
    targets = check_targets(y, n)
    if targets is None or targets.ndim != 1:
        raise InputError(f"y must have shape ({n},) for encoded optimization")
    return check_operand(targets, n, "y")


encoded_least_squares = blocking(encoded_least_squares_async)
