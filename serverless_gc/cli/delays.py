"""Delays as they are named on a command line: a law with its parameters, or a recorded trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from serverless_gc import stragglers
from serverless_gc.errors import InputError
from serverless_gc.stragglers import Law, Trace

__all__ = ["delay_named"]

_LAWS: dict[str, Callable[..., Law]] = {
    "lambda": stragglers.lambda_short,
    "lambda-heavy": stragglers.lambda_heavy,
    "lambda-mild": stragglers.lambda_mild,
    "shifted-exponential": stragglers.ShiftedExponential,
    "pareto": stragglers.Pareto,
}


def delay_named(text: str, trace: Path | None) -> Law | Trace:
    """Return the trace if there is one, else the law."""
    if trace is not None:
        return Trace.load(trace)
    name, _, rest = text.partition(":")
    if name not in _LAWS:
        raise InputError(f"no law is called {name!r}; there are {', '.join(_LAWS)}")
    values = dict(part.split("=") for part in rest.split(",") if part)
    return _LAWS[name](**{key: float(value) for key, value in values.items()})
