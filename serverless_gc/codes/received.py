"""What a decoder is given and gives back: checks on messages, tolerances, and the errors of a refused answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, check_message
from serverless_gc.codes.blocks import as_row, promoted
from serverless_gc.errors import DecodeError, InputError, NotDecodableError, WrongResult
from serverless_gc.types import Array

__all__ = [
    "GUARD",
    "MOST_EXTRA",
    "TYPICAL",
    "Received",
    "accuracy_warning",
    "default_tolerance",
    "doubtful_error",
    "guarded_error",
    "largest_error",
    "not_decodable",
    "receive",
    "refuse_inaccurate",
    "refuse_mismatch",
    "refuse_non_finite",
    "solve_dtype",
    "unit_roundoff",
    "with_residual",
]

TYPICAL = 0.5
"""Rounding error of one operation, in units of the largest one and as measured."""


@dataclass(frozen=True, slots=True)
class Received:
    """Messages that passed the checks: ids ascending, arrays of one shape, and the dtype of the answer."""

    ids: tuple[int, ...]
    values: Mapping[int, Array]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def rows(self, ids: Sequence[int], dtype: np.dtype[Any]) -> list[Array]:
        """Return these messages as rows."""
        return [as_row(self.values[i], dtype) for i in ids]


def receive(values: Mapping[int, Array], n_messages: int) -> Received:
    """Check the messages handed to a decoder.

    Raises
    ------
    InputError
        If a message id is unknown, shapes differ or a dtype is not numeric.
    NotDecodableError
        If there is no message at all.
    """
    if not values:
        raise NotDecodableError("no message arrived: there is nothing to decode from")
    ids = sorted(values)
    for i in (ids[0], ids[-1]):
        check_message(i, n_messages)
    arrays = {int(i): np.asarray(values[i]) for i in ids}
    first, shape = ids[0], arrays[ids[0]].shape
    for i, a in arrays.items():
        if a.shape != shape:
            raise InputError(
                f"all messages must have one shape: message {first} has {shape}, message {i} has {a.shape}"
            )
    dtype = np.result_type(*map(promoted, {a.dtype for a in arrays.values()}))
    return Received(tuple(arrays), arrays, shape, dtype)


def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """Return half the spacing of numbers near one: 1.1e-16 for float64, 6e-8 for float32."""
    return float(np.finfo(dtype).eps) / 2


def default_tolerance(dtype: np.dtype[Any]) -> float:
    """Return the predicted relative error above which an answer carries a warning: 1e-4 single, 1e-8 double."""
    return 1e-4 if np.finfo(dtype).bits <= 32 else 1e-8


GUARD = default_tolerance(np.dtype(np.float64))
"""`Code.guard` of codes that lose a few digits, and more to some sets of results: it waits where answers would warn."""


MOST_EXTRA = 2
"""Results that a round waits for beyond those that decode, for an answer that is poor but not doubtful."""


def guarded_error(guard: float | None, dtype: DTypeLike) -> float | None:
    """Return the predicted relative error above which a round waits for more results, from `Code.guard`.

    What double precision can be asked for is out of reach of single precision.

    Examples
    --------
    >>> guarded_error(1e-11, "f8"), guarded_error(1e-11, "f4")
    (1e-11, 0.0001)
    """
    single = np.dtype(np.float32)
    if guard is None or np.finfo(dtype).bits > np.finfo(single).bits:
        return guard
    return max(guard, default_tolerance(single))


def doubtful_error(dtype: DTypeLike) -> float:
    """Return the predicted relative error above which answers are doubtful: 1e-3 single, 1e-6 double.

    A round waits for whatever can still come; if that was all, the answer is given with an `AccuracyWarning`.
    """
    return 1e-3 if np.finfo(dtype).bits <= 32 else 1e-6


def largest_error(dtype: DTypeLike) -> float:
    """Return the predicted relative error above which an answer is refused by default: 1e-1 single, 1e-3 double."""
    return 1e-1 if np.finfo(dtype).bits <= 32 else 1e-3


def accuracy_warning(predicted: float, dtype: np.dtype[Any]) -> str:
    """Return what to say of an answer predicted to miss the default tolerance, or an empty string."""
    limit = default_tolerance(dtype)
    if predicted <= limit:
        return ""
    return (
        f"the predicted relative error is above {limit:.0e}: more results, fewer workers or fewer blocks would keep "
        "more digits"
    )


def solve_dtype(dtype: np.dtype[Any], certificate: Certificate) -> np.dtype[Any]:
    """Return the real dtype in which to take sums: the messages' own, at least float64 when accuracy is at risk."""
    real = np.dtype(np.finfo(dtype).dtype)
    return np.result_type(real, np.float64) if certificate.warning else real


def with_residual(certificate: Certificate, residual: float, surplus: int) -> Certificate:
    """Return the certificate with what the surplus messages said."""
    if not surplus:
        return certificate
    return replace(certificate, residual=residual, surplus_checked=surplus)


def not_decodable(code: str, arrived: int, missing: tuple[int, ...], hint: str) -> NotDecodableError:
    """Make the error that names what is missing."""
    shown = ", ".join(map(str, missing[:20])) + (", ..." if len(missing) > 20 else "")
    return NotDecodableError(
        f"{code}: {arrived} messages do not determine {len(missing)} source blocks ({shown}); {hint}",
        missing=missing,
    )


def refuse_inaccurate(code: str, predicted: float, tolerance: float | None, ids: Sequence[int]) -> None:
    """Raise `DecodeError` if the predicted error exceeds the caller's tolerance, or nothing can be predicted."""
    if not math.isfinite(predicted):
        raise DecodeError(
            f"{code}: the recovery matrix of messages {list(ids)} is singular; wait for more results, or take "
            "fewer workers, fewer blocks or another code",
            predicted=predicted,
            tolerance=tolerance or 0.0,
        )
    if tolerance is not None and predicted > tolerance:
        raise DecodeError(
            f"{code}: the answer would have a relative error of about {predicted:.1e}, the tolerance is "
            f"{tolerance:.1e}; wait for more results, take fewer workers, fewer blocks or another code, or accept a "
            "larger tolerance",
            predicted=predicted,
            tolerance=tolerance,
        )


def refuse_mismatch(code: str, residual: float, tolerance: float, surplus: int) -> None:
    """Raise `WrongResult` if the surplus messages contradict the others (NaN counts as a contradiction)."""
    if not residual <= tolerance:
        raise WrongResult(
            f"{code}: {surplus} surplus messages contradict the answer (relative mismatch {residual:.1e}, tolerance "
            f"{tolerance:.1e}); at least one result is wrong: recompute it, or leave it out",
            predicted=residual,
            tolerance=tolerance,
        )


def refuse_non_finite(got: Received, solved: Sequence[Array] | Array, residual: float) -> None:
    """Raise `InputError` naming the messages with NaN or infinity, if any reached a block that was solved for."""
    if math.isfinite(residual) and all(np.isfinite(row.sum()) for row in solved):
        return
    bad = [i for i in got.ids if not np.isfinite(got.values[i]).all()]
    if bad:
        raise InputError(f"messages {bad} hold NaN or infinity: leave them out, as if they had not arrived")
