"""The ``serverless-gc`` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command; errors of the package end it with one readable message and status 1."""
    from serverless_gc.cli.app import app
    from serverless_gc.errors import ServerlessGCError

    try:
        app()
    except ServerlessGCError as exc:
        print(f"serverless-gc: {exc}", file=sys.stderr)
        sys.exit(1)
    except MemoryError as exc:
        print(f"serverless-gc: not enough memory: {exc}; take fewer workers, blocks or rows", file=sys.stderr)
        sys.exit(1)
