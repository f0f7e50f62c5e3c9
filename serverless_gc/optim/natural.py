"""Natural gradient: steps measured by how much they change the model's predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.types import Array, FloatArray, Update

__all__ = ["NaturalGradient", "learned_precision"]

State: TypeAlias = tuple[Array, ...]

_UNKNOWN = 1e-24
"""A parameter whose mean square is below this, relative to the largest, is one that nothing depends on but rounding."""


@dataclass(frozen=True, slots=True)
class NaturalGradient:
    """``x - lr * (F + damping)^-1 d`` with an exponential mean ``F`` of Fisher estimates.

    Parameters
    ----------
    lr
        Step length, or a function of the update's number.
    kind
        ``"diag"``: from ``meta["sum_of_squares"]``, mean squares of per-sample gradients, shape of ``x``. Squares of
        mean gradients will not do: they are smaller by the number of samples. A parameter that has none, to rounding,
        and no damping does not move. ``"full"`` and ``"block"``: from ``meta["fisher"]``, mean of outer products or a
        closed form, ``(x.size, x.size)``.
    damping
        Added to the diagonal.
    memory
        How much of ``F`` lasts from one update to the next; corrected for its start. 0 uses the update's own.
    blocks
        For ``"block"``: sizes of the groups of parameters between which ``F`` is taken to vanish.

    Raises
    ------
    InputError
        If a parameter is out of range; when stepping, if the update brings no Fisher estimate of the right shape.
    numpy.linalg.LinAlgError
        If a full or block ``F + damping`` is not positive definite, or a diagonal one zero: damp more.

    Notes
    -----
    S. Amari, "Natural gradient works efficiently in learning" (1998). `serverless_gc.aggregate.AverageStats` brings
    the estimates from workers' ``stats``.

    Examples
    --------
    >>> rule = NaturalGradient(1.0, kind="full", memory=0.0)
    >>> x = np.zeros(2)
    >>> update = Update(np.array([2.0, 8.0]), meta={"fisher": np.diag([2.0, 4.0])})
    >>> rule.step(x, update, rule.init(x), 0)[0]
    array([-1., -2.])
    """

    lr: Rate
    kind: Literal["diag", "block", "full"] = "diag"
    damping: float = 0.0
    memory: float = 0.9
    blocks: Sequence[int] = ()

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        if self.kind not in {"diag", "block", "full"}:
            raise InputError(f"kind must be 'diag', 'block' or 'full', got {self.kind!r}")
        if not self.damping >= 0:
            raise InputError(f"damping must be at least 0, got {self.damping}")
        if not 0 <= self.memory < 1:
            raise InputError(f"memory must be in [0, 1), got {self.memory}")
        if bool(self.blocks) != (self.kind == "block") or any(size < 1 for size in self.blocks):
            raise InputError(f"blocks must be positive sizes, and given for kind='block' only, got {self.blocks!r}")

    @property
    def needs(self) -> str:
        """What every update has to bring in its ``meta``."""
        return "sum_of_squares" if self.kind == "diag" else "fisher"

    def init(self, x: Array) -> State:
        """Return the state before the first step: the sum of estimates, and of their weights."""
        shape = x.shape if self.kind == "diag" else (x.size, x.size)
        if self.kind == "block" and sum(self.blocks) != x.size:
            raise InputError(f"blocks must add up to the number of parameters, {x.size}, got {list(self.blocks)}")
        return np.zeros(shape), np.zeros(1)

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step; one without results changes nothing."""
        if update.n_eff == 0 and not np.any(update.direction):
            return x, state
        total = self.memory * state[0] + (1.0 - self.memory) * self._estimate(update, state[0].shape)
        weight = self.memory * state[1] + (1.0 - self.memory)
        preconditioned = self._solve(total / weight, update.direction)
        return x - as_schedule(self.lr)(t) * preconditioned, (total, weight)

    def _estimate(self, update: Update, shape: tuple[int, ...]) -> Array:
        name = self.needs
        if name not in update.meta or np.shape(update.meta[name]) != shape:
            raise InputError(
                f"NaturalGradient(kind={self.kind!r}) needs meta[{name!r}] of shape {shape} with every update, got "
                f"{np.shape(update.meta[name]) if name in update.meta else 'none'}: see aggregate.AverageStats"
            )
        return np.asarray(update.meta[name], dtype=np.float64)

    def _solve(self, fisher: Array, direction: Array) -> Array:
        if self.kind == "diag":
            scale = fisher + self.damping
            known = scale > _UNKNOWN * scale.max(initial=0.0)
            if np.any(direction) and not known.any():
                raise np.linalg.LinAlgError("no parameter has any Fisher information: damp more")
            return np.divide(direction, scale, out=np.zeros_like(scale), where=known)
        flat = direction.reshape(-1)
        sizes = self.blocks or (flat.size,)
        ends = np.cumsum(sizes)
        parts = [
            _cholesky_solve(fisher[end - size : end, end - size : end], self.damping, flat[end - size : end])
            for size, end in zip(sizes, ends.tolist(), strict=True)
        ]
        return np.concatenate(parts).reshape(direction.shape)


def _cholesky_solve(matrix: Array, damping: float, right: Array) -> FloatArray:
    from scipy.linalg import cho_factor, cho_solve

    factor = cho_factor(matrix + damping * np.eye(len(matrix)))
    return np.asarray(cho_solve(factor, right), dtype=np.float64)


def learned_precision(errors: ArrayLike, damping: float = 0.0) -> FloatArray:
    """Return the precision that minimizes ``0.5 e.T P e - 0.5 log det P`` on average: the inverse of ``E e e.T``.

    Parameters
    ----------
    errors
        Prediction errors, ``(samples, outputs)``.
    damping
        Added to the diagonal of the covariance.

    Examples
    --------
    >>> learned_precision([[1.0, 0.0], [0.0, 2.0]])
    array([[2. , 0. ],
           [0. , 0.5]])
    """
    e = np.atleast_2d(np.asarray(errors, dtype=np.float64))
    covariance = e.T @ e / len(e) + damping * np.eye(e.shape[1])
    return np.asarray(np.linalg.inv(covariance), dtype=np.float64)
