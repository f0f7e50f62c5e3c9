"""Newton steps with a sketched Hessian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.types import Array, FloatArray, Update

__all__ = ["SketchedNewton"]

State: TypeAlias = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class SketchedNewton:
    """``x - lr * (B.T B + l2)^-1 d`` with a sketched square root ``B`` of the Hessian.

    For a loss ``sum f(a_i x)`` the Hessian is ``A.T D A``; a sketch ``S`` of its root ``sqrt(D) A`` with
    ``E[S.T S] = I`` gives ``B = S sqrt(D) A``, from far fewer rows. Workers sketch blocks, and stragglers are left out:
    any of the blocks make a sketch, a coarser one.

    Parameters
    ----------
    lr
        Step length, or a function of the update's number.
    l2
        Weight of the regularizer in the Hessian; the direction contains its gradient already.

    Raises
    ------
    InputError
        If ``l2`` is negative; when stepping, if the update brings no root of the right shape.

    Notes
    -----
    V. Gupta, S. Kadhe, T. Courtade, M. Mahoney, K. Ramchandran, "OverSketched Newton: Fast Convex Optimization for
    Serverless Systems" (2020). Where the sketched Hessian is singular the least-norm step is taken, as there for weakly
    convex problems. The root is ``meta["hessian_root"]``, ``(rows, x.size)``; `serverless_gc.aggregate.StackStats`
    stacks those of the workers.

    Examples
    --------
    >>> rule, x = SketchedNewton(), np.zeros(2)
    >>> update = Update(np.array([4.0, 9.0]), meta={"hessian_root": np.diag([2.0, 3.0])})
    >>> rule.step(x, update, rule.init(x), 0)[0].round(12)
    array([-1., -1.])
    """

    lr: Rate = 1.0
    l2: float = 0.0
    needs: ClassVar[str] = "hessian_root"

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        if not self.l2 >= 0:
            raise InputError(f"l2 must be at least 0, got {self.l2}")

    def init(self, x: Array) -> State:  # noqa: ARG002 - a rule without memory
        """Return the state before the first step."""
        return ()

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step; one without results changes nothing."""
        if update.n_eff == 0 and not np.any(update.direction):
            return x, state
        root = np.asarray(update.meta.get("hessian_root", np.zeros(0)), dtype=np.float64)
        if root.ndim != 2 or root.shape[1] != x.size:
            raise InputError(
                f"SketchedNewton needs meta['hessian_root'] of shape (rows, {x.size}) with every update, got "
                f"{root.shape}: see aggregate.StackStats"
            )
        newton = _solve(root, self.l2, update.direction.reshape(-1)).reshape(x.shape)
        return x - as_schedule(self.lr)(t) * newton, state


def _solve(root: FloatArray, l2: float, right: Array) -> FloatArray:
    """Return ``(root.T root + l2)^+ right`` by the singular values of the root: its condition is not squared."""
    rounding = np.finfo(np.float64).eps * max(root.shape)
    if len(root) > right.size:
        root = np.asarray(
            np.linalg.qr(root, mode="r"), np.float64
        )  # the same singular values and right vectors, of fewer rows
    _, sizes, rows = np.linalg.svd(root, full_matrices=False)
    curvature = sizes**2 + l2
    seen = curvature > rounding * curvature.max(initial=0.0)
    inside = rows @ right
    step = rows.T @ np.divide(inside, curvature, out=np.zeros_like(inside), where=seen)
    if l2 > 0 and len(rows) < right.size:
        step = step + (right - rows.T @ inside) / l2  # directions that the sketch did not see
    return np.asarray(step, dtype=np.float64)
