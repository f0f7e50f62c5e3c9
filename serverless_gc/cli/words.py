"""How commands print."""

from __future__ import annotations

from rich.console import Console

__all__ = ["make_console"]

_FILE_WIDTH = 100


def make_console() -> Console:
    """Make a console; a file or pipe, which has no width of its own, gets one that fits tables."""
    console = Console()
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console
