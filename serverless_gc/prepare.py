"""Checks of what a user hands over, and the choice of a code: all of it before anything is stored or invoked."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.registry import get as get_code
from serverless_gc.encode import Source, choose_code_for_sparse
from serverless_gc.errors import InputError
from serverless_gc.types import Array
from serverless_gc.worker import losses

__all__ = [
    "check_number",
    "check_operand",
    "check_option",
    "check_seconds",
    "check_targets",
    "choose_code",
    "find_loss",
]


def check_number(name: str, value: Any) -> float:
    """Return a number as a float."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r}") from None


def check_option(name: str, value: Any, kind: type | UnionType, words: str) -> None:
    """Raise unless an option is of its kind, or None."""
    if value is not None and not isinstance(value, kind):
        raise InputError(f"{name} must be {words}, got {value!r}")


def check_seconds(name: str, value: Any) -> float:
    """Return a positive number of seconds."""
    seconds = check_number(name, value)
    if not seconds > 0:
        raise InputError(f"{name} must be a positive number of seconds, got {value!r}")
    return seconds


def find_loss(loss: Any) -> losses.Loss:
    """Return the loss that a name stands for, or the loss itself."""
    if isinstance(loss, losses.Loss):
        return loss
    if not isinstance(loss, str):
        raise InputError(
            f"loss must be one of {', '.join(sorted(losses.LOSSES))} or a loss object, got {loss!r}: data codes serve "
            "losses of X @ w, whose gradient is X.T @ residual"
        )
    try:
        return losses.get(loss)
    except ValueError as exc:
        raise InputError(str(exc)) from exc


def check_operand(x: Any, n: int, name: str) -> Array:
    """Check and promote a vector or matrix that multiplies the data."""
    a = np.asarray(x)
    if a.dtype.kind not in "biufc":
        raise InputError(f"{name} must be numeric, got dtype {a.dtype}")
    if a.ndim not in (1, 2) or a.shape[0] != n:
        raise InputError(f"{name} must have shape ({n},) or ({n}, c), got {a.shape}")
    a = np.ascontiguousarray(a, dtype=np.complex128 if a.dtype.kind == "c" else np.float64)
    if not np.isfinite(a).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(a))[0])
        raise InputError(f"{name} holds NaN or Inf, first at index {where if a.ndim > 1 else where[0]}")
    return a


def check_targets(y: Any, n_rows: int) -> Array | None:
    """Check targets or labels; they stay on this machine."""
    if y is None:
        return None
    a = np.asarray(y)
    if a.ndim not in (1, 2) or a.shape[0] != n_rows:
        raise InputError(f"y must have shape ({n_rows},) or ({n_rows}, c) to fit X, got {a.shape}")
    if a.dtype.kind not in "biufc":
        raise InputError(f"y must be numeric, got dtype {a.dtype}; encode labels as numbers first")
    if not np.isfinite(a).all():
        row = int(np.argwhere(~np.isfinite(a))[0][0])
        raise InputError(f"y holds NaN or Inf, first in row {row}")
    return a


def choose_code(
    code: str | Code,
    n_workers: int | None,
    k: int | None,
    params: dict[str, Any],
    source: Source,
    *,
    allow_fill: bool,
    axes: Sequence[int],
) -> Code:
    """Make the code that ``code`` names, or choose one; a sparse matrix is kept sparse unless asked otherwise."""
    if isinstance(code, Code):
        if n_workers is not None or k is not None or params:
            raise InputError("a code object brings its own parameters; n_workers, k and others go with a name")
        chosen = code
    elif code == "auto" and source.sparse:
        for axis in axes:
            chosen = choose_code_for_sparse(source, _sparse_candidates(n_workers, k), axis=axis)
        return chosen
    else:
        chosen = get_code("polar" if code == "auto" else code, n_workers=n_workers, k=k, **params)
    if chosen.kind not in {"data", "multi-message"} or chosen.target != "blocks":
        raise InputError(f"{chosen.name!r} is a {chosen.kind} code; products and coded data need a data code")
    if source.sparse:
        for axis in axes:
            choose_code_for_sparse(source, (), requested=chosen, axis=axis, allow_fill=allow_fill)
    return chosen


def _sparse_candidates(n_workers: int | None, k: int | None) -> list[Code]:
    """List the codes that keep a sparse matrix sparse, the most straggler-tolerant first."""
    if n_workers is not None and k is not None:
        return [get_code("replication", n_workers=n_workers, k=k, allow_uneven=True)]
    return [get_code("replication", n_workers=n_workers, k=k)]
