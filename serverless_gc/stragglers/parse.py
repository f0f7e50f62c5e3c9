"""Laws of delay by name, as they are written on a command line: ``shifted-exponential:shift=1,rate=2``."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable

from serverless_gc.errors import InputError
from serverless_gc.stragglers.families import Bimodal, Gamma, LogNormal, Lomax, Uniform, Weibull
from serverless_gc.stragglers.lambda_like import LambdaLike
from serverless_gc.stragglers.laws import Constant, Exponential, Law, Pareto, ShiftedExponential, check_positive
from serverless_gc.stragglers.presets import lambda_heavy, lambda_mild

__all__ = ["laws", "parse_law"]


def _pareto(scale: float, shape: float) -> Law:
    check_positive(scale=scale, shape=shape)  # the law calls them minimum and alpha
    return Pareto(scale, shape)


def _lambda(
    shift: float = 0.08,
    rate: float = 50.0,
    warm: float = 0.025,
    cold: float = 0.5,
    p_cold: float = 0.01,
    latency: float = 0.03,
    bandwidth: float = 30e6,
    read_bytes: float = 0.0,
    write_bytes: float = 0.0,
) -> Law:
    compute = ShiftedExponential(shift, rate)
    return LambdaLike(compute, warm, cold, p_cold, latency, bandwidth, read_bytes, write_bytes)


def _lomax(scale: float, shape: float) -> Law:
    check_positive(shape=shape)
    return Lomax(scale, shape)


def _lognormal(median: float, sigma: float) -> Law:
    return LogNormal(median, sigma)


def _uniform(high: float, low: float = 0.0) -> Law:
    return Uniform(low, high)


def _bimodal(fast: float, slow: float, p_slow: float = 0.1) -> Law:
    return Bimodal(fast, slow, p_slow)


_LAWS: dict[str, Callable[..., Law]] = {
    "bimodal": _bimodal,
    "constant": Constant,
    "exponential": Exponential,
    "gamma": Gamma,
    "lambda": _lambda,
    "lambda-heavy": lambda_heavy,
    "lambda-mild": lambda_mild,
    "lognormal": _lognormal,
    "lomax": _lomax,
    "pareto": _pareto,
    "shifted-exponential": ShiftedExponential,
    "uniform": _uniform,
    "weibull": Weibull,
}


def laws() -> tuple[str, ...]:
    """Return how every law is written: its name and its parameters, those with a default in brackets.

    Examples
    --------
    >>> laws()[:2]
    ('bimodal:fast,slow,[p_slow=0.1]', 'constant:seconds')
    """
    return tuple(_usage(name) for name in _LAWS)


def parse_law(text: str) -> Law:
    """Make a law of delay from its name and parameters.

    Parameters
    ----------
    text
        ``name`` or ``name:parameter=value,...``; see `laws`. Names may have ``_`` for ``-``. Times are in
        seconds, rates per second.

    Raises
    ------
    InputError
        If the name or a parameter is unknown, given twice or missing, or a value is refused.

    Examples
    --------
    >>> parse_law("shifted-exponential:shift=1,rate=2")
    ShiftedExponential(shift=1.0, rate=2.0)
    >>> round(parse_law("pareto:scale=1,shape=2.5").mean(), 6)
    1.666667
    >>> round(parse_law("lambda:p_cold=0").mean(), 3)
    0.185
    """
    name, _, rest = text.strip().partition(":")
    name = name.replace("_", "-")
    if name not in _LAWS:
        near = difflib.get_close_matches(name, _LAWS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"delay: no law is called {name!r}; {hint}there are {', '.join(_LAWS)}")
    make = _LAWS[name]
    known = inspect.signature(make).parameters
    values: dict[str, float] = {}
    for part in rest.split(",") if rest.strip() else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in known:
            raise InputError(f"delay: {part.strip()!r} is no parameter=value of {name!r}: write {_usage(name, '=...')}")
        if key in values:
            raise InputError(f"delay: {key} of {name!r} is given twice: give it once")
        values[key] = _number(key, value, name)
    missing = [key for key, p in known.items() if p.default is p.empty and key not in values]
    if missing:
        raise InputError(f"delay: {name!r} needs {' and '.join(missing)}: write {_usage(name, '=...')}")
    try:
        return make(**values)
    except InputError as error:
        raise InputError(f"delay: {error}, in {text!r}: write {_usage(name, '=...')}") from None


def _number(key: str, text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"delay: {key} of {name!r} must be a number, got {text!r}") from None
    if not math.isfinite(value):
        raise InputError(f"delay: {key} of {name!r} must be finite, got {text!r}")
    return value


def _usage(name: str, wanted: str = "") -> str:
    """Say how a law is written; ``wanted`` stands behind the parameters that have no default."""
    parameters = inspect.signature(_LAWS[name]).parameters.values()
    words = [f"{p.name}{wanted}" if p.default is p.empty else f"[{p.name}={p.default:g}]" for p in parameters]
    return f"{name}:{','.join(words)}" if words else name
