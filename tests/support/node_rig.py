"""Nodes whose rounds are done by the worker itself, over any store; and what they must come to, in plain NumPy."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import numpy as np

from serverless_gc.encode import as_source, scan, store_array_parts, store_parts
from serverless_gc.engine import AioHost
from serverless_gc.fitting.node_tasks import NodeObjective, NodeTasks
from serverless_gc.gossip import own_share
from serverless_gc.invoke import LocalInvoker
from serverless_gc.limits import DEFAULT_LIMITS
from serverless_gc.rounds.jobs import PartLoss, StoredObjective
from serverless_gc.rounds.resources import Resources
from serverless_gc.store import StoreWrapper
from serverless_gc.worker import schemes


class Net:
    """Least squares on ``n`` nodes with ``rows`` rows each; the loss is the mean over all rows."""

    def __init__(self, n, *, rows=6, d=3, batch=2, l2=0.0, seed=0):
        rng = np.random.default_rng((n, rows, d))
        self.n, self.rows, self.d, self.batch, self.l2, self.seed = n, rows, d, batch, l2, seed
        self.X = rng.standard_normal((n * rows, d))
        self.y = rng.standard_normal(n * rows)

    def gradient(self, node, t, x):
        """What a worker computes; the same draws."""
        first, batch = node * self.rows, self.batch
        rows = np.arange(self.rows)
        if batch:
            rows = np.random.default_rng((self.seed, node, t)).integers(self.rows, size=batch)
        X, y = self.X[first + rows], self.y[first + rows]
        return X.T @ (X @ x - y) / len(rows) + self.l2 * x

    @asynccontextmanager
    async def tasks(self, store, kernel, invoker=None):
        """Give the tasks of nodes that follow a kernel."""
        invoker = invoker or LocalInvoker(store)
        await invoker.open()
        res = Resources(
            run="run",
            prefix="runs/run",
            store=store,
            invoker=invoker,
            host=AioHost(),
            limits=DEFAULT_LIMITS,
            attempt_timeout=30.0,
            max_attempts=3,
            rounds=itertools.count(1),
        )
        source = as_source(self.X)
        scan(source)
        stored = StoredObjective(
            await store_parts(source, self.n, store, "runs/run/data/rows"),
            [await store_array_parts(self.y, self.n, store, "runs/run/data/y", "y")],
            PartLoss({"loss": "squared", "loss_params": {}}),
            True,
        )
        params = {"shape": [self.d], "scale": 1 / self.rows, "l2": self.l2, "batch": self.batch, "seed": self.seed}
        objective = NodeObjective(stored, [[i] for i in range(self.n)], params)
        name, fields = schemes.described(kernel.scheme)
        try:
            tasks = NodeTasks(res, kernel, objective, {"name": name, "params": fields}, "")
            await tasks.open()
            yield tasks
            await res.settle()
        finally:
            await invoker.close()


def keys_of(store):
    """List the keys of a store that no session uses any more."""

    async def listed():
        return [info.key async for info in store.list("")]

    return asyncio.run(listed())


class Memo(StoreWrapper):
    """Remembers the first bytes written under each key, and that they were never others."""

    def __init__(self, inner):
        super().__init__(inner)
        self.written = {}

    async def put(self, key, data, *, if_absent=False):
        self.note(key, data)
        return await super().put(key, data, if_absent=if_absent)

    def note(self, key, data):
        whole = b"".join(data) if isinstance(data, (list, tuple)) else bytes(data)
        assert self.written.setdefault(key, whole) == whole or "/cancel" in key, key

    def blobs(self):
        inner, note = super().blobs(), self.note

        class Noting:
            get, exists = inner.get, inner.exists

            def put(self, key, data, *, if_absent=False):
                note(key, data)
                return inner.put(key, data, if_absent=if_absent)

        return Noting()


def mass(kernel, topology, states, taken):
    """Sum over nodes, each after its last round, and over mail that nobody took: of ``x``, and of the weights.

    ``states`` maps (node, round) to the state after it, ``taken`` holds (receiver, sender, round).
    """
    last = {}
    for node, k in states:
        last[node] = max(last.get(node, 0), k)
    parts = [[own_share(topology, i, k) * a for a in states[i, k]] for i, k in last.items()]
    for (src, k), state in states.items():
        parts += [arrays for dst, arrays in kernel.send(src, k, state) if (dst, src, k) not in taken]
    return [sum(part[which] for part in parts) for which in (0, 1)]
