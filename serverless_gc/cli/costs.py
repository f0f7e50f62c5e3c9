"""What encoding and decoding with a code cost: measured here, in copies of what is coded."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.encoded.code import EncodedCode
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.matmul.base import MatmulCode
from serverless_gc.codes.threshold import first_messages
from serverless_gc.plan.coding import processor_seconds
from serverless_gc.types import Array

__all__ = ["Costs", "measure_costs"]

_LENGTH, _ENTRIES = 20_000, 1 << 22
"""Entries of a block, and most of all blocks or messages: tens of megabytes, more than a cache holds."""

_REPEATS, _ENOUGH = 5, 0.5
"""Runs of which the fastest counts, and seconds after which there are enough of them."""


class Costs(NamedTuple):
    """Time of encoding and decoding once, in copies of what is said."""

    encode: float
    encoded: str
    decode: float
    decoded: str


def measure_costs(code: Code, seed: int = 0) -> Costs:
    """Encode random blocks, and decode the messages of the first workers, in a random order, that suffice.

    A code of sums is decoded to one block, so its decoding is compared with a copy of the messages it adds up.
    """
    rng = np.random.default_rng(seed)
    messages = first_messages(code, rng.permutation(code.n_workers).tolist())
    if isinstance(code, MatmulCode):
        encode, values = _both_operands(code, messages, rng)
        encoded = "the coded blocks of both operands"
    elif isinstance(code, EncodedCode):
        encode, values = _frame(code, messages, rng)
        encoded = "the coded rows"
    else:
        encode, values = _blocks(code, messages, rng)
        # Workers make the messages of gradient codes, from what they computed.
        encoded = "all messages, by the workers" if isinstance(code, GradientCode) else "the coded blocks"
    answer, _ = code.decode(values, tolerance=np.inf)
    decoding = _seconds(lambda: code.decode(values, out=answer, tolerance=np.inf))
    if code.target == "sum":
        sent = np.stack([values[message] for message in messages])
        return Costs(encode, encoded, decoding / _copying(sent), "the messages that it combines")
    decoded = "the blocks of the answer" if code.kind == "matmul" else "the source blocks"
    return Costs(encode, encoded, decoding / _copying(answer), decoded)


def _length(n_rows: int) -> int:
    """Entries of each of so many rows: a multiple of small numbers, for codes that fold or cut."""
    return max(12, min(_LENGTH, _ENTRIES // n_rows) // 60 * 60)


def _blocks(code: Code, messages: list[int], rng: np.random.Generator) -> tuple[float, dict[int, Array]]:
    length = _length(max(code.n_messages, code.k))
    blocks = rng.standard_normal((code.k, length))
    if code.kind == "data":  # of several rows, as what is stored
        blocks = blocks.reshape(code.k, 4, length // 4)
    coded, seconds, copying = _encoding(code.encode, blocks)
    return seconds / copying, {message: coded[message] for message in messages}


def _encoding(encode: Callable[..., Array], blocks: Array) -> tuple[Array, float, float]:
    """Return coded blocks, and how long it takes to encode and to copy them."""
    coded = encode(blocks)
    blocks = blocks.astype(coded.dtype, copy=False)
    return coded, _seconds(lambda: encode(blocks, coded)), _copying(coded)


def _both_operands(code: MatmulCode, messages: list[int], rng: np.random.Generator) -> tuple[float, dict[int, Array]]:
    split, left, right = code.split, code.left, code.right
    size = _length(max(left.n_coded, right.n_coded, split.inner * max(split.p, split.q), code.k))
    sides = (code.encode_left, split.inner * split.p), (code.encode_right, split.inner * split.q)
    times = [_encoding(encode, rng.standard_normal((n_blocks, size)))[1:] for encode, n_blocks in sides]
    seconds, copying = map(sum, zip(*times, strict=True))
    # What a worker returns is a combination of the blocks of the answer.
    products = rng.standard_normal((code.generator.shape[1], size))
    return seconds / copying, {message: code.generator[message] @ products for message in messages}


def _frame(code: EncodedCode, messages: list[int], rng: np.random.Generator) -> tuple[float, dict[int, Array]]:
    n_rows = max(256, 2 * code.n_workers)
    frame = code.frame_for(n_rows)
    rows = rng.standard_normal((n_rows, _length(frame.n_coded)))
    coded = frame.encode(rows)
    seconds = _seconds(lambda: frame.encode(rows))
    return seconds / _copying(coded), {message: rng.standard_normal(_length(code.k)) for message in messages}


def _copying(array: Array) -> float:
    target = np.empty_like(array)
    return _seconds(lambda: np.copyto(target, array))


def _seconds(run: Callable[[], object]) -> float:
    return processor_seconds(run, _REPEATS, enough=_ENOUGH)
