"""Losses of generalized linear models: what the worker and the driver's local part both compute.

Each loss has ``value(z, y, sample_weight) -> float``, a *sum* over rows, and
``residual(z, y, sample_weight) -> array`` of ``z``'s shape, the derivative of that sum with respect to ``z``. With
``z = X @ w`` the gradient is ``X.T @ residual``; losses that are sums over the entries of ``z`` have
``curvature(z, y, sample_weight)``, the second derivatives, too. Work is done in the precision of ``z``, sums in double
precision. Nothing overflows for ``|z|`` of 1000 and beyond.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LOSSES", "Huber", "Logistic", "Loss", "Poisson", "Softmax", "Squared", "SquaredHinge", "get"]

Array = NDArray[Any]


def _inexact(a: ArrayLike) -> Array:
    """Return floats: integers and booleans as float64, float16 as float32."""
    out = np.asarray(a)
    if out.dtype.kind in "fc":
        return out.astype(np.float32) if out.dtype == np.float16 else out
    return out.astype(np.float64)


def _check_shape(name: str, z: Array, y: Array) -> None:
    if y.shape != z.shape:
        flat = "; use y.ravel()" if y.shape == (*z.shape, 1) else ""
        raise ValueError(f"loss {name!r}: y must have the shape of z = X @ w, {z.shape}, got {y.shape}{flat}")


def _real_labels(name: str, z: Array, y: Array) -> Array:
    if z.dtype.kind == "c":
        raise ValueError(f"loss {name!r} needs real z, got {z.dtype}")
    _check_shape(name, z, y)
    return _inexact(y).astype(z.dtype, copy=False)


class Loss(ABC):
    """One loss. Subclasses say what labels they take and what one entry costs.

    Attributes
    ----------
    name
        Its name.
    separable
        Whether it is a sum over the entries of ``z``, so that its second derivative is one number for each of them.
    """

    name: ClassVar[str]
    separable: ClassVar[bool] = True

    def value(self, z: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the loss, summed over the rows.

        Parameters
        ----------
        z
            Linear predictor ``X @ w``, shape (n,) or (n, c).
        y
            Labels, see the class.
        sample_weight
            One factor for each row, shape (n,), at least 0.

        Raises
        ------
        ValueError
            If shapes, labels or weights are not what the loss takes.
        """
        z, y, weight = self._checked(z, y, sample_weight)
        terms = self._terms(z, y)
        return float(np.sum(terms if weight is None else terms * _column(weight, terms), dtype=np.float64))

    def residual(self, z: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Array:
        """Return the derivative of `value` with respect to ``z``, a fresh array of ``z``'s shape.

        Parameters and errors are those of `value`.
        """
        z, y, weight = self._checked(z, y, sample_weight)
        slope = self._slope(z, y)
        return slope if weight is None else slope * _column(weight, slope)

    def curvature(self, z: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Array:
        """Return the second derivative of `value` with respect to each entry of ``z``, at least 0.

        Parameters are those of `value`.

        Raises
        ------
        ValueError
            As for `value`, or if the loss is no sum over the entries of ``z``, or does not tell.
        """
        z, y, weight = self._checked(z, y, sample_weight)
        bend = self._bend(z, y)
        return bend if weight is None else bend * _column(weight, bend)

    def check(self, shape: tuple[int, ...], y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Raise unless labels and weights fit predictions ``z`` of this shape; nothing is computed.

        Raises
        ------
        ValueError
            If shapes, labels or weights are not what the loss takes.
        """
        self._checked(np.broadcast_to(np.zeros(()), shape), y, sample_weight)

    def _checked(
        self, z: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Array, Array, Array | None]:
        z, y = _inexact(z), np.asarray(y)
        if z.ndim not in {1, 2}:
            raise ValueError(f"loss {self.name!r}: z = X @ w must have shape (n,) or (n, c), got {z.shape}")
        y = self._labels(z, y)
        if sample_weight is None:
            return z, y, None
        weight = _inexact(sample_weight)
        if weight.shape != z.shape[:1]:
            raise ValueError(
                f"loss {self.name!r}: sample_weight must have one entry for each of {len(z)} rows, "
                f"got shape {weight.shape}"
            )
        good = (weight >= 0) & np.isfinite(weight)
        if not good.all():
            row = int(np.argmin(good))
            raise ValueError(
                f"loss {self.name!r}: sample_weight must be finite and at least 0, got {weight[row]} in row {row}"
            )
        return z, y, weight.astype(z.real.dtype, copy=False)

    def _labels(self, z: Array, y: Array) -> Array:
        """Check the labels and bring them to the form the formulas use; by default real, of ``z``'s shape."""
        return _real_labels(self.name, z, y)

    def _refuse(self, y: Array, good: NDArray[np.bool_], wanted: str) -> None:
        if not good.all():
            where = np.unravel_index(int(np.argmin(good)), y.shape)
            place = ", ".join(str(int(i)) for i in where)
            raise ValueError(f"loss {self.name!r} needs labels {wanted}, got {y[where]!s} in row {place}")

    @abstractmethod
    def _terms(self, z: Array, y: Array) -> Array:
        """Return the loss of each entry (of each row for softmax)."""

    @abstractmethod
    def _slope(self, z: Array, y: Array) -> Array:
        """Return the derivative with respect to each entry of ``z``, fresh."""

    def _bend(self, z: Array, y: Array) -> Array:  # noqa: ARG002 - for those that have one
        """Return the second derivative with respect to each entry of ``z``, fresh."""
        raise ValueError(f"loss {self.name!r} does not tell its second derivative for each entry of X @ w")


def _column(weight: Array, like: Array) -> Array:
    return weight[:, None] if like.ndim == 2 else weight


def _expit(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` without overflow and without cancellation."""
    e = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1.0, e) / (1.0 + e)
    return result.astype(x.dtype, copy=False)


@dataclass(frozen=True, slots=True)
class Squared(Loss):
    """``0.5 * |z - y|**2``; labels of any number, in ``z``'s shape (several outputs at once, complex too).

    Examples
    --------
    >>> Squared().value([1.0, 1.0, 2.0, 1.0], [1, 2, 3, 0])
    1.5
    """

    name: ClassVar[str] = "squared"

    def _labels(self, z: Array, y: Array) -> Array:
        _check_shape(self.name, z, y)
        y = _inexact(y)
        return y if y.dtype.kind == "c" and z.dtype.kind == "f" else y.astype(z.dtype, copy=False)

    def _terms(self, z: Array, y: Array) -> Array:
        result: Array = 0.5 * np.abs(z - y) ** 2
        return result

    def _slope(self, z: Array, y: Array) -> Array:
        return z - y

    def _bend(self, z: Array, y: Array) -> Array:  # noqa: ARG002 - it is the same everywhere
        return np.ones_like(z)


@dataclass(frozen=True, slots=True)
class Logistic(Loss):
    """Binary cross-entropy. Labels are {0, 1} or {-1, 1}; in both 1 is the positive class.

    ``log(1 + exp(-s * z))`` with ``s = 1`` for label 1 and ``s = -1`` for label 0 or -1. Labels 0 and -1 in one
    call are refused: they would be two names of one class, most likely by mistake.

    Examples
    --------
    >>> Logistic().residual([0.0, 1000.0, -1000.0], [0, 0, 1])
    array([ 0.5,  1. , -1. ])
    """

    name: ClassVar[str] = "logistic"

    def _labels(self, z: Array, y: Array) -> Array:
        y = _real_labels(self.name, z, y)
        positive, zero, negative = y == 1, y == 0, y == -1
        self._refuse(y, positive | zero | negative, "in {0, 1} or in {-1, 1}")
        if zero.any() and negative.any():
            raise ValueError("loss 'logistic' needs labels in {0, 1} or in {-1, 1}, got both 0 and -1")
        signs: Array = np.where(positive, z.dtype.type(1), z.dtype.type(-1))
        return signs

    def _terms(self, z: Array, y: Array) -> Array:
        result: Array = np.logaddexp(z.dtype.type(0), -y * z)
        return result

    def _slope(self, z: Array, y: Array) -> Array:
        result: Array = -y * _expit(-y * z)
        return result

    def _bend(self, z: Array, y: Array) -> Array:  # noqa: ARG002 - it is the same for both classes
        result: Array = _expit(z) * _expit(-z)
        return result


@dataclass(frozen=True, slots=True)
class Softmax(Loss):
    """Cross-entropy of c classes: ``z`` has shape (n, c), so weights (p, c); labels are integers 0..c-1, shape (n,).

    Examples
    --------
    >>> Softmax().residual([[0.0, 0.0], [1000.0, 0.0]], [0, 0])
    array([[-0.5,  0.5], [ 0. ,  0. ]])
    """

    name: ClassVar[str] = "softmax"
    separable: ClassVar[bool] = False

    def _labels(self, z: Array, y: Array) -> Array:
        if z.ndim != 2 or z.shape[1] < 2 or z.dtype.kind == "c":
            raise ValueError(
                f"loss 'softmax' needs real z of shape (n, c) with c >= 2 classes, got {z.dtype} {z.shape}: "
                "the weights must have shape (p, c)"
            )
        if y.shape != z.shape[:1]:
            raise ValueError(f"loss 'softmax' needs one label for each of {len(z)} rows, got shape {y.shape}")
        classes = z.shape[1]
        with np.errstate(invalid="ignore"):
            labels = y.astype(np.intp)
        self._refuse(y, (labels == y) & (labels >= 0) & (labels < classes), f"that are integers 0..{classes - 1}")
        return labels

    def _terms(self, z: Array, y: Array) -> Array:
        top = z.max(axis=1)
        total = np.log(np.exp(z - top[:, None]).sum(axis=1))
        # The difference first: top is exact, and the large parts of both cancel without rounding.
        result: Array = total + (top - z[np.arange(len(y)), y])
        return result

    def _slope(self, z: Array, y: Array) -> Array:
        p: Array = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(y)), y] -= 1
        return p


@dataclass(frozen=True, slots=True)
class Poisson(Loss):
    """``exp(z) - y * z``, the negative log-likelihood of counts ``y >= 0`` under a log link, less ``log(y!)``.

    Beyond ``z = 500`` (60 in single precision) ``exp`` is continued by its tangent: the loss stays convex and
    smooth, and neither it nor its gradient overflows.

    Examples
    --------
    >>> Poisson().residual([0.0, 0.0], [1, 3])
    array([ 0., -2.])
    """

    name: ClassVar[str] = "poisson"

    def _labels(self, z: Array, y: Array) -> Array:
        y = _real_labels(self.name, z, y)
        self._refuse(y, y >= 0, "of at least 0")
        return y

    @staticmethod
    def _most(z: Array) -> float:
        return 60.0 if z.dtype.itemsize <= 4 else 500.0

    def _terms(self, z: Array, y: Array) -> Array:
        most = self._most(z)
        result: Array = np.exp(np.minimum(z, most)) * (1 + np.maximum(z - most, 0)) - y * z
        return result

    def _slope(self, z: Array, y: Array) -> Array:
        result: Array = np.exp(np.minimum(z, self._most(z))) - y
        return result

    def _bend(self, z: Array, y: Array) -> Array:  # noqa: ARG002 - it is the same for all counts
        result: Array = np.exp(np.minimum(z, self._most(z)))
        return result


@dataclass(frozen=True, slots=True)
class Huber(Loss):
    """``0.5 * r**2`` for ``|r| <= delta``, else ``delta * (|r| - 0.5 * delta)``, with ``r = z - y``.

    Parameters
    ----------
    delta
        Where the parabola turns into a line; positive, in units of ``y``.

    Examples
    --------
    >>> Huber(delta=1.0).residual([0.5, 3.0, -3.0], [0, 0, 0])
    array([ 0.5,  1. , -1. ])
    """

    name: ClassVar[str] = "huber"
    delta: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.delta < math.inf:
            raise ValueError(f"huber: delta must be a positive number, got {self.delta!r}")

    def _terms(self, z: Array, y: Array) -> Array:
        r = np.abs(z - y)
        inner = np.minimum(r, self.delta)
        result: Array = inner * (r - 0.5 * inner)
        return result

    def _slope(self, z: Array, y: Array) -> Array:
        result: Array = np.clip(z - y, -self.delta, self.delta)
        return result

    def _bend(self, z: Array, y: Array) -> Array:
        result: Array = (np.abs(z - y) <= self.delta).astype(z.dtype)
        return result


@dataclass(frozen=True, slots=True)
class SquaredHinge(Loss):
    """``max(0, 1 - y * z)**2`` with labels in {-1, 1}.

    Examples
    --------
    >>> SquaredHinge().residual([0.0, 0.5], [1, -1])
    array([-2.,  3.])
    """

    name: ClassVar[str] = "squared_hinge"

    def _labels(self, z: Array, y: Array) -> Array:
        y = _real_labels(self.name, z, y)
        self._refuse(y, np.abs(y) == 1, "in {-1, 1}")
        return y

    def _terms(self, z: Array, y: Array) -> Array:
        result: Array = np.maximum(0, 1 - y * z) ** 2
        return result

    def _slope(self, z: Array, y: Array) -> Array:
        result: Array = -2 * y * np.maximum(0, 1 - y * z)
        return result

    def _bend(self, z: Array, y: Array) -> Array:
        result: Array = 2 * (y * z < 1).astype(z.dtype)
        return result


LOSSES: Mapping[str, Callable[..., Loss]] = {
    loss.name: loss for loss in (Squared, Logistic, Softmax, Poisson, Huber, SquaredHinge)
}
"""Name -> class."""


def get(name: str, **params: Any) -> Loss:
    """Return a loss by name.

    Raises
    ------
    ValueError
        If there is no such loss, or it has no such parameter.

    Examples
    --------
    >>> get("huber", delta=2.0)
    Huber(delta=2.0)
    """
    if name not in LOSSES:
        raise ValueError(f"no loss is called {name!r}; there are {', '.join(sorted(LOSSES))}")
    try:
        return LOSSES[name](**params)
    except TypeError as error:
        raise ValueError(f"loss {name!r} does not take the parameters {params}: {error}") from None
