"""Delays as a command line names them: a law, or a recorded trace."""

from __future__ import annotations

from pathlib import Path

from serverless_gc.stragglers import Law, Trace, laws, parse_law

__all__ = ["delay_named"]


def delay_named(delay: str, trace: Path | None = None) -> Law | Trace:
    """Return the trace if there is one, else what ``delay`` names: a law, or a file with a trace.

    Raises
    ------
    InputError
        If it is neither, or the file is no trace.
    """
    if trace is not None:
        return Trace.load(trace)
    name = delay.partition(":")[0].strip().replace("_", "-")
    known = {usage.partition(":")[0] for usage in laws()}
    if name not in known and (Path(delay).is_file() or Path(name).suffix or "/" in name):
        return Trace.load(delay)
    return parse_law(delay)
