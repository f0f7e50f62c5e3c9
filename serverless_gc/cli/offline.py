"""``serverless-gc demo --offline``: the deployed stack, on an emulated account of this machine."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Iterator

__all__ = ["offline_account"]

_ARCHITECTURES = {"aarch64": "arm64", "arm64": "arm64"}


@contextlib.contextmanager
def offline_account() -> Iterator[None]:
    """Run an emulated AWS account with the stack deployed to it while the block runs.

    The template and the zip are the real ones; the zip is built for this machine's own Python and processor, for it
    is here that it runs.

    Raises
    ------
    ConfigError
        If the emulation is not installed (``pip install 'serverless-gc[rig]'``) or a deployment fails.
    """
    from serverless_gc.cli.deploy import bring_up, make_console
    from serverless_gc.deploy.stack import DEFAULT_NAME, parameters_from
    from serverless_gc.testing.rig import Rig

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    arch = _ARCHITECTURES.get(platform.machine(), "x86_64")
    with Rig() as rig, rig.activated():
        console = make_console()
        bring_up(console, DEFAULT_NAME, None, parameters_from(python=python, arch=arch))
        console.print("This account is emulated on this machine, and gone when the command ends.")
        yield
