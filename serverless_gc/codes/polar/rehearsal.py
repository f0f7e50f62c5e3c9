"""How far to trust a decode of a polar code: known data rehearse it, on structure alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serverless_gc.codes.base import Certificate
from serverless_gc.codes.polar.decode import Plan
from serverless_gc.codes.received import TYPICAL, unit_roundoff
from serverless_gc.errors import DecodeError, WrongResult
from serverless_gc.types import Array, FloatArray

__all__ = ["Probe", "refuse_inaccurate", "refuse_mismatch"]

_PROBES = 64
"""Columns of the probe."""

_MARGIN = 2.0
"""Of the predicted error: the rehearsal alone was at most 1.9 times too optimistic."""

_TOLERANCE = {"d": 1e-6, "D": 1e-6, "f": 1e-2, "F": 1e-2}
"""Default tolerance by type; wider types have that of float64."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A few columns of unit data to rehearse a decode on.

    A sum of variances along the operations knows nothing of errors that cancel, and nothing of a dense solve: at a
    thousand workers it is tens of times too large. What the operations do to rounded messages is as cheap to see.

    Attributes
    ----------
    data
        Shape ``(k, columns)``, standard normal.
    coded
        The messages of ``data``, shape ``(n_messages, columns)``.
    """

    data: FloatArray
    coded: FloatArray

    @classmethod
    def of(cls, encode: Callable[[Array], Array], k: int) -> Probe:
        """Draw the data, always the same."""
        data = np.random.default_rng(0).standard_normal((k, _PROBES))
        return cls(data, encode(data))

    def growth(self, plan: Plan, lost: Sequence[int], n_direct: int, dtype: np.dtype[Any]) -> tuple[float, float]:
        """Push the probe through the plan.

        Parameters
        ----------
        plan
            What will run.
        lost
            Blocks the plan computes.
        n_direct
            How many others arrived unchanged.
        dtype
            In which it will run; rehearsed in single or double precision.

        Returns
        -------
        largest, typical
            Root mean square error of the worst lost block, and of all blocks, in units of the rounding error of a
            block that arrived unchanged.
        """
        if plan.program is None:
            return 1.0, 1.0
        real = np.dtype(np.float32 if np.finfo(dtype).bits <= np.finfo(np.float32).bits else np.float64)
        answer = np.empty((len(lost), _PROBES), real)
        plan.run(list(self.coded.astype(real)), list(answer), real)
        wrong = (answer - self.data[list(lost)]) / (TYPICAL * unit_roundoff(real))
        each = np.square(wrong).mean(axis=1)
        return float(np.sqrt(each.max())), float(np.sqrt((each.sum() + n_direct) / (len(lost) + n_direct)))

    def certificate(
        self, plan: Plan, lost: Sequence[int], direct: Collection[int], dtype: np.dtype[Any]
    ) -> Certificate:
        """Say how an answer of this dtype will be obtained, and how far it can be trusted; see `growth`."""
        largest, typical = self.growth(plan, lost, len(direct), dtype)
        return Certificate(
            method=plan.method,
            used=tuple(sorted({*direct, *(plan.program.used if plan.program else ())})),
            amplification=max(largest, plan.solution.condition if plan.solution else 1.0),
            predicted_error=_MARGIN * TYPICAL * unit_roundoff(dtype) * typical if lost else 0.0,
            unknowns=plan.solution.unknowns if plan.solution else 0,
        )


def refuse_inaccurate(label: str, certificate: Certificate, tolerance: float | None, dtype: np.dtype[Any]) -> None:
    """Raise `DecodeError` if the predicted error exceeds the tolerance."""
    limit = _limit(tolerance, dtype)
    if not certificate.predicted_error <= limit:
        raise DecodeError(
            f"{label}: the decoded blocks would be off by {certificate.predicted_error:.1e} (relative), "
            f"tolerance {limit:.1e}; one or two more results usually cure that",
            predicted=certificate.predicted_error,
            tolerance=limit,
        )


def refuse_mismatch(label: str, certificate: Certificate, tolerance: float | None, dtype: np.dtype[Any]) -> None:
    """Raise `WrongResult` if surplus results contradict the answer."""
    limit = _limit(tolerance, dtype)
    if certificate.residual is not None and not certificate.residual <= limit:
        raise WrongResult(
            f"{label}: surplus results contradict the decoded blocks by {certificate.residual:.1e} "
            f"(relative), tolerance {limit:.1e}; at least one result is wrong or not finite",
            predicted=certificate.predicted_error,
            tolerance=limit,
        )


def _limit(tolerance: float | None, dtype: np.dtype[Any]) -> float:
    return _TOLERANCE.get(dtype.char, _TOLERANCE["d"]) if tolerance is None else tolerance
