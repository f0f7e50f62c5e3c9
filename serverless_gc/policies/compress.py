"""Gradients in fewer bits. The seed is the task's, so both ends draw the same numbers."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.policies.packing import pack, pack_shape, unpack, unpack_shape
from serverless_gc.types import Array, Buffer, FloatArray

__all__ = ["DitheredUniform", "Sign", "StochasticRounding", "TopK"]


def _check_step(step: float) -> None:
    if not 0 < step < math.inf:
        raise InputError(f"step must be positive and finite, got {step}")


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
    """Uniform quantization with subtractive dither: the error is uniform and independent of the value.

    The sum of rates of such quantizers is within 0.26 bit per number of what is possible at all
    (`serverless_gc.policies.bits_for`); M. Zhang, L. Tao, X. Wang, "Sum-Rate-Distortion Function for Indirect
    Multiterminal Source Coding in Federated Learning" (2021).

    Parameters
    ----------
    step
        Distance between levels; the error's variance is ``step**2 / 12``.
    relative
        Whether ``step`` counts in root mean squares of the array, which is then sent along.

    Examples
    --------
    >>> compressor = DitheredUniform(step=0.5)
    >>> g = np.linspace(-3, 3, 100)
    >>> data = compressor.encode(g, seed=7)
    >>> len(data) < 75, bool(np.abs(compressor.decode(data, seed=7) - g).max() <= 0.25 + 1e-12)
    (True, True)
    """

    step: float
    relative: bool = False
    unbiased: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_step(self.step)

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
    """Round up or down at random, so that the mean is right; no dither has to be drawn by the receiver.

    Parameters
    ----------
    step
        Distance between levels; the error's variance is at most ``step**2 / 4``, on average ``step**2 / 6``.
    relative
        Whether ``step`` counts in root mean squares of the array.

    Examples
    --------
    >>> rounding = StochasticRounding(step=0.5)
    >>> g = np.array([0.2, -1.0])
    >>> found = [rounding.decode(rounding.encode(g, seed), seed) for seed in range(4000)]
    >>> sorted({float(first) for first, _ in found}), bool(abs(np.mean(found, axis=0) - g).max() < 0.02)
    ([0.0, 0.5], True)
    """

    step: float
    relative: bool = False
    unbiased: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_step(self.step)

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
    """One bit per number, and their mean magnitude. Biased.

    Examples
    --------
    >>> Sign().decode(Sign().encode(np.array([-3.0, 1.0]), seed=0), seed=0)
    array([-2.,  2.])
    """

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
    """The ``k`` numbers of largest magnitude, the others zero. Biased.

    Examples
    --------
    >>> TopK(1).decode(TopK(1).encode(np.array([1.0, -4.0, 2.0]), seed=0), seed=0)
    array([ 0., -4.,  0.])
    """

    k: int
    unbiased: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_whole("k", self.k, 1))

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
