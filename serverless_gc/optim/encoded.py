"""Iterations on encoded data, with whichever workers answered: no decoding, no waiting for anybody in particular.

C. Karakus, Y. Sun, S. Diggavi, W. Yin, "Redundancy Techniques for Straggler Mitigation in Distributed Optimization and
Learning" (2018). Worker ``i`` holds ``S_i X, S_i y`` of a frame ``S`` with ``S.T @ S = beta * I``.

An iteration is a generator: it yields what it wants to know, is sent the answers of the workers that were fast enough,
and yields again; `Iterate` marks the end of a step. Whoever drives it decides where the work runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.lbfgs import curves_upwards, two_loops
from serverless_gc.optim.proximal import Prox
from serverless_gc.types import Array, FloatArray

__all__ = [
    "AskGradients",
    "AskNorms",
    "AskSteps",
    "Iterate",
    "Iteration",
    "coordinate_descent",
    "gradient_descent",
    "lbfgs",
    "proximal_gradient",
    "safe_step",
]


@dataclass(frozen=True, slots=True)
class AskGradients:
    """Send ``(S_i X).T @ (S_i X w - S_i y)``, shape of ``w``, for the workers that answer."""

    w: Array


@dataclass(frozen=True, slots=True)
class AskNorms:
    """Send ``||S_i X d||**2``, one number, for the workers that answer."""

    d: Array


@dataclass(frozen=True, slots=True)
class AskSteps:
    """Send ``u_i = (X S_i.T).T @ r`` and ``c_i = X S_i.T @ u_i`` for the workers that answer."""

    r: Array


@dataclass(frozen=True, slots=True)
class Iterate:
    """One step is done.

    Attributes
    ----------
    w
        The new point.
    step
        Step length used, 0 where a worker's answers gave no descent.
    arrived
        How many workers it used.
    """

    w: Array
    step: float
    arrived: int


Answers: TypeAlias = Mapping[int, Array]
Ask: TypeAlias = AskGradients | AskNorms | AskSteps | Iterate
Iteration: TypeAlias = Generator[Ask, Answers, None]


def safe_step(largest_eigenvalue: float, n_workers: int, wait: int) -> float:
    """Return the step length that is safe with a tight frame whoever answers.

    Parameters
    ----------
    largest_eigenvalue
        Of ``X.T @ X``.
    n_workers, wait
        Workers, and how many are waited for: the normalized Gram matrix of any ``wait`` of them is at most
        ``n_workers / wait``.

    Examples
    --------
    >>> safe_step(10.0, n_workers=32, wait=16)
    0.05
    """
    if not 1 <= wait <= n_workers:
        raise InputError(f"wait must be in 1..n_workers={n_workers}, got {wait}")
    if not largest_eigenvalue > 0:
        raise InputError(f"largest_eigenvalue must be positive, got {largest_eigenvalue}")
    return wait / (largest_eigenvalue * n_workers)


def _mean(answers: Answers, n_workers: int, beta: float) -> FloatArray:
    """Estimate the whole sum from the workers that answered: ``m / (q beta) * sum g_i``."""
    if not answers:
        raise InputError("no worker answered: an iteration needs at least one")
    total: FloatArray = np.sum([answers[i] for i in sorted(answers)], axis=0)
    return total * (n_workers / (len(answers) * beta))


def gradient_descent(w: Array, *, step: float, n_workers: int, beta: float, l2: float = 0.0) -> Iteration:
    """Step along the estimated gradient of ``0.5 * ||X w - y||**2 + 0.5 * l2 * ||w||**2``.

    Parameters
    ----------
    w
        Where to begin.
    step
        Step length, see `safe_step`.
    n_workers, beta
        Of the frame.
    l2
        Weight of the regularizer.

    Examples
    --------
    >>> run = gradient_descent(np.array([4.0]), step=0.5, n_workers=2, beta=1.0)
    >>> next(run)
    AskGradients(w=array([4.]))
    >>> run.send({1: np.array([2.0])})
    Iterate(w=array([2.]), step=0.5, arrived=1)
    """
    return proximal_gradient(w, step=step, n_workers=n_workers, beta=beta, l2=l2)


def proximal_gradient(
    w: Array,
    *,
    step: float,
    n_workers: int,
    beta: float,
    prox: Prox | None = None,
    l2: float = 0.0,
) -> Iteration:
    """Step along the estimated gradient, then apply ``prox(w, step)``; other parameters as for `gradient_descent`."""
    if not step > 0:
        raise InputError(f"step must be positive, got {step}")
    while True:
        answers = yield AskGradients(w)
        w = w - step * (_mean(answers, n_workers, beta) + l2 * w)
        if prox is not None:
            w = prox(w, step)
        yield Iterate(w, step, len(answers))


def lbfgs(
    w: Array, *, n_workers: int, beta: float, memory: int = 10, backoff: float = 0.9, l2: float = 0.0
) -> Iteration:
    """L-BFGS whose curvature pairs come from workers that answered in both of two consecutive iterations.

    Parameters
    ----------
    w
        Where to begin.
    n_workers, beta
        Of the frame.
    memory
        Pairs kept.
    backoff
        Factor in (0, 1] of the exact line search; ``(1 - e) / (1 + e)`` with the deviation of the frame.
    l2
        Weight of the regularizer.

    Notes
    -----
    The line search is a second question to the workers, and another set may answer it.
    """
    if memory < 1:
        raise InputError(f"memory must be at least 1, got {memory}")
    if not 0 < backoff <= 1:
        raise InputError(f"backoff must be in (0, 1], got {backoff}")
    pairs: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=memory)
    before: tuple[Array, Answers] | None = None
    while True:
        answers = yield AskGradients(w)
        gradient = _mean(answers, n_workers, beta) + l2 * w
        if before is not None:
            _remember(pairs, w - before[0], answers, before[1], n_workers, beta, l2)
        before = (w, answers)
        d = -two_loops(gradient, pairs)
        curvatures = yield AskNorms(d)
        curvature = float(_mean(curvatures, n_workers, beta)) + l2 * float(np.vdot(d, d))
        step = -backoff * float(np.vdot(d, gradient)) / curvature if curvature > 0 else 0.0
        w = w + step * d
        yield Iterate(w, step, len(answers))


def _remember(
    pairs: deque[tuple[FloatArray, FloatArray]],
    s: FloatArray,
    now: Answers,
    then: Answers,
    n_workers: int,
    beta: float,
    l2: float,
) -> None:
    """Keep a curvature pair of the common workers, if there are any and it curves upwards."""
    common = now.keys() & then.keys()
    if not common:
        return
    change = _mean({i: now[i] - then[i] for i in sorted(common)}, n_workers, beta) + l2 * s
    if curves_upwards(s, change):
        pairs.append((s, change))


def coordinate_descent(
    n_rows: int,
    parts: Mapping[int, FloatArray],
    residual: Callable[[FloatArray], FloatArray],
    *,
    step: float,
) -> Iteration:
    """Block coordinate descent on the lifted problem ``min phi(X S.T v)``: exact, for any smooth loss of ``X w``.

    Parameters
    ----------
    n_rows
        Rows of ``X``.
    parts
        Worker to its ``S_i``, shape ``(rows, p)``: what turns ``v`` back into ``w = S.T @ v``.
    residual
        ``z = X w`` to the derivative of the loss with respect to ``z``.
    step
        Step length; ``1 / (smoothness * lambda_max(X X.T) * beta)`` is safe.

    Notes
    -----
    The state is here: a step that a worker did not deliver in time is not taken, and its next one starts anew.
    """
    if not step > 0:
        raise InputError(f"step must be positive, got {step}")
    v = {worker: np.zeros(len(part)) for worker, part in parts.items()}
    z = np.zeros(n_rows)
    while True:
        answers = yield AskSteps(residual(z))
        for worker, answer in answers.items():
            size = len(answer) - n_rows
            v[worker] = v[worker] - step * answer[: len(v[worker])]
            z = z - step * answer[size:]
        w = np.sum([parts[worker].T @ v[worker] for worker in sorted(parts)], axis=0)
        yield Iterate(w, step, len(answers))
