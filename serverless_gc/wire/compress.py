"""Arrays in fewer bits, as both ends know them; `serverless_gc.policies` has them with checks of their parameters."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from serverless_gc.wire.packing import Array, Buffer, FloatArray, pack, pack_shape, unpack, unpack_shape

__all__ = ["COMPRESSORS", "DitheredUniform", "Encodes", "Sign", "StochasticRounding", "TopK", "get"]


class Encodes(Protocol):
    """What a worker needs of a compressor."""

    def encode(self, g: Array, seed: int) -> bytes:
        """Return an array as bytes; the seed is the task's, so that both ends draw the same numbers."""
        ...


def _length(g: Array, step: float, *, relative: bool) -> float:
    """Return the step in the units of ``g``, as the wire carries it."""
    if not relative:
        return step
    return step * math.sqrt(float(np.mean(np.square(g)))) if np.size(g) else 0.0


def _in_steps(g: FloatArray, step: float) -> FloatArray:
    """Return ``g / step``; a step of 0 is that of an array of zeros."""
    return np.asarray(g / step if step > 0 else g, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class DitheredUniform:
    """Uniform quantization with subtractive dither."""

    step: float
    relative: bool = False
    unbiased: ClassVar[bool] = True

    def encode(self, g: Array, seed: int) -> bytes:
        """Return the levels as bytes."""
        g = np.asarray(g, dtype=np.float64)
        step = _length(g, self.step, relative=self.relative)
        return struct.pack("<d", step) + pack(np.rint(_in_steps(g, step) + _dither(g.shape, seed)))

    def decode(self, data: Buffer, seed: int) -> FloatArray:
        """Return the array, with the dither taken off again."""
        (step,) = struct.unpack_from("<d", data)
        levels = unpack(memoryview(data)[8:])
        return np.asarray((levels - _dither(levels.shape, seed)) * step, dtype=np.float64)

    def noise_var(self, g: Array) -> float:
        """Variance of the error of each number."""
        return _length(g, self.step, relative=self.relative) ** 2 / 12


def _dither(shape: tuple[int, ...], seed: int) -> FloatArray:
    return np.random.default_rng(seed).random(shape) - 0.5


@dataclass(frozen=True, slots=True)
class StochasticRounding:
    """Rounding up or down at random."""

    step: float
    relative: bool = False
    unbiased: ClassVar[bool] = True

    def encode(self, g: Array, seed: int) -> bytes:
        """Return the levels as bytes."""
        g = np.asarray(g, dtype=np.float64)
        step = _length(g, self.step, relative=self.relative)
        return struct.pack("<d", step) + pack(
            np.floor(_in_steps(g, step) + np.random.default_rng(seed).random(g.shape))
        )

    def decode(self, data: Buffer, seed: int) -> FloatArray:  # noqa: ARG002 - part of the protocol
        """Return the array."""
        (step,) = struct.unpack_from("<d", data)
        return np.asarray(unpack(memoryview(data)[8:]) * step, dtype=np.float64)

    def noise_var(self, g: Array) -> float:
        """Mean variance of the error of a number of ``g``."""
        step = _length(g, self.step, relative=self.relative)
        part = np.mod(_in_steps(np.asarray(g, dtype=np.float64), step), 1.0)
        return float(np.mean(part * (1.0 - part)) * step**2) if part.size else 0.0


@dataclass(frozen=True, slots=True)
class Sign:
    """One bit per number, and their mean magnitude."""

    unbiased: ClassVar[bool] = False

    def encode(self, g: Array, seed: int) -> bytes:  # noqa: ARG002
        """Return signs and magnitude as bytes."""
        g = np.asarray(g, dtype=np.float64)
        signs = np.packbits(g.ravel() >= 0).tobytes()
        return struct.pack("<d", _magnitude(g)) + pack_shape(g.shape) + signs

    def decode(self, data: Buffer, seed: int) -> FloatArray:  # noqa: ARG002
        """Return plus or minus the magnitude."""
        (magnitude,) = struct.unpack_from("<d", data)
        shape, rest = unpack_shape(memoryview(data)[8:])
        positive = np.unpackbits(np.frombuffer(rest, np.uint8), count=math.prod(shape)).reshape(shape)
        return np.asarray(np.where(positive, magnitude, -magnitude), dtype=np.float64)

    def noise_var(self, g: Array) -> float:
        """Mean squared error of a number of ``g``, most of it bias."""
        return float(np.mean((np.abs(g) - _magnitude(g)) ** 2)) if np.size(g) else 0.0


def _magnitude(g: Array) -> float:
    return float(np.mean(np.abs(g))) if g.size else 0.0


@dataclass(frozen=True, slots=True)
class TopK:
    """The ``k`` numbers of largest magnitude."""

    k: int
    unbiased: ClassVar[bool] = False

    def encode(self, g: Array, seed: int) -> bytes:  # noqa: ARG002
        """Return places and values as bytes."""
        g = np.asarray(g, dtype=np.float64)
        places = self._places(g)
        head = pack_shape(g.shape) + struct.pack("<I", places.size)
        return head + places.astype("<u4").tobytes() + g.ravel()[places].astype("<f8").tobytes()

    def decode(self, data: Buffer, seed: int) -> FloatArray:  # noqa: ARG002
        """Return the array."""
        shape, rest = unpack_shape(data)
        (count,) = struct.unpack_from("<I", rest)
        g = np.zeros(math.prod(shape))
        g[np.frombuffer(rest, "<u4", count, 4)] = np.frombuffer(rest, "<f8", count, 4 + 4 * count)
        return g.reshape(shape)

    def noise_var(self, g: Array) -> float:
        """Mean square of what is left out, all of it bias."""
        left = np.array(g, dtype=np.float64).ravel()
        left[self._places(left)] = 0.0
        return float(np.mean(left**2)) if left.size else 0.0

    def _places(self, g: FloatArray) -> Array:
        size = np.abs(g.ravel())
        k = min(self.k, size.size)
        return np.sort(np.argpartition(-size, k - 1)[:k]) if k else np.zeros(0, dtype=np.int64)


COMPRESSORS: Mapping[str, Callable[..., Encodes]] = {
    kind.__name__: kind for kind in (DitheredUniform, StochasticRounding, Sign, TopK)
}
"""Name -> class, for those that every worker knows."""


def get(name: str, params: Mapping[str, Any]) -> Encodes:
    """Return a compressor by name.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> get("TopK", {"k": 2})
    TopK(k=2)
    """
    if name not in COMPRESSORS:
        raise ValueError(f"this worker has no compressor {name!r}; it has {', '.join(COMPRESSORS)}")
    return COMPRESSORS[name](**params)
