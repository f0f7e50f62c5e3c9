"""L-BFGS with gradients from whichever workers were fast enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.types import Array, FloatArray, Update

__all__ = ["LBFGS", "curves_upwards", "two_loops"]

State: TypeAlias = tuple[Array, ...]
Pair: TypeAlias = tuple[FloatArray, FloatArray]


def curves_upwards(s: Array, change: Array) -> bool:
    """Return whether a pair of steps in ``x`` and in the gradient may enter the inverse Hessian."""
    return float(np.vdot(s, change)) > 1e-10 * float(np.vdot(s, s))


def two_loops(gradient: FloatArray, pairs: Iterable[Pair]) -> FloatArray:
    """Multiply by the inverse Hessian that the pairs describe, oldest first."""
    pairs = list(pairs)
    q = gradient
    factors = []
    for s, change in reversed(pairs):
        factor = float(np.vdot(s, q)) / float(np.vdot(s, change))
        factors.append(factor)
        q = q - factor * change
    if pairs:
        s, change = pairs[-1]
        q = q * (float(np.vdot(s, change)) / float(np.vdot(change, change)))
    for (s, change), factor in zip(pairs, reversed(factors), strict=True):
        q = q + s * (factor - float(np.vdot(change, q)) / float(np.vdot(s, change)))
    return q


@dataclass(frozen=True, slots=True)
class LBFGS:
    """Limited-memory quasi-Newton steps, ``x - lr * H d``.

    The curvature of a step is measured on the slots that answered before *and* after it; the change between gradients
    of different sets of slots would be noise. Where none did, or it does not curve upwards, the pair is left out.

    Parameters
    ----------
    lr
        Step length, or a function of the update's number; there is no line search. While there is no pair yet, and the
        curvature unknown, steps are along the gradient and at most so long.
    memory
        Pairs kept.

    Raises
    ------
    InputError
        If ``memory`` is not positive.

    Notes
    -----
    D. Liu, J. Nocedal, "On the limited memory BFGS method for large scale optimization" (1989); common slots as in C.
    Karakus, Y. Sun, S. Diggavi, W. Yin, "Redundancy Techniques for Straggler Mitigation" (2018), whose own iteration
    on encoded data, with a line search, is `serverless_gc.optim.encoded.lbfgs`. ``meta["slots"]``, slot to gradient, is
    what `serverless_gc.aggregate.KeepSlots` hands over; without it the direction itself is taken for always the same
    slots'.

    Examples
    --------
    >>> rule, x = LBFGS(1.0), np.array([4.0])
    >>> state = rule.init(x)
    >>> for t in range(2):
    ...     x, state = rule.step(x, Update(0.5 * x), state, t)
    >>> x
    array([0.])
    """

    lr: Rate = 1.0
    memory: int = 10

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        if self.memory < 1:
            raise InputError(f"memory must be at least 1, got {self.memory}")

    def init(self, x: Array) -> State:
        """Return the state before the first step: pairs, the last point, and which slots sent what there."""
        nothing = np.zeros((0, *x.shape))
        return nothing, nothing, np.array(x, dtype=np.float64), np.zeros(0), nothing

    def step(self, x: Array, update: Update, state: State, t: int) -> tuple[Array, State]:
        """Make one step."""
        steps, changes, before, *then = state
        slots: Mapping[int, Array] = update.meta.get("slots", {-1: update.direction})
        ids, gradients = np.array(sorted(slots), dtype=np.float64), [slots[slot] for slot in sorted(slots)]
        common, old, new = np.intersect1d(then[0], ids, return_indices=True)
        if common.size:
            s = x - before
            change = np.mean(np.asarray(gradients)[new] - then[1][old], axis=0)
            if curves_upwards(s, change):
                steps = np.concatenate([steps, s[None]])[-self.memory :]
                changes = np.concatenate([changes, change[None]])[-self.memory :]
        d = two_loops(update.direction, zip(steps, changes, strict=True))
        if not len(steps):  # nothing is known of the curvature: a gradient may be of any size, a step must not
            d = d / max(1.0, float(np.linalg.norm(d)))
        kept = np.asarray(gradients, dtype=np.float64).reshape(len(gradients), *x.shape)
        return x - as_schedule(self.lr)(t) * d, (steps, changes, np.array(x, dtype=np.float64), ids, kept)
