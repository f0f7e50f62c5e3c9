"""What the driver computes of a gradient whose products are coded: loss and residual from ``z = X w``."""

from __future__ import annotations

from typing import Any

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.prepare import check_number, find_loss
from serverless_gc.types import Array
from serverless_gc.worker import losses

__all__ = ["RowObjective"]


class RowObjective:
    """The local part of one gradient: checks, loss, residual, regularizer, scaling.

    Parameters
    ----------
    w
        The weights.
    n_rows, y
        Number of rows, and their targets or labels.
    loss, l2, reduction, sample_weight
        As for `CodedData.value_and_gradient`.

    Raises
    ------
    InputError
        If they do not go together.
    """

    def __init__(
        self,
        w: Array,
        n_rows: int,
        y: Array | None,
        loss: str | losses.Loss,
        l2: float,
        reduction: str,
        sample_weight: Any,
    ) -> None:
        if y is None:
            raise InputError("the data were encoded without y; pass it: session.encode(X, y)")
        if reduction not in {"sum", "mean"}:
            raise InputError(f"reduction must be 'sum' or 'mean', got {reduction!r}")
        if not 0 <= check_number("l2", l2) < np.inf:
            raise InputError(f"l2 must be a finite number of at least 0, got {l2!r}")
        self.loss = find_loss(loss)
        try:
            self.loss.check((n_rows, *w.shape[1:]), y, sample_weight)
        except ValueError as exc:
            raise InputError(str(exc)) from exc
        self.w = w
        self.l2 = float(l2)
        self.scale = 1.0 if reduction == "sum" else 1.0 / n_rows
        self.y = y
        self.sample_weight = sample_weight

    def local(self, z: Array) -> tuple[float, Array]:
        """Return the loss at the predictions ``z`` and the operand of the second round."""
        value = self.scale * float(self.loss.value(z, self.y, self.sample_weight))
        residual = self.loss.residual(z, self.y, self.sample_weight)
        if self.scale != 1.0:
            residual = residual * self.scale
        penalty = 0.5 * self.l2 * float(np.vdot(self.w, self.w).real)
        # complex data: the gradient is X^H r = conj(X^T conj(r))
        return value + penalty, np.conj(residual)

    def from_moments(self, product: Array, moments: Array) -> tuple[float, Array]:
        """Return loss and gradient of least squares from ``X.T X w`` and ``X.T y``; NaN entries have no gradient."""
        slope = product - moments
        value = 0.5 * float((np.vdot(self.w, product) - 2 * np.vdot(self.w, moments)).real)
        value += 0.5 * float(np.vdot(self.y, self.y).real)
        gradient = np.where(np.isnan(slope), 0, self.scale * slope + self.l2 * self.w)
        return self.scale * value + 0.5 * self.l2 * float(np.vdot(self.w, self.w).real), gradient

    def finish(self, product_: Array) -> Array:
        """Turn the product of the second round into the gradient."""
        gradient = np.conj(product_)
        if self.l2:
            gradient = gradient + self.l2 * self.w
        return np.array(gradient, copy=gradient.base is not None or not gradient.flags.writeable)
