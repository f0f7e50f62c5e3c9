"""A coded objective as the function that optimizers of other packages call."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.observe import Report
from serverless_gc.types import Array, FloatArray

__all__ = ["Differentiable", "Objective"]


class _Evaluates(Protocol):
    """Data that know value and gradient of losses."""

    @property
    def n_cols(self) -> int: ...

    @property
    def value_and_gradient(self) -> Any: ...


class Objective:
    """``f(w) -> (value, gradient)``, each call one coded gradient; made by the ``objective`` method of encoded data.

    Attributes
    ----------
    evaluations
        Number of calls so far.
    report
        Account of all calls together, without the spans of single attempts.
    """

    def __init__(self, data: _Evaluates, shape: tuple[int, ...], options: dict[str, Any]) -> None:
        self._data = data
        self._shape = shape
        self._options = options
        self.evaluations = 0
        self.report = Report(rounds=0)

    def __repr__(self) -> str:
        return f"<Objective of weights of shape {self._shape}, {self.evaluations} evaluations>"

    def __call__(self, w: Any) -> tuple[float, FloatArray]:
        """Return value and gradient; the gradient is flat where ``w`` is."""
        point = np.asarray(w, dtype=float)
        if point.size != int(np.prod(self._shape)):
            raise InputError(f"w must have {int(np.prod(self._shape))} entries ({self._shape}), got {point.shape}")
        value, gradient, report = self._data.value_and_gradient(
            point.reshape(self._shape), with_report=True, **self._options
        )
        self.evaluations += 1
        self.report = self.report.merge(report.without_spans())
        flat: Array = gradient.reshape(point.shape)
        return value, flat


class Differentiable:
    """What `CodedData` and its kin have in common: an objective."""

    def objective(self: _Evaluates, *, shape: tuple[int, ...] | None = None, **options: Any) -> Objective:
        """Return a function of ``w`` for optimizers that want value and gradient, such as `scipy.optimize.minimize`.

        Parameters
        ----------
        shape
            Of the weights, where an optimizer knows flat vectors only: ``(n_cols, c)`` for several classes;
            ``(n_cols,)`` by default.
        **options
            Of ``value_and_gradient``: ``loss``, ``l2``, ``reduction``, ``sample_weight``, ``deadline``, ...

        Returns
        -------
        Objective
            Counts its calls and keeps their report.

        Examples
        --------
        >>> import numpy as np, serverless_gc as sgc
        >>> from scipy.optimize import minimize
        >>> X = np.random.default_rng(0).normal(size=(60, 3))
        >>> with sgc.Session() as s:
        ...     data = s.encode(X, X @ [1.0, -2.0, 0.5], code="mds", n_workers=6, k=4)
        ...     found = minimize(data.objective(l2=1e-9), np.zeros(3), jac=True, method="L-BFGS-B")
        >>> found.x.round(4)
        array([ 1. , -2. ,  0.5])
        """
        if unknown := {"with_report", "with_squares"} & set(options):
            raise InputError(
                f"{min(unknown)} does not go with objective(): it returns value and gradient, and has the report"
            )
        return Objective(self, (self.n_cols,) if shape is None else tuple(shape), options)
