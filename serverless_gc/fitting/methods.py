"""Which rule makes the steps, and how long they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from serverless_gc.errors import InputError
from serverless_gc.optim import (
    FISTA,
    SGD,
    Adam,
    AMSGrad,
    Backtracking,
    DualAveraging,
    Momentum,
    NaturalGradient,
    Nesterov,
    ProximalGradient,
    QuasiNewton,
    Searched,
    SketchedNewton,
    soft_threshold,
)
from serverless_gc.optim.line_search import Searching
from serverless_gc.optim.proximal import Prox
from serverless_gc.optim.schedules import Rate, as_schedule
from serverless_gc.prepare import check_number
from serverless_gc.refusals import unknown_name
from serverless_gc.types import Array, Optimizer

__all__ = [
    "METHODS",
    "SECOND_ORDER",
    "Fisher",
    "Plan",
    "Rule",
    "SecondOrder",
    "gradient_mapping",
    "iterate_of",
    "plan",
    "words",
]

Rule: TypeAlias = Optimizer | Searching

METHODS = (
    *("adam", "amsgrad", "dual-averaging", "fista", "gradient-descent"),
    *("lbfgs", "momentum", "natural-gradient", "nesterov", "proximal", "sketched-newton"),
)
"""Names that `minimize` knows."""

SECOND_ORDER = ("natural-gradient", "sketched-newton")
"""Those that ask for the curvature of the loss."""

Fisher: TypeAlias = Literal["diagonal", "full"]

_SMOOTH: dict[str, Callable[[Rate], Rule]] = {
    "gradient-descent": SGD,
    "momentum": Momentum,
    "nesterov": lambda lr: FISTA(lr, _stay),  # the same steps, and it begins anew when the momentum points uphill
}
_SCALED: dict[str, Callable[..., Rule]] = {"adam": Adam, "amsgrad": AMSGrad}
_BACKTRACKED = {"gradient-descent": False, "proximal": False, "nesterov": True, "fista": True}


@dataclass(frozen=True, slots=True)
class SecondOrder:
    """What second-order methods are told besides.

    Attributes
    ----------
    l2
        Of the objective: it is part of the Hessian.
    damping
        Added to the diagonal on top.
    fisher
        Which Fisher matrix natural gradients take.
    """

    l2: float = 0.0
    damping: float = 0.0
    fisher: Fisher = "diagonal"

    def check(self, method: Any) -> None:
        """Raise `InputError` unless it is valid and goes with the method."""
        for name, value in (("l2", self.l2), ("damping", self.damping)):
            if not 0 <= check_number(name, value) < np.inf:
                raise InputError(f"{name} must be a finite number of at least 0, got {value!r}")
        if self.fisher not in get_args(Fisher):
            raise InputError(f"fisher must be one of {', '.join(get_args(Fisher))}, got {self.fisher!r}")
        if self.damping and method not in SECOND_ORDER:
            raise InputError(f"damping goes with method={' and '.join(map(repr, SECOND_ORDER))}, got {method!r}")
        if self.fisher != "diagonal" and method != "natural-gradient":
            raise InputError(f"fisher goes with method='natural-gradient', got {method!r}")


@dataclass(frozen=True, slots=True)
class Plan:
    """How a training will step.

    Attributes
    ----------
    name
        For reports.
    needs_smoothness
        Whether ``make`` wants to be told a bound of the curvature.
    make
        Bound of the curvature, or None where there is none, to the rule.
    prox
        The proximal map in use, if any.
    l1
        Weight of ``||w||_1``.
    """

    name: str
    needs_smoothness: bool
    make: Callable[[float | None], Rule]
    prox: Prox | None = None
    l1: float = 0.0


def plan(
    method: str | Rule, lr: Rate | str | None, l1: float, prox: Prox | None, second: SecondOrder = SecondOrder()
) -> Plan:
    """Check what is asked for and say how the rule is made.

    Raises
    ------
    InputError
        If the method is unknown or an argument does not go with it.
    """
    if not 0 <= check_number("l1", l1) < np.inf:
        raise InputError(f"l1 must be a finite number of at least 0, got {l1!r}")
    if l1 and prox is not None:
        raise InputError("l1 and prox are two ways to say one thing: give one of them")
    second.check(method)
    if not isinstance(method, str):
        return _given(method, lr, l1, prox)
    if method not in METHODS:
        raise InputError(unknown_name("method", method, METHODS))
    proximal = method in {"proximal", "fista"}
    if proximal and not l1 and prox is None:
        raise InputError(f"method={method!r} needs l1= or prox=")
    if not proximal and (l1 or prox is not None):
        raise InputError(f"l1 and prox go with method='proximal' and 'fista', got method={method!r}")
    if isinstance(lr, str) and lr not in {"lipschitz", "backtracking"}:
        raise InputError(f"lr must be a number, a function, 'lipschitz' or 'backtracking', got {lr!r}")
    if lr is not None and not isinstance(lr, str):
        as_schedule(lr)
    if method == "lbfgs":
        if lr is not None:
            raise InputError("method='lbfgs' finds its step lengths by a line search: lr does not go with it")
        return Plan(method, False, lambda _: QuasiNewton())
    if method in SECOND_ORDER:
        return _second_order(method, lr, second)
    if method in _SCALED:
        if isinstance(lr, str):
            raise InputError(f"lr={lr!r} does not go with method={method!r}: its steps do not scale with the gradient")
        make = _SCALED[method]
        return Plan(method, False, lambda _: make() if lr is None else make(lr=lr))
    chosen = prox if prox is not None else (soft_threshold(l1) if l1 else None)
    return Plan(method, lr in {None, "lipschitz"}, lambda bound: _rule(method, lr, bound, chosen), chosen, l1)


def _given(method: Any, lr: Any, l1: float, prox: Prox | None) -> Plan:
    if not isinstance(method, Searching) and not (hasattr(method, "init") and hasattr(method, "step")):
        raise InputError(f"method must be a name or an optimizer with init and step, got {method!r}")
    if lr is not None or l1 or prox is not None:
        raise InputError("an optimizer object brings its own lr and prox; lr, l1 and prox go with a name")
    return Plan(type(method).__name__, False, lambda _: method, getattr(method, "prox", None))


def _second_order(method: str, lr: Rate | str | None, second: SecondOrder) -> Plan:
    """Plan steps that know the curvature: searched for unless their length is given."""
    if lr == "lipschitz":
        raise InputError(f"lr='lipschitz' does not go with method={method!r}: the curvature scales its steps")
    damping = second.l2 + second.damping
    length: Any = 1.0 if lr is None or isinstance(lr, str) else lr
    rule: SketchedNewton | NaturalGradient
    if method == "sketched-newton":
        rule = SketchedNewton(length, l2=damping)
    else:
        # Gradients of all rows bring a Fisher matrix of all rows: nothing is gained by remembering older ones.
        kind: Literal["diag", "full"] = "diag" if second.fisher == "diagonal" else "full"
        rule = NaturalGradient(length, kind, damping, memory=0.0)
    diagonal = rule.needs == "sum_of_squares"
    searched = lr is None or isinstance(lr, str)
    return Plan(method, False, lambda _: Searched(rule, remembers=diagonal) if searched else rule)


def _rule(method: str, lr: Rate | str | None, bound: float | None, prox: Prox | None) -> Rule:
    """Make a rule whose step length is given, or follows from the smoothness, or is searched for."""
    if lr == "backtracking" or (lr is None and bound is None):
        if method not in _BACKTRACKED:
            raise InputError(
                f"method={method!r} needs lr=: it has no line search, and the curvature of this loss is not known"
            )
        return Backtracking(accelerate=_BACKTRACKED[method], prox=prox)
    if lr == "lipschitz" and bound is None:
        raise InputError("lr='lipschitz' needs a loss whose curvature is bounded; give lr= as a number")
    # A bound of 0 says that the gradient is the same everywhere: any length is as good as another.
    length: Any = (1.0 / bound if bound else 1.0) if isinstance(lr, str) or lr is None else lr
    if method == "dual-averaging":
        if callable(length):
            raise InputError("method='dual-averaging' needs lr as a number: its steps shrink by themselves")
        return DualAveraging(1.0 / length)
    if method in _SMOOTH:
        return _SMOOTH[method](length)
    assert prox is not None  # noqa: S101 - plan has checked it
    return FISTA(length, prox) if method == "fista" else ProximalGradient(length, prox)


def _stay(x: Array, step: float) -> Array:  # noqa: ARG001 - the proximal map of nothing
    return x


def words(value: Any) -> str:
    """Describe an option for a checkpoint: equal options, equal words, in whichever process.

    Examples
    --------
    >>> words(SGD(0.5)), words(np.arange(3.0))[:18]
    ('SGD(lr=0.5)', 'float64 (3,) sha25')
    """
    if isinstance(value, np.ndarray):
        from hashlib import sha256

        return f"{value.dtype} {value.shape} sha256 {sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = ", ".join(f"{f.name}={words(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"{type(value).__name__}({inside})"
    if callable(value):
        module = getattr(value, "__module__", "")
        return f"function {module}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(words, value))}]"
    return repr(value)


def gradient_mapping(rule: Any, prox: Prox | None, x: Array, gradient: Array, t: int) -> tuple[Array, Array]:
    """Return what vanishes at a minimum, and where a step along it leads.

    Without a proximal map that is the gradient, and ``x`` itself; with one ``(x - w) / lr`` and
    ``w = prox(x - lr * gradient, lr)``.
    """
    if prox is None:
        return gradient, x
    lr = as_schedule(rule.lr)(t) if hasattr(rule, "lr") else 1.0
    w = prox(x - lr * gradient, lr)
    return (x - w) / lr, w


def iterate_of(rule: Any, x: Array, state: Any) -> Array:
    """Return the iterate: rules that look ahead take gradients elsewhere."""
    ahead = isinstance(rule, (Nesterov, FISTA)) or (isinstance(rule, Backtracking) and rule.accelerate)
    found: Array = state[0] if ahead else x
    return found
