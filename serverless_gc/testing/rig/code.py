"""Deployed zips, unpacked once each, and refused when they are built for another Python or machine."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from serverless_gc.testing.rig.interpreter import Interpreter
from serverless_gc.testing.rig.moto_seam import Zip

__all__ = ["CodeStore", "Unrunnable"]

_EXTENSION = re.compile(r"\.((?:cpython|pypy|graalpy)[\w-]+)\.so$")


class Unrunnable(Exception):
    """A deployment that cannot run; ``error_type`` is in Lambda's words."""

    def __init__(self, error_type: str, message: str) -> None:
        super().__init__(message)
        self.error_type = error_type


class CodeStore:
    """Folders of code and of layers, under one root.

    Parameters
    ----------
    root
        An existing folder; whoever made it removes it.
    interpreter
        Which has to load the code.
    """

    def __init__(self, root: Path, interpreter: Interpreter) -> None:
        self._root = root
        self._interpreter = interpreter
        self._unpacked: dict[str, asyncio.Task[Path]] = {}

    async def unpack(self, zips: Sequence[Zip]) -> Path:
        """Return a folder that holds these zips, the later over the earlier; it is not to be written to.

        Raises
        ------
        Unrunnable
            If one is not a zip, or has extension modules for another interpreter.
        """
        name = hashlib.sha256("|".join(zip_.sha for zip_ in zips).encode()).hexdigest()[:32]
        task = self._unpacked.get(name)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(self._unpack, self._root / name, zips))
            self._unpacked[name] = task
        return await asyncio.shield(task)

    def _unpack(self, folder: Path, zips: Sequence[Zip]) -> Path:
        folder.mkdir()
        for zip_ in zips:
            try:
                with zipfile.ZipFile(io.BytesIO(zip_.content)) as archive:
                    self._check(archive.namelist())
                    archive.extractall(folder)
            except zipfile.BadZipFile as error:
                raise Unrunnable(
                    "InvalidZipFileException", f"Lambda could not unzip the deployment package: {error}"
                ) from error
        return folder

    def _check(self, names: Sequence[str]) -> None:
        mine = self._interpreter.soabi
        foreign = [name for name in names if (tag := _EXTENSION.search(name)) and tag[1] != mine]
        # A package may bring extension modules for several versions; it is foreign if it brings none for this one.
        if foreign and not any(name.endswith(f".{mine}.so") for name in names):
            raise Unrunnable(
                "Runtime.ImportModuleError",
                f"the deployed zip is built for another Python or machine than the rig's: it holds {foreign[0]} and "
                f"{len(foreign) - 1} more, functions run with Python {self._interpreter.version} ({mine}, "
                f"{self._interpreter.path}); build the bundle for that, or start the rig with the other interpreter "
                "(python=... or --python) after `pip install awslambdaric` there",
            )
