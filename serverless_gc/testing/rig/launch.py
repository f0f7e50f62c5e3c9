"""From a deployed function to a process: its code, its layers, the variables that Lambda sets."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from serverless_gc.testing.moto_server import MOTO_ENVIRONMENT
from serverless_gc.testing.rig.code import CodeStore, Unrunnable
from serverless_gc.testing.rig.environment import Process
from serverless_gc.testing.rig.interpreter import BOOT, Interpreter
from serverless_gc.testing.rig.moto_seam import Function
from serverless_gc.testing.rig.settings import Memory

__all__ = ["Launcher"]

# What tells libraries about this machine's processor: without it some compute wrongly on some.
_OF_THE_MACHINE = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


class Launcher:
    """Prepares processes.

    Parameters
    ----------
    root
        Folder for all that is unpacked and written.
    interpreter
        Runs the functions.
    memory
        How memory is limited.

    Attributes
    ----------
    url
        Where the rig listens, for the functions' own AWS clients; set before anything is prepared.
    """

    def __init__(self, root: Path, interpreter: Interpreter, memory: Memory) -> None:
        self.url = ""
        self._root = root
        self._interpreter = interpreter
        self._memory = memory
        self._code = CodeStore(root, interpreter)

    async def prepare(self, function: Function, stream: str) -> Process:
        """Unpack what has to be, and describe the process.

        Raises
        ------
        Unrunnable
            If the function cannot run here.
        """
        if function.package != "Zip" or not function.runtime.startswith("python"):
            raise Unrunnable(
                "InvalidRuntimeException",
                f"the rig runs Python functions from zips; {function.name} is a {function.package} of runtime "
                f"{function.runtime or 'unknown'}",
            )
        task_root = await self._code.unpack([function.code])
        layers = await self._code.unpack(function.layers) if function.layers else None
        folder = Path(tempfile.mkdtemp(prefix="environment-", dir=self._root))
        return Process(
            # No site-packages and no bytecode written: /var/task is read-only, and knows no other packages.
            command=(self._interpreter.path, "-S", "-B", "-c", BOOT, function.handler),
            variables=self._variables(function, stream, task_root, layers, folder),
            task_root=task_root,
            folder=folder,
            memory_mb=function.memory_mb,
            memory=self._memory,
        )

    def differs(self, function: Function) -> str:
        """Return the line to log if the function asks for another Python than the rig's; empty if not."""
        if function.runtime == self._interpreter.name:
            return ""
        return f"RIG\truntime {function.runtime} was asked for, running on Python {self._interpreter.version}"

    def _variables(
        self, function: Function, stream: str, task_root: Path, layers: Path | None, folder: Path
    ) -> Mapping[str, str]:
        runtime = self._interpreter.runtime
        python = [str(task_root)]
        libraries = [f"{task_root}/lib", str(task_root)]
        path = [p for p in os.environ.get("PATH", os.defpath).split(os.pathsep) if p]
        if layers is not None:
            python += [f"{layers}/python/lib/{self._interpreter.name}/site-packages", f"{layers}/python"]
            libraries.append(f"{layers}/lib")
            path.append(f"{layers}/bin")
        libraries += [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if p]
        defaults = {
            **MOTO_ENVIRONMENT,
            "AWS_SESSION_TOKEN": "testing",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ENDPOINT_URL_S3": self.url,
            "HOME": str(folder),
            "LANG": "en_US.UTF-8",
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "PATH": os.pathsep.join(path),
            "TMPDIR": str(folder),
            "TZ": ":UTC",
            **{name: os.environ[name] for name in _OF_THE_MACHINE if name in os.environ},
        }
        reserved = {
            "_HANDLER": function.handler,
            "AWS_DEFAULT_REGION": function.region,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{self._interpreter.name}",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_VERSION": function.version,
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": stream,
            "AWS_REGION": function.region,
            "LAMBDA_RUNTIME_DIR": str(runtime),
            "LAMBDA_TASK_ROOT": str(task_root),
        }
        variables = {**defaults, **dict(function.variables), **reserved}
        asked = [variables["PYTHONPATH"]] if variables.get("PYTHONPATH") else []
        variables["PYTHONPATH"] = os.pathsep.join([*python, *asked, str(runtime)])
        return variables
