"""Rounds of nodes as tasks for workers, and the objects that nobody needs any more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from serverless_gc.engine import Completion
from serverless_gc.errors import InvokeError
from serverless_gc.gossip import SchemeKernel, StoredNodes
from serverless_gc.observe import Report
from serverless_gc.rounds.collect import Attempts
from serverless_gc.rounds.jobs import StoredObjective
from serverless_gc.rounds.operands import INLINE_OPERAND
from serverless_gc.rounds.resources import Resources
from serverless_gc.types import Array, Buffer, TaskSpec
from serverless_gc.wire import Reply, Task, Turn, pack_block, unpack
from serverless_gc.wire.turn import Share, mail_key, state_key

__all__ = ["NodeObjective", "NodeTasks"]

_DELETED_AT_ONCE = 200
_COUNTED = ("gets", "puts", "bytes_read", "bytes_written", "rebuilt", "resumed")


@dataclass(frozen=True, slots=True)
class NodeObjective:
    """What nodes minimize, each on its own part of the data.

    Attributes
    ----------
    stored
        The loss on the stored partitions.
    own
        The partitions of each node.
    params
        ``"shape"``, ``"scale"``, ``"l2"``, ``"batch"`` and ``"seed"``, see
        `serverless_gc.worker.node_gradient.NodeGradient`.
    """

    stored: StoredObjective
    own: Sequence[Sequence[int]]
    params: Mapping[str, Any]

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.own)

    def blocks(self, node: int) -> list[str]:
        """Return the keys of what a node reads."""
        return self.stored.blocks(self.own[node])

    def task_params(self, node: int) -> dict[str, Any]:
        """Return the parameters of a node's gradient."""
        return {**self.params, "node": node, "objective": self.stored.params(self.own[node])}


class NodeTasks:
    """Does rounds of nodes through a session's invoker and store.

    Parameters
    ----------
    res
        The session's.
    kernel
        The scheme; it has no gradient.
    objective
        What the nodes minimize.
    scheme
        What tasks call the scheme: name and parameters, or the stamp of a stored one.
    scheme_key
        Store key of the scheme; empty for one that every worker knows.

    Attributes
    ----------
    attempts
        What happened to the attempts.
    traffic
        What the workers said of their requests, added up.
    slopes
        (node, round) to the norm of the last gradient of that round.
    """

    def __init__(
        self,
        res: Resources,
        kernel: SchemeKernel,
        objective: NodeObjective,
        scheme: Mapping[str, Any],
        scheme_key: str,
    ) -> None:
        self.number = next(res.rounds)
        self.traffic: Counter[str] = Counter()
        self.slopes: dict[tuple[int, int], float] = {}
        self.attempts = Attempts(
            res.store,
            res.invoker,
            res.attempt_timeout,
            self._task,
            self._accept,
            presign=res.presign,
            read_result=_found,
        )
        self._refused = res.service_counts()
        self._res = res
        self._kernel = kernel
        self._objective = objective
        self._scheme = scheme
        self._scheme_key = scheme_key
        self._prefix = f"{res.prefix}/nodes/{self.number:07d}"
        self._start_key = ""
        self._alive = ""
        self._routes: dict[tuple[int, int], dict[int, Share]] = {}
        self._done = [0] * objective.n
        self._owed: dict[tuple[int, int], set[int]] = {}  # state -> who has not used the mail that follows from it
        self._over: list[str] = []

    async def open(self) -> None:
        """Store the model to begin with, if it is large."""
        start = self._kernel.x0
        if start.nbytes > INLINE_OPERAND:
            self._start_key = f"{self._prefix}/start"
            parts = pack_block(start)
            self.attempts.bytes_up += sum(memoryview(part).nbytes for part in parts)
            await self._res.store.put(self._start_key, parts)

    async def run(self, spec: TaskSpec) -> Completion:
        """Do one attempt at a task of `serverless_gc.policies.GossipReady`; an ``Execute`` of the engine's hosts."""
        self._alive = await self._res.alive()
        value, stats = await self.attempts.run(spec)
        self.traffic.update({name: int(stats.get(name, 0)) for name in _COUNTED})
        self._finished(spec)
        return Completion(value, spec.work, stats)

    async def models(self, k: int) -> Array:
        """Read the models of all nodes after round ``k``, shape (n, d)."""
        nodes = StoredNodes(self._kernel, self._res.store, self._prefix)
        states = await asyncio.gather(*(nodes.state(i, k) for i in range(self._objective.n)))
        self.attempts.counts["bytes_down"] += sum(part.nbytes for state in states for part in state)
        return np.stack([self._kernel.model(state) for state in states])

    def reported(self, report: Report) -> Report:
        """Add to an account of the attempts what was seen of them here."""
        seen = self.attempts.counts
        reads, writes = self._res.store_requests()
        refused = {name: after - self._refused[name] for name, after in self._res.service_counts().items()}
        return replace(
            report,
            retries=report.retries + refused["retries"],
            throttles=refused["throttles"],
            recovered=seen["recovered"],
            stale=seen["stale"],
            refused_writes=seen["refused_writes"],
            slow_downs=refused["slow_downs"] + seen["slow_downs"],
            reads=reads + seen["reads"],
            writes=writes + seen["writes"],
            reasons=dict(self.attempts.reasons),
            bytes_up=self.attempts.bytes_up,
            bytes_down=seen["bytes_down"],
        )

    async def close(self, *, whole: bool) -> None:
        """Delete what the nodes stored; unless the run is whole, tell workers that are still at it to stop."""
        store, mark = self._res.store, self._cancel_key
        if not whole:
            await store.put(mark, b"")
        keys = [info.key async for info in store.list(f"{self._prefix}/")]
        await store.delete([key for key in keys if key != mark])

    # -- tasks ---------------------------------------------------------------------------------------

    @property
    def _cancel_key(self) -> str:
        return f"{self._prefix}/cancel"

    def _turn(self, spec: TaskSpec) -> Turn:
        node, k = spec.slot, spec.payload["round"]
        mail = tuple((src, sent, self._routes_of(src, sent)[node]) for src, sent in spec.payload["mail"])
        return replace(self._kernel.turn(node, k), mail=mail, prefix=self._prefix)

    def _routes_of(self, node: int, k: int) -> dict[int, Share]:
        if (node, k) not in self._routes:
            self._routes[node, k] = dict(self._kernel.routes(node, k))
        return self._routes[node, k]

    def _task(self, spec: TaskSpec) -> Task:
        turn, node = self._turn(spec), spec.slot
        first = turn.k == 1
        blocks = self._objective.blocks(node)
        return Task(
            run=self._res.run,
            round=self.number,
            task_id=spec.task_id,
            slot=node,
            attempt=spec.attempt,
            kernel="node",
            blocks=(*blocks, self._scheme_key) if self._scheme_key else tuple(blocks),
            result_key=turn.state_key,
            store=self._res.store.url,
            operand=self._kernel.first_model(node) if first and not self._start_key else None,
            operand_key=self._start_key if first else "",
            cancel_key=self._cancel_key,
            alive_key=self._alive,
            params={**self._objective.task_params(node), "scheme": self._scheme, "turn": turn.to_dict()},
        )

    def _accept(self, spec: TaskSpec, value: Array) -> None:
        if value.shape != (1,) or not np.isfinite(value).all():
            raise InvokeError("a node's reply is no finite number", kind="bad-reply")
        self.slopes[spec.slot, spec.payload["round"]] = float(value[0])

    # -- what is over --------------------------------------------------------------------------------

    def _finished(self, spec: TaskSpec) -> None:
        """Find what nobody needs now: mail that was taken, and states whose mail all was."""
        node, k = spec.slot, spec.payload["round"]
        if k <= self._done[node]:
            return
        self._done[node] = k
        self._owed[node, k] = set(self._routes_of(node, k))
        for src, sent in spec.payload["mail"]:
            self._over.append(mail_key(self._prefix, node, sent, src))
            if (src, sent) in self._owed:  # else it is of a driver before this one
                self._owed[src, sent].discard(node)
                self._forget(src, sent)
        self._forget(node, k - 1)
        if len(self._over) >= _DELETED_AT_ONCE:
            self._res.chore(self._res.discard(self._over))
            self._over = []

    def _forget(self, node: int, k: int) -> None:
        if k < self._done[node] and not self._owed.get((node, k), {node}):
            del self._owed[node, k], self._routes[node, k]
            self._over.append(state_key(self._prefix, node, k))


def _found(task: Task, data: Buffer) -> Reply:
    """Make the reply of a round whose state is there: its reply was lost, its mail can be made from the state."""
    return Reply.to(task, value=np.array([unpack(data).header["slope"]]), result_key=task.result_key)
