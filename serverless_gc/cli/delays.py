"""Delays as a command line names them: a law, or a recorded trace."""

from __future__ import annotations

from pathlib import Path

from serverless_gc.stragglers import Law, Trace, parse_law

__all__ = ["delay_named"]


def delay_named(law: str, trace: Path | None) -> Law | Trace:
    """Return the trace if there is one, else the law."""
    return parse_law(law) if trace is None else Trace.load(trace)
