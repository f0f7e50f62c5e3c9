"""Where checkpoints are kept: a file of this machine, or an object of a store."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from pathlib import Path
from typing import Any

from serverless_gc.engine import VirtualHost
from serverless_gc.errors import InputError, ObjectNotFound
from serverless_gc.optim.checkpoint import Checkpoint, read_file, write_file
from serverless_gc.rounds.resources import Resources
from serverless_gc.store import Store, open_store
from serverless_gc.wire import FrameError
from serverless_gc.wire.frame import MAGIC

__all__ = ["Place", "random_states", "restore_random_states"]

_log = logging.getLogger(__name__)


class Place:
    """One checkpoint's place.

    Parameters
    ----------
    where
        A path, or a URL ``file:///dir/name`` or ``s3://bucket/prefix/name``.

    Raises
    ------
    InputError
        If it is neither, or its folder does not exist.
    """

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self.where = os.fspath(where)
        self._store: Store | None = None
        if "://" in self.where:
            address, mark, query = self.where.partition("?")
            folder, _, self._key = address.rpartition("/")
            if not self._key or folder.endswith(("/", ":")) or address.startswith("memory:"):
                raise InputError(f"checkpoint must be a path, file:///dir/name or s3://bucket/name, got {self.where!r}")
            self._store = open_store(f"{folder}{mark}{query}")
        elif not Path(self.where).absolute().parent.is_dir():
            raise InputError(f"there is no folder for the checkpoint {self.where}: make it first")

    async def read(self) -> Checkpoint | None:
        """Return the checkpoint; None if there is none, or it is damaged.

        Raises
        ------
        InputError
            If what is there is something else, which a checkpoint must not replace.
        StoreError
            If it is there and cannot be read.
        """
        data: Any
        if self._store is None:
            data = await asyncio.to_thread(read_file, Path(self.where))
        else:
            try:
                data = await self._store.get(self._key)
            except ObjectNotFound:
                data = None
        if data is None:
            return None
        try:
            return Checkpoint.from_bytes(data)
        except (FrameError, KeyError, TypeError) as exc:
            foreign = data and bytes(data[: len(MAGIC)]) != MAGIC
            if foreign or (isinstance(exc, FrameError) and exc.reason == "version"):
                raise InputError(
                    f"{self.where} is there and is no checkpoint of this version ({exc}): give checkpoint= another "
                    "name, or delete it"
                ) from exc
            _log.warning("the checkpoint %s is damaged and is ignored, the run begins anew: %s", self.where, exc)
            return None

    async def write(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint, at once and whole.

        Raises
        ------
        StoreError
            If it cannot be written.
        """
        data = checkpoint.to_bytes()
        if self._store is None:
            await asyncio.to_thread(write_file, Path(self.where), data)
        else:
            await self._store.put(self._key, data)

    async def close(self) -> None:
        """Release connections."""
        if self._store is not None:
            await self._store.close()


def random_states(res: Resources) -> dict[str, Any]:
    """Return what the next rounds depend on besides their input: their numbers, and the simulated clock and delays."""
    number = next(res.rounds)
    res.rounds = itertools.count(number)
    simulated = {"now": res.host.now, "draws": res.host.draws} if isinstance(res.host, VirtualHost) else None
    return {"round": number, "simulated": simulated}


def restore_random_states(res: Resources, states: dict[str, Any]) -> None:
    """Have the next rounds repeat those that followed; a session that is farther than that goes on as it is."""
    number = next(res.rounds)
    res.rounds = itertools.count(max(number, states["round"]))
    simulated = states["simulated"]
    if number <= states["round"] and simulated is not None and isinstance(res.host, VirtualHost):
        res.host.now, res.host.draws = simulated["now"], simulated["draws"]
