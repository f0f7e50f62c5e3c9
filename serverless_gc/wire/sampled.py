"""What a task of a stochastic training delivers, in one array: numbers that were counted, then what was computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Sampled"]

Array: TypeAlias = NDArray[Any]

_HEAD = 3  # samples, whether there is a loss, the loss
_WORD = 8  # bytes of a number


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a task did.

    Attributes
    ----------
    samples
        Rows behind it.
    loss
        Their mean loss; None where the function does not tell.
    body
        The vector it is about, or its bytes if it is compressed; None if there was nothing worth sending.
    extra
        Sums over the rows that go along; empty for none, and without a body.

    Examples
    --------
    >>> sent = Sampled(2.0, 0.5, np.array([1.0, -1.0]), np.array([4.0])).pack()
    >>> sent
    array([ 2. ,  1. ,  0.5,  4. ,  1. , -1. ])
    >>> Sampled.unpack(sent, extra=1).body
    array([ 1., -1.])
    >>> Sampled.unpack(Sampled(2.0, None, b"abc", np.zeros(0)).pack(), extra=0).body
    b'abc'
    """

    samples: float
    loss: float | None
    body: Array | bytes | None
    extra: Array

    def pack(self) -> Array:
        """Return it as one array: of float64, or of bytes if the body is compressed."""
        head = np.array([self.samples, self.loss is not None, self.loss or 0.0])
        if self.body is None:
            return head
        numbers = np.concatenate([head, self.extra.reshape(-1)])
        if isinstance(self.body, bytes):
            return np.frombuffer(numbers.astype("<f8").tobytes() + self.body, np.uint8)
        return np.concatenate([numbers, self.body.reshape(-1)])

    @classmethod
    def unpack(cls, value: Array, extra: int) -> Sampled:
        """Take one apart that has so many numbers in ``extra``.

        Raises
        ------
        ValueError
            If the array is not what `pack` returns, or holds NaN or Inf.
        """
        size = _HEAD + extra
        body: Array | bytes | None
        if value.dtype == np.uint8 and value.ndim == 1 and value.size >= _WORD * size:
            numbers, body = np.frombuffer(value[: _WORD * size].tobytes(), "<f8"), value[_WORD * size :].tobytes()
        elif value.dtype == np.float64 and value.ndim == 1 and (value.size == _HEAD or value.size > size):
            numbers, body = value[:size], None if value.size == _HEAD else value[size:]
        else:
            raise ValueError(f"it is an array of {value.dtype} and shape {value.shape}")
        if not (np.isfinite(numbers).all() and (body is None or isinstance(body, bytes) or np.isfinite(body).all())):
            raise ValueError("it holds NaN or Inf")
        return cls(float(numbers[0]), float(numbers[2]) if numbers[1] else None, body, numbers[_HEAD:])
