"""Nodes whose state and mail are objects in a store, as their driver sees them.

Workers write them, `serverless_gc.worker.nodes`; here they are read. Where they are says `serverless_gc.wire.turn`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from serverless_gc.errors import CorruptObject, StoreError
from serverless_gc.gossip.node import Arrays, NodeKernel
from serverless_gc.policies import GossipProgress
from serverless_gc.store import Store
from serverless_gc.wire.frame import Frame, FrameError, unpack
from serverless_gc.wire.turn import state_key

__all__ = ["StoredNodes"]


class StoredNodes:
    """Reads what the nodes of a run have stored.

    Parameters
    ----------
    kernel
        The scheme.
    store
        Where states and mail are kept.
    prefix
        What all keys begin with, without a slash at its end: one per run.

    Examples
    --------
    >>> import numpy as np
    >>> from serverless_gc.gossip import PushSum
    >>> from serverless_gc.store import MemoryStore
    >>> from serverless_gc.topologies import Ring
    >>> nodes = StoredNodes(PushSum(Ring(3), None, np.zeros(2), lr=0.1), MemoryStore(), "run-1")
    >>> asyncio.run(nodes.state(0, 0)), asyncio.run(nodes.progress(3)).done
    ((array([0., 0.]), array([1.])), (0, 0, 0))
    """

    def __init__(self, kernel: NodeKernel, store: Store, prefix: str) -> None:
        self.kernel = kernel
        self.store = store
        self.prefix = prefix

    async def state(self, node: int, k: int) -> Arrays:
        """Return a node's state after round ``k``.

        Raises
        ------
        ObjectNotFound
            If the node has not finished that round, or the state was deleted since.
        CorruptObject
            If the stored state is damaged.
        """
        return (await self._state(node, k))[0]

    async def consumed(self, node: int, k: int) -> list[tuple[int, int]]:
        """Mail that a node took in round ``k``, as its state records it: (sender, round) of each; errors of `state`."""
        header: dict[str, Any] = (await self._read(node, k)).header
        return [(src, sent) for src, sent in header["consumed"]]

    async def progress(self, n: int) -> GossipProgress:
        """Read how far ``n`` nodes are, so that another driver may go on with ``GossipReady(..., progress=...)``."""

        async def of(node: int) -> tuple[int, dict[int, int]]:
            folder = state_key(self.prefix, node, 0).removesuffix("0")
            k = max([int(info.key.removeprefix(folder)) async for info in self.store.list(folder)], default=0)
            return k, {int(src): sent for src, sent in (await self._state(node, k))[1].items()}

        done, taken = zip(*await asyncio.gather(*(of(node) for node in range(n))), strict=True)
        return GossipProgress(done, taken)

    async def clear(self) -> None:
        """Delete everything below the prefix.

        Raises
        ------
        StoreError
            If something could not be deleted.
        """
        left = await self.store.delete([info.key async for info in self.store.list(f"{self.prefix}/")])
        if left:
            key, reason = next(iter(left.items()))
            raise StoreError(f"{len(left)} objects below {self.prefix!r} were not deleted: {key!r} {reason}", key=key)

    async def _state(self, node: int, k: int) -> tuple[Arrays, dict[str, int]]:
        """State after round ``k``, and the last round of each sender whose mail went into it."""
        if k == 0:
            return self.kernel.start(node), {}
        frame = await self._read(node, k)
        return frame.arrays, frame.header["seen"]

    async def _read(self, node: int, k: int) -> Frame:
        key = state_key(self.prefix, node, k)
        try:
            return unpack(await self.store.get(key))
        except FrameError as error:
            raise CorruptObject(f"object {key!r} is damaged: {error}", key=key) from error
