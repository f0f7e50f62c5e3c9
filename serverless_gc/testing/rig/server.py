"""The rig's process: reads its settings from one line, tells its port in another, serves until its input ends.

Its folder is removed by the process and, should that be killed, by its owner.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from pathlib import Path

from serverless_gc.errors import ConfigError
from serverless_gc.testing.rig import moto_seam
from serverless_gc.testing.rig.front import Front
from serverless_gc.testing.rig.interpreter import Interpreter
from serverless_gc.testing.rig.launch import Launcher
from serverless_gc.testing.rig.logs import Logs
from serverless_gc.testing.rig.plane import Plane
from serverless_gc.testing.rig.settings import Settings

__all__ = ["main"]


async def _serve(settings: Settings, root: Path, interpreter: Interpreter) -> None:
    moto_port, end_moto = moto_seam.serve()
    account = moto_seam.Account()
    log = Logs(account.write_log)
    loop = asyncio.get_running_loop()
    # The port is known before the plane is asked for anything: functions are told where the rig listens.
    launcher = Launcher(root, interpreter, settings.memory)
    plane = Plane(settings, account, launcher, log)
    front = Front(plane, log, moto_port)
    try:
        port = await front.open(settings.port)
        launcher.url = f"http://127.0.0.1:{port}"
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads what moto may print
        ended = asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), ended.set)
        await ended.wait()
    finally:
        front.close()
        await plane.close()
        end_moto()


def main() -> int:
    """Serve, with a folder for files as the argument.

    The exit status is 1 if that was not possible, and standard error says why in one line.
    """
    settings = Settings.from_line(sys.stdin.readline())
    root = Path(sys.argv[1])
    logging.disable(logging.WARNING)
    try:
        interpreter = Interpreter.prepare(settings.python, root / "runtime")
        moto_seam.prepare()
        asyncio.run(_serve(settings, root, interpreter))
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
