"""What decentralized schemes share: least squares on nodes, a delay law, nodes in memory, training in groups."""

import numpy as np
from toy_problems import train

from serverless_gc.engine import Completion
from serverless_gc.gossip import Mail
from serverless_gc.types import Timing


class LeastSquares:
    """Rows of all nodes, shape (n, rows, d); ``F`` is the mean over nodes of ``mean((X w - y)**2) / 2``.

    Mini-batches are drawn with replacement, or in passes over shuffled rows.
    """

    def __init__(self, X, y, *, batch=None, seed=0, shuffled=False):
        self.X, self.y, self.batch, self.seed, self.shuffled = X, y, batch, seed, shuffled
        self.n, self.rows, self.d = X.shape
        flat = X.reshape(-1, self.d)
        self.hessian = flat.T @ flat / len(flat)
        self.best = np.linalg.solve(self.hessian, flat.T @ y.reshape(-1) / len(flat))
        self._pages = {}

    def excess(self, w):
        """``F(w)`` above the least ``F``."""
        e = w - self.best
        return 0.5 * float(e @ self.hessian @ e)

    def gradient(self, node, k, w):
        """Gradient of a node's loss on its mini-batch ``k``, or on all its rows."""
        X, y = self.X[node], self.y[node]
        if self.batch is not None:
            chosen = self._draw(node, k)
            X, y = X[chosen], y[chosen]
        return (X @ w - y) @ X / len(y)

    def _draw(self, node, k, page=500):
        """Draws are made by the page: a generator for each would cost more than the gradient."""
        number, place = divmod(k, page)
        if (node, number) not in self._pages:
            rng, size = np.random.default_rng((self.seed, node, number)), page * self.batch
            if self.shuffled:
                rows = np.concatenate([rng.permutation(self.rows) for _ in range(-(-size // self.rows))])[:size]
            else:
                rows = rng.integers(self.rows, size=size)
            self._pages[node, number] = rows.reshape(page, self.batch)
        return self._pages[node, number][place]


def net16(*, n=16, seed=0, **draws):
    """D4: every node's data come from a model of its own."""
    rng = np.random.default_rng((4, seed))
    X = rng.standard_normal((n, 100, 10))
    models = rng.standard_normal(10) + 0.5 * rng.standard_normal((n, 10))
    y = np.einsum("nrd,nd->nr", X, models) + 0.3 * rng.standard_normal((n, 100))
    return LeastSquares(X, y, seed=seed, **draws)


class Lin20(LeastSquares):
    """D1: all of it is readable by every node; each draws for itself."""

    def __init__(self, *, batch, seed=0):
        rng = np.random.default_rng((1, seed))
        X = rng.standard_normal((4000, 20)) * np.sqrt(np.geomspace(0.2, 1, 20))
        y = X @ rng.standard_normal(20) + rng.standard_normal(4000)
        super().__init__(X[None], y[None], batch=batch, seed=seed)

    def gradient(self, node, k, w):
        """Gradient on the node's mini-batch ``k`` of the common rows."""
        X, y = self.X[0], self.y[0]
        chosen = self._draw(node, k)
        return (X[chosen] @ w - y[chosen]) @ X[chosen] / self.batch


class SometimesSlow:
    """``0.5 + 0.5 Exp(1)`` seconds, and five per cent of the tasks ``5 + 5 Exp(1)``; a straggler model."""

    def sample(self, slot, k, work, rng):  # noqa: ARG002 - the arguments of the protocol
        """Draw the times of one task."""
        scale = 5.0 if rng.random() < 0.05 else 0.5
        return Timing(compute=scale + scale * rng.exponential())


class MemoryNodes:
    """Steps of a kernel with states and mail in dictionaries: what workers do, without a store."""

    def __init__(self, kernel):
        self.kernel, self.states, self.mail = kernel, {}, {}

    async def run(self, task):
        """Do one attempt; an ``Execute`` of the engine's hosts."""
        node, k = task.slot, task.payload["round"]
        taken = [Mail(src, sent, self.mail.pop((node, sent, src))) for src, sent in task.payload["mail"]]
        _, before = self.states.get(node, (0, self.kernel.start(node)))
        after = self.kernel.step(node, k, before, taken)
        self.states[node] = (k, after)
        for dst, arrays in self.kernel.send(node, k, after):
            self.mail[dst, k, node] = arrays
        return Completion(after)

    def waiting(self, node):
        """Mail that the node has not taken."""
        return [Mail(src, k, arrays) for (dst, k, src), arrays in sorted(self.mail.items()) if dst == node]


def nothing(node, k, x):  # noqa: ARG001 - a gradient
    return np.zeros_like(x)


def still(k):  # noqa: ARG001 - a step length
    return 0.0


def trained(policy, x, aggregator, optimizer, gradient, model, *, slots, updates=10**6, until=np.inf, seed=0):
    """Run a training in virtual time; list (time, model) after each update."""
    calls = [0] * slots

    def work(task, x):
        calls[task.slot] += 1
        group = task.payload.get("group")
        return gradient(task.slot, calls[task.slot], x if group is None else x[group])

    run = train(
        policy, model, work, x, n_slots=slots, aggregator=aggregator, optimizer=optimizer, until=until, rounds=updates,
        seed=seed,
    )  # fmt: skip
    return list(zip(run.times[1:], run.models[1:], strict=True))
