"""The state of a run between two steps, as bytes: what is needed to go on as if nothing had happened.

One frame of the wire format: a JSON header and raw arrays with checksums. Nothing is unpickled.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serverless_gc.errors import InputError, StoreError
from serverless_gc.types import Array
from serverless_gc.wire import FrameError, pack, unpack

__all__ = ["Checkpoint", "read_file", "write_file"]

_KIND = "checkpoint"
_VERSION = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A run between two steps.

    Attributes
    ----------
    step
        Steps made.
    x
        Where the next gradient is wanted.
    state
        Of the optimizer.
    known
        Gradients: the last one taken, and that at ``x`` if the last step has been there; values are in ``meta``. Behind
        them what was found on the way to the second, if the next step needs it.
    history
        Names to arrays of what was recorded so far.
    settings
        What the run was asked for, in words; another run may not take it up.
    meta
        JSON types: account, random states, what was in flight.
    models
        Version to model, for what was in flight.

    Examples
    --------
    >>> import numpy as np
    >>> saved = Checkpoint(3, np.ones(2), (np.zeros(2),), settings={"method": "momentum"})
    >>> Checkpoint.from_bytes(saved.to_bytes()).state
    (array([0., 0.]),)
    """

    step: int
    x: Array
    state: tuple[Array, ...]
    known: tuple[Array, ...] = ()
    history: Mapping[str, Array] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[int, Array] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Pack into a frame."""
        header = {
            "kind": _KIND,
            "version": _VERSION,
            "step": self.step,
            "n_state": len(self.state),
            "n_known": len(self.known),
            "history": list(self.history),
            "settings": dict(self.settings),
            "meta": dict(self.meta),
            "models": list(self.models),
        }
        return pack(header, [self.x, *self.state, *self.known, *self.history.values(), *self.models.values()])

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Checkpoint:
        """Unpack a frame.

        Raises
        ------
        FrameError
            If the bytes are damaged, cut off or not a checkpoint of this format.
        """
        frame = unpack(data)
        header = frame.header
        if header.get("kind") != _KIND or header.get("version") != _VERSION:
            raise FrameError(f"the frame is no checkpoint of format {_VERSION}", "version")
        arrays = [array.copy() for array in frame.arrays]
        n_state, end = header["n_state"], 1 + header["n_state"] + header["n_known"]
        last = end + len(header["history"])
        return cls(
            header["step"],
            arrays[0],
            tuple(arrays[1 : 1 + n_state]),
            tuple(arrays[1 + n_state : end]),
            dict(zip(header["history"], arrays[end:last], strict=True)),
            header["settings"],
            header["meta"],
            dict(zip(header["models"], arrays[last:], strict=True)),
        )

    def check(self, settings: Mapping[str, str], where: str) -> None:
        """Refuse a run with other settings.

        Raises
        ------
        InputError
            If the settings differ; the message names them with both values.
        """
        names = [*self.settings, *(name for name in settings if name not in self.settings)]
        absent = "not given"
        different = [
            f"{name} was {self.settings.get(name, absent)}, is {settings.get(name, absent)}"
            for name in names
            if self.settings.get(name) != settings.get(name)
        ]
        if different:
            raise InputError(
                f"the checkpoint {where} is of a run with other settings: {'; '.join(different)}. Give those, another "
                "checkpoint=, or resume=False to begin anew and overwrite it"
            )


def write_file(path: Path, data: bytes) -> None:
    """Write a file at once and whole: a reader, and a crash at any moment, finds the old one or the new one.

    Raises
    ------
    StoreError
        If it cannot be written.
    """
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        try:
            with scratch.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"the checkpoint cannot be written to {path}: {error.strerror}", key=str(path)) from error


def read_file(path: Path) -> bytes | None:
    """Read a file; None if there is none.

    Raises
    ------
    StoreError
        If it is there and cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the checkpoint {path} cannot be read: {error.strerror}", key=str(path)) from error
