"""Sums over nodes that can only exchange objects: four patterns and what each costs.

============== ========== ========== ======================= ======================
pattern        PUT        GET        bytes up/down per node  requests one by one
============== ========== ========== ======================= ======================
driver         N + 1      2 N        B / B (driver: N B in)  4
scatter        2 N        2 N^2      B (1 + 1/N) / 2 B       4
ring           2 N (N-1)  2 N (N-1)  2 B (N-1)/N each        4 (N-1)
one-peer       N          N          B / B                   2
============== ========== ========== ======================= ======================

Each function plays all nodes, a phase at a time; every node of the first three ends with the same bits. Objects are
left for `serverless_gc.gossip.StoredNodes.clear`, and with a prefix below ``runs/`` for the bucket's lifecycle rule.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.errors import CorruptObject, InputError
from serverless_gc.store import Store
from serverless_gc.topologies import OnePeerExponential
from serverless_gc.types import Array, Buffer
from serverless_gc.wire.block import CsrBlock, pack_block, unpack_block
from serverless_gc.wire.frame import FrameError

__all__ = ["driver_reduce", "one_peer_gossip", "ring_reduce", "scatter_reduce"]

_T = TypeVar("_T")
_CHECKSUM = 8  # bytes before each slice of a scattered vector: the CRC-32 of the slice


async def driver_reduce(store: Store, prefix: str, vectors: Sequence[ArrayLike]) -> list[Array]:
    """Sum over nodes by the driver: it reads every node's vector and writes the sum.

    Parameters
    ----------
    store, prefix
        Where the objects go; ``prefix`` is new for each reduction, without a slash at its end.
    vectors
        One array per node, all of one shape.

    Returns
    -------
    list of arrays
        What each node has in the end, read-only.

    Raises
    ------
    InputError
        If there are no vectors or their shapes differ.
    CorruptObject
        If an object is damaged.

    Examples
    --------
    >>> from serverless_gc.store import MemoryStore
    >>> [sums.tolist() for sums in asyncio.run(driver_reduce(MemoryStore(), "r", [[1.0, 2.0], [3.0, 4.0]]))]
    [[4.0, 6.0], [4.0, 6.0]]
    """
    arrays = _checked(vectors)
    await _all(_put(store, f"{prefix}/in/{i}", a) for i, a in enumerate(arrays))
    parts = await _all(_get(store, f"{prefix}/in/{i}") for i in range(len(arrays)))
    await _put(store, f"{prefix}/sum", _sum(parts))
    return await _all(_get(store, f"{prefix}/sum") for _ in arrays)


async def scatter_reduce(store: Store, prefix: str, vectors: Sequence[ArrayLike]) -> list[Array]:
    """Sum over nodes without a driver, in two phases: node ``j`` reads slice ``j`` of all vectors and writes its sum.

    Parameters, results and errors are those of `driver_reduce`. The slices are read by ranges.

    Examples
    --------
    >>> from serverless_gc.store import CountingStore, MemoryStore
    >>> store = CountingStore(MemoryStore())
    >>> sums = asyncio.run(scatter_reduce(store, "r", np.ones((8, 100))))
    >>> float(sums[3][50]), store.requests["put"], store.requests["get"]
    (8.0, 16, 128)
    """
    arrays = _checked(vectors)
    n, shape, dtype = len(arrays), arrays[0].shape, arrays[0].dtype
    bounds = _bounds(arrays[0].size, n)

    async def scatter(i: int) -> None:
        flat = arrays[i].reshape(-1)
        body: list[Buffer] = []
        for start, stop in bounds:
            raw = flat[start:stop].tobytes()
            body += [zlib.crc32(raw).to_bytes(_CHECKSUM, "little"), raw]
        await store.put(f"{prefix}/in/{i}", body, if_absent=True)

    async def read_slice(i: int, j: int) -> Array:
        key, (start, stop) = f"{prefix}/in/{i}", bounds[j]
        first = start * dtype.itemsize + j * _CHECKSUM
        data = memoryview(await store.get_range(key, first, first + _CHECKSUM + (stop - start) * dtype.itemsize))
        if zlib.crc32(data[_CHECKSUM:]) != int.from_bytes(data[:_CHECKSUM], "little"):
            raise CorruptObject(f"slice {j} of object {key!r} is damaged: its checksum does not match", key=key)
        return np.frombuffer(data[_CHECKSUM:], dtype)

    async def reduce(j: int) -> None:
        await _put(store, f"{prefix}/sum/{j}", _sum(await _all(read_slice(i, j) for i in range(n))))

    async def gather() -> Array:
        return np.concatenate(await _all(_get(store, f"{prefix}/sum/{j}") for j in range(n))).reshape(shape)

    await _all(scatter(i) for i in range(n))
    await _all(reduce(j) for j in range(n))
    return await _all(gather() for _ in range(n))


async def ring_reduce(store: Store, prefix: str, vectors: Sequence[ArrayLike]) -> list[Array]:
    """Sum over nodes by passing slices around a ring, twice: fewest bytes, most requests one after the other.

    Parameters, results and errors are those of `driver_reduce`. For comparison only: each of the ``2 (N - 1)`` steps
    waits for a PUT and a GET.

    Examples
    --------
    >>> from serverless_gc.store import MemoryStore
    >>> [sums.tolist() for sums in asyncio.run(ring_reduce(MemoryStore(), "r", [[1.0, 2.0], [3.0, 4.0]]))]
    [[4.0, 6.0], [4.0, 6.0]]
    """
    arrays = _checked(vectors)
    n = len(arrays)
    held = [[a.reshape(-1)[start:stop] for start, stop in _bounds(a.size, n)] for a in arrays]
    for step in range(2 * (n - 1)):
        summing = step < n - 1
        # Node i passes on the slice it got in the step before; first its own. The second time round slices are final.
        await _all(_put(store, f"{prefix}/{step}/{i}", held[i][(i - step) % n]) for i in range(n))
        received = await _all(_get(store, f"{prefix}/{step}/{(i - 1) % n}") for i in range(n))
        for i, part in enumerate(received):
            j = (i - 1 - step) % n
            held[i][j] = held[i][j] + part if summing else part
    return [np.concatenate(parts).reshape(arrays[0].shape) for parts in held]


async def one_peer_gossip(store: Store, prefix: str, vectors: Sequence[ArrayLike], k: int = 0) -> list[Array]:
    """One round of averaging with one other node, `serverless_gc.topologies.OnePeerExponential`: no sum, but cheap.

    Parameters and errors are those of `driver_reduce`; ``k`` is the round. With a power of two of nodes, ``log2(N)``
    rounds end at the exact mean.

    Examples
    --------
    >>> from serverless_gc.store import MemoryStore
    >>> [x.tolist() for x in asyncio.run(one_peer_gossip(MemoryStore(), "r", [[1.0], [3.0], [5.0]]))]
    [[3.0], [2.0], [4.0]]
    """
    arrays = _checked(vectors)
    topology = OnePeerExponential(len(arrays))
    sent = [(i, j) for i in range(topology.n) for j in topology.peers(i, k)]
    await _all(_put(store, f"{prefix}/{k}/{j}/{i}", arrays[i]) for i, j in sent)
    received = await _all(_get(store, f"{prefix}/{k}/{j}/{i}") for i, j in sent)
    mixed = list(arrays)
    for (_, j), x in zip(sent, received, strict=True):
        mixed[j] = (arrays[j] + x) / 2
    return mixed


def _checked(vectors: Sequence[ArrayLike]) -> list[Array]:
    """Return the vectors as arrays of one inexact type."""
    arrays = [np.asarray(v) for v in vectors]
    if not arrays:
        raise InputError("vectors must hold one array per node, got none")
    shapes = {a.shape for a in arrays}
    if len(shapes) > 1:
        raise InputError(f"vectors must all have one shape, got {', '.join(map(str, sorted(shapes)))}")
    dtype = np.result_type(np.float32, *arrays)
    return [np.ascontiguousarray(a, dtype=dtype).reshape(a.shape) for a in arrays]


def _bounds(size: int, n: int) -> list[tuple[int, int]]:
    """Cut ``size`` numbers into ``n`` slices, (start, stop) of each."""
    return [(size * j // n, size * (j + 1) // n) for j in range(n)]


def _sum(parts: Sequence[Array]) -> Array:
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


async def _put(store: Store, key: str, array: Array) -> None:
    await store.put(key, pack_block(array), if_absent=True)


async def _get(store: Store, key: str) -> Array:
    try:
        block = unpack_block(await store.get(key))
    except FrameError as error:
        raise CorruptObject(f"object {key!r} is damaged: {error}", key=key) from error
    if isinstance(block, CsrBlock):
        raise CorruptObject(f"object {key!r} is a sparse matrix, not a vector of a reduction", key=key)
    return block


async def _all(requests: Iterable[Awaitable[_T]]) -> list[_T]:
    return list(await asyncio.gather(*requests))
