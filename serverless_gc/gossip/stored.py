"""Nodes whose state and mail are objects in a store.

``node/<i>/state/<k>`` is written first, once: it is what makes round ``k`` of node ``i`` done. The mail
``mail/<dst>/<k>/<src>`` is a function of that state, so it can be written again by anyone, to the last bit. A step is
told by its task which mail to take and records it in the state. Hence a repeated step, a duplicate and a lost object
change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from serverless_gc.engine import Completion
from serverless_gc.errors import CorruptObject, FailureKind, InvokeError, ObjectNotFound, StoreError
from serverless_gc.gossip.node import Arrays, Mail, NodeKernel
from serverless_gc.policies import GossipProgress
from serverless_gc.store import Store
from serverless_gc.types import TaskSpec
from serverless_gc.wire.frame import Frame, FrameError, pack_parts, unpack

__all__ = ["StoredNodes"]


class StoredNodes:
    """Runs the steps of a kernel over any store.

    Parameters
    ----------
    kernel
        The scheme.
    store
        Where states and mail are kept. Its requests should be repeated on passing errors, see
        `serverless_gc.store.RetryingStore`.
    prefix
        What all keys begin with, without a slash at its end: one per run.

    Attributes
    ----------
    resent
        How often mail was lost and sent again.

    Examples
    --------
    >>> import numpy as np
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.gossip import PushSum
    >>> from serverless_gc.policies import GossipReady
    >>> from serverless_gc.store import MemoryStore
    >>> from serverless_gc.stragglers import Exponential
    >>> from serverless_gc.topologies import OnePeerExponential
    >>> topology = OnePeerExponential(4)
    >>> kernel = PushSum(topology, lambda node, k, z: z - node, np.zeros(1), lr=0.1)
    >>> nodes = StoredNodes(kernel, MemoryStore(), "run-1")
    >>> engine, host = Engine(GossipReady(topology, every=100), n_slots=4), VirtualHost(Exponential(1.0))
    >>> outcome = asyncio.run(host.run(engine, nodes.run))
    >>> asyncio.run(nodes.consumed(0, 100))
    [(2, 99)]
    >>> states = [asyncio.run(nodes.state(i, 100)) for i in range(4)]
    >>> round(sum(float(x[0]) for x, w in states) / 4, 2)  # the minimum of the mean loss
    1.5
    """

    def __init__(self, kernel: NodeKernel, store: Store, prefix: str) -> None:
        self.kernel = kernel
        self.store = store
        self.prefix = prefix
        self.resent = 0

    def state_key(self, node: int, k: int) -> str:
        """Key of a node's state after round ``k``."""
        return f"{self.prefix}/node/{node}/state/{k}"

    def mail_key(self, dst: int, k: int, src: int) -> str:
        """Key of what ``src`` sent to ``dst`` in round ``k``."""
        return f"{self.prefix}/mail/{dst}/{k}/{src}"

    async def run(self, task: TaskSpec) -> Completion:
        """Do one attempt at a task of `serverless_gc.policies.GossipReady`; an ``Execute`` of the engine's hosts.

        Raises
        ------
        InvokeError
            If an object cannot be read, is damaged, or was written by another run.
        """
        taken = [(int(src), int(k)) for src, k in task.payload["mail"]]
        try:
            state = await self.step(task.slot, task.payload["round"], taken)
        except CorruptObject as error:
            raise InvokeError(str(error), kind="corrupt") from error
        except ObjectNotFound as error:
            raise InvokeError(str(error), kind="missing") from error
        except StoreError as error:
            kind: FailureKind = "unavailable" if error.retryable else "function"
            raise InvokeError(str(error), kind=kind, retryable=error.retryable) from error
        return Completion(state, task.work)

    async def step(self, node: int, k: int, taken: Sequence[tuple[int, int]]) -> Arrays:
        """Do round ``k`` of a node, or find that it was done, and return the state after it.

        Parameters
        ----------
        node, k
            Which step.
        taken
            The mail to take: (sender, round) of each, in the order in which it is handed to the kernel.

        Raises
        ------
        ObjectNotFound
            If the node's last state, or the state from which lost mail would be sent again, is not there.
        StoreError
            If the round was done before with other mail.
        """
        (before, seen), mail = await asyncio.gather(
            self._state(node, k - 1), asyncio.gather(*(self._receive(node, src, sent) for src, sent in taken))
        )
        after = self.kernel.step(node, k, before, mail)
        head = {
            "kind": "node-state",
            "node": node,
            "round": k,
            "consumed": [list(origin) for origin in taken],
            "seen": seen | {str(src): sent for src, sent in sorted(taken, key=lambda origin: origin[1])},
        }
        key = self.state_key(node, k)
        if not await self.store.put(key, pack_parts(head, after), if_absent=True):
            stored = await self._read(key)  # another attempt was first: what it wrote is what happened
            if stored.header["consumed"] != head["consumed"]:
                raise StoreError(
                    f"round {k} of node {node} was done before with other mail, {stored.header['consumed']} instead of "
                    f"{head['consumed']}: does another run write below {self.prefix!r}?",
                    key=key,
                )
            after = stored.arrays
        await self._send(node, k, after)
        return after

    async def state(self, node: int, k: int) -> Arrays:
        """Return a node's state after round ``k``.

        Raises
        ------
        ObjectNotFound
            If the node has not finished that round.
        CorruptObject
            If the stored state is damaged.
        """
        return (await self._state(node, k))[0]

    async def consumed(self, node: int, k: int) -> list[tuple[int, int]]:
        """Mail that a node took in round ``k``, as its state records it: (sender, round) of each; errors of `state`."""
        header: dict[str, Any] = (await self._read(self.state_key(node, k))).header
        return [(src, sent) for src, sent in header["consumed"]]

    async def progress(self, n: int) -> GossipProgress:
        """Read how far ``n`` nodes are, so that another driver may go on with ``GossipReady(..., progress=...)``."""

        async def of(node: int) -> tuple[int, dict[int, int]]:
            folder = self.state_key(node, 0).removesuffix("0")
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
        frame = await self._read(self.state_key(node, k))
        return frame.arrays, frame.header["seen"]

    async def _receive(self, dst: int, src: int, k: int) -> Mail:
        """Read mail; if it is not there its sender did not get to sending it, so do that part of its step again."""
        key = self.mail_key(dst, k, src)
        try:
            frame = await self._read(key)
        except ObjectNotFound:
            await self._send(src, k, await self.state(src, k))
            self.resent += 1
            frame = await self._read(key)
        return Mail(src, k, frame.arrays)

    async def _send(self, node: int, k: int, state: Arrays) -> None:
        head = {"kind": "mail", "src": node, "round": k}
        await asyncio.gather(
            *(
                self.store.put(self.mail_key(dst, k, node), pack_parts(head, arrays), if_absent=True)
                for dst, arrays in self.kernel.send(node, k, state)
            )
        )

    async def _read(self, key: str) -> Frame:
        try:
            return unpack(await self.store.get(key))
        except FrameError as error:
            raise CorruptObject(f"object {key!r} is damaged: {error}", key=key) from error
