"""A rig for a shell: prints the variables to export, and serves until Ctrl-C."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from typing import get_args

from serverless_gc.errors import ServerlessGCError
from serverless_gc.testing.rig.client import Rig
from serverless_gc.testing.rig.settings import DEFAULT_MEMORY, Memory

__all__ = ["main"]


def main() -> int:
    """Serve; the exit status is 1 if that was not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m serverless_gc.testing.rig",
        description="An emulated AWS account on 127.0.0.1 whose Lambda runs what is deployed.",
    )
    parser.add_argument("--port", type=int, default=0, help="where to listen (default: a free port)")
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs functions (default: this one)")
    parser.add_argument("--concurrency", type=int, default=1000, help="concurrent executions of the account")
    parser.add_argument("--memory", choices=get_args(Memory), default=DEFAULT_MEMORY, help="what a memory size does")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with Rig(**vars(options)) as rig:
            for name, value in rig.environment().items():
                sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
            sys.stdout.write("# an emulated AWS account; Ctrl-C ends it and forgets everything\n")
            sys.stdout.flush()
            stop.wait()
    except ServerlessGCError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
