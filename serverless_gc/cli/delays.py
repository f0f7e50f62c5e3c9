"""Delays as a command line names them: a law, or a recorded trace."""

from __future__ import annotations

from pathlib import Path

from serverless_gc.errors import InputError
from serverless_gc.stragglers import Law, Trace, laws, parse_law

__all__ = ["delay_named", "law_named"]

_RECORD = "serverless-gc demo --record FILE records a trace"


def delay_named(delay: str, trace: Path | None = None) -> Law | Trace:
    """Return the trace if there is one, else what ``--delay`` names: a law, or a file with a trace.

    Raises
    ------
    InputError
        If it is neither, or the file is no trace; names the option.
    """
    if trace is not None:
        return _loaded("--trace", trace)
    return _loaded("--delay", delay) if _is_file(delay) else law_named(delay)


def law_named(delay: str) -> Law:
    """Return the law that ``--delay`` names.

    Raises
    ------
    InputError
        If it names none, or a file.
    """
    if _is_file(delay):
        raise InputError(
            f"--delay {delay}: a law is wanted here, as name:parameter=value,..., and no file; serverless-gc simulate "
            "and plan replay traces"
        )
    try:
        return parse_law(delay)
    except InputError as error:
        raise InputError(f"--{error}") from None  # it begins with "delay: "


def _loaded(option: str, path: str | Path) -> Trace:
    try:
        return Trace.load(path)
    except InputError as error:
        raise InputError(f"{option}: {error}; {_RECORD}") from None


def _is_file(delay: str) -> bool:
    """Whether it looks like a path, and not like a law."""
    name = delay.partition(":")[0].strip().replace("_", "-")
    known = {usage.partition(":")[0] for usage in laws()}
    return name not in known and (Path(delay).is_file() or bool(Path(name).suffix) or "/" in name)
