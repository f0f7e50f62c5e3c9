"""The Python that runs functions: whose it is, and the few packages that Lambda's runtime brings along.

Functions must not see what happens to be installed beside the rig: a zip that lacks NumPy has to fail here too. So
their interpreter runs without its site-packages, and a folder of links stands for Lambda's ``/var/runtime``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from serverless_gc.errors import ConfigError

__all__ = ["BOOT", "Interpreter"]

_PROBE = """
import importlib.metadata as metadata, json, sys, sysconfig
found = {}
for name in sys.argv[1:]:
    try:
        found_here = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    tops = {f.parts[0] for f in found_here.files or ()} - {"..", "__pycache__"}
    found[name] = sorted(str(found_here.locate_file(top)) for top in tops)
print(json.dumps({"version": sys.version_info[:3], "soabi": sysconfig.get_config_var("SOABI") or "", "found": found}))
"""

_RUNTIME = ("awslambdaric", "simplejson", "snapshot-restore-py")
_PREINSTALLED = ("boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "six", "urllib3")

# Standard input is a pipe whose other end the rig holds: when the rig is gone, however, SIGIO ends the whole group.
BOOT = """
import fcntl, os, runpy, site
fcntl.fcntl(0, fcntl.F_SETOWN, -os.getpgrp())
fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC)
site.setquit()
runpy.run_module("awslambdaric", run_name="__main__", alter_sys=True)
"""
"""What an execution environment runs; the handler is its argument."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter for functions.

    Attributes
    ----------
    path
        Its executable.
    version
        Such as ``"3.13.0"``.
    soabi
        Tag of the extension modules it can load, such as ``"cpython-313-x86_64-linux-gnu"``.
    runtime
        Folder with the runtime client and boto3, if that is installed.
    """

    path: str
    version: str
    soabi: str
    runtime: Path

    @property
    def name(self) -> str:
        """Lambda's name of the runtime, such as ``"python3.13"``."""
        return "python" + ".".join(self.version.split(".")[:2])

    @classmethod
    def prepare(cls, path: str, runtime: Path) -> Interpreter:
        """Ask an interpreter what it is, and link its runtime client into ``runtime``, a folder to be made.

        Raises
        ------
        ConfigError
            If it does not run, or the runtime client is not installed for it.
        """
        # Packages that this process was told of by PYTHONPATH are for its own interpreter alone.
        options = () if path == sys.executable else ("-I",)
        command = [path, *options, "-c", _PROBE, *_RUNTIME, *_PREINSTALLED]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - the user's choice
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", "") or error
            raise ConfigError(f"the interpreter for functions, {path}, does not run: {said}") from error
        facts = json.loads(done.stdout)
        missing = [name for name in _RUNTIME if not facts["found"].get(name)]
        if missing:
            raise ConfigError(
                f"functions run under AWS's runtime interface client, and {path} has no {', '.join(missing)}: "
                f"run `{path} -m pip install 'awslambdaric>=4.2,<5'` (or install serverless-gc[rig] there)"
            )
        runtime.mkdir()
        for place in (Path(place) for places in facts["found"].values() for place in places):
            link = runtime / place.name
            if not link.is_symlink():
                link.symlink_to(place)
        return cls(path, ".".join(map(str, facts["version"])), facts["soabi"], runtime)
