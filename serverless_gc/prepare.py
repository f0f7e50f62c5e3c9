"""Checks of what a user hands over, and the choice of a code: all of it before anything is stored or invoked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from types import UnionType
from typing import Any

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Code
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.multi import LagrangeMultiMessage
from serverless_gc.codes.projective import ProjectiveCode
from serverless_gc.codes.registry import available, code_class, parameters
from serverless_gc.codes.registry import get as get_code
from serverless_gc.encode import Source, choose_code_for_sparse
from serverless_gc.errors import InputError
from serverless_gc.refusals import did_you_mean, unknown_argument, unknown_name
from serverless_gc.types import Array
from serverless_gc.worker import losses

__all__ = [
    "check_number",
    "check_operand",
    "check_option",
    "check_point",
    "check_publish",
    "check_seconds",
    "check_targets",
    "check_whole",
    "choose_code",
    "find_loss",
    "refuse_gradient_code",
    "refuse_unknown",
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


def check_publish(publish: Any) -> None:
    """Raise unless it is None or a number of messages."""
    if publish is not None and (isinstance(publish, bool) or not hasattr(publish, "__index__") or publish < 0):
        raise InputError(f"publish must be an integer of at least 0, or None for the code's choice, got {publish!r}")


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
            f"losses of X @ w, whose gradient is X.T @ residual; a function of your own needs a gradient code "
            f"({_gradient_codes()})"
        )
    if loss not in losses.LOSSES:
        raise InputError(unknown_name("loss", loss, sorted(losses.LOSSES)))
    return losses.get(loss)


def _gradient_codes() -> str:
    known = sorted(available(), key=lambda info: not info.exact)  # exact ones first
    names = [f"code={info.name!r}" for info in known if info.kind == "gradient"]
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") or "one of serverless_gc.codes.gradient"


def refuse_gradient_code(code: str | Code) -> None:
    """Raise `InputError` if a code, by name or as an object, is one that gives no products."""
    if isinstance(code, Code):
        name, sums = code.name, code.target == "sum" or code.kind == "gradient"
    else:
        name = code
        kinds = {info.name: info.kind for info in available()}
        sums = kinds.get(name) == "gradient" or (
            name in kinds and issubclass(code_class(name), GradientCode | LagrangeMultiMessage)
        )
    if sums:
        raise InputError(
            f"{name!r} is a gradient code, which gives gradients and no products: use a data code (polar, mds, ...)"
        )


def refuse_unknown(who: str, code: str | Code, params: Mapping[str, Any], *calls: Callable[..., Any]) -> None:
    """Raise `InputError` for a keyword that is neither an argument of one of the calls nor a parameter of the code."""
    names = [name for call in calls for name in signature(call).parameters if name not in {"self", "params"}]
    general = list(dict.fromkeys([*names, "n_workers", "k"]))
    special = [] if isinstance(code, Code) else parameters("polar" if code == "auto" else code)
    for word in params:
        # With a code object no parameter is allowed, and that is said where it is used.
        if word not in {*special, *general} and (isinstance(code, str) or did_you_mean(word, general)):
            with_code = "" if isinstance(code, Code) else f" with code={code!r}"
            raise InputError(unknown_argument(f"{who}{with_code}", word, [*general, *special]))


def check_point(w: Any, name: str) -> Array:
    """Check and promote where a user's function is to be evaluated: numbers of any shape."""
    a = np.asarray(w)
    if a.ndim == 0 or a.size == 0:
        raise InputError(f"{name} must be a non-empty array, got shape {a.shape}")
    flat = check_operand(a.reshape(-1), a.size, name)
    return flat.reshape(a.shape)


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
    if isinstance(chosen, ProjectiveCode):
        return chosen
    if chosen.kind == "matmul":
        raise InputError(f"{chosen.name!r} multiplies two coded matrices: sgc.coded_matmul(A, B, code={chosen.name!r})")
    if chosen.target == "blocks" and chosen.kind not in {"data", "multi-message"}:
        raise InputError(
            f"{chosen.name!r} is a {chosen.kind} code; encoded data need a data code, or a gradient code that sums "
            "gradients of partitions"
        )
    if chosen.target == "sum" and not isinstance(chosen, GradientCode | LagrangeMultiMessage):
        raise InputError(f"{chosen.name!r} gives sums only, and is no gradient code: take another one")
    if source.sparse and not isinstance(chosen, GradientCode):
        for axis in axes:
            choose_code_for_sparse(source, (), requested=chosen, axis=axis, allow_fill=allow_fill)
    return chosen


def _sparse_candidates(n_workers: int | None, k: int | None) -> list[Code]:
    """List the codes that keep a sparse matrix sparse, the most straggler-tolerant first."""
    if n_workers is not None and k is not None:
        return [get_code("replication", n_workers=n_workers, k=k, allow_uneven=True)]
    return [get_code("replication", n_workers=n_workers, k=k)]
