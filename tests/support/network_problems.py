"""Toy problems of the decentralized schemes: least squares on nodes, and the numbers of arrivals that a run needs."""

import numpy as np


class LeastSquares:
    """Rows of all nodes, shape (n, rows, d); ``F`` is the mean over nodes of ``mean((X w - y)**2) / 2``."""

    def __init__(self, X, y, *, batch=None, seed=0):
        self.X, self.y, self.batch, self.seed = X, y, batch, seed
        self.n, self.rows, self.d = X.shape
        flat = X.reshape(-1, self.d)
        self.hessian = flat.T @ flat / len(flat)
        self.best = np.linalg.solve(self.hessian, flat.T @ y.reshape(-1) / len(flat))
        self._draws = {}

    def excess(self, w):
        e = w - self.best
        return 0.5 * float(e @ self.hessian @ e)

    def gradient(self, node, k, w):
        """Gradient of a node's loss on its own mini-batch of draw ``k``, or on all its rows."""
        X, y = self.X[node], self.y[node]
        if self.batch is not None:
            # Mini-batches are drawn by the thousand, which is what makes a step cost microseconds.
            page, place = divmod(k, 1000)
            if (node, page) not in self._draws:
                rng = np.random.default_rng((self.seed, node, page))
                self._draws[node, page] = rng.integers(self.rows, size=(1000, self.batch))
            chosen = self._draws[node, page][place]
            X, y = X[chosen], y[chosen]
        return (X @ w - y) @ X / len(y)


def net16(*, batch=None, seed=0, n=16, rows=100, d=10):
    """D4: every node's data come from a model of its own."""
    rng = np.random.default_rng((4, seed))
    X = rng.standard_normal((n, rows, d))
    models = rng.standard_normal(d) + 0.5 * rng.standard_normal((n, d))
    y = np.einsum("nrd,nd->nr", X, models) + 0.3 * rng.standard_normal((n, rows))
    return LeastSquares(X, y, batch=batch, seed=seed)


def lin20(n_nodes, *, batch=None, seed=0):
    """D1, all of it readable by every node: the data of a task do not depend on its slot."""
    rng = np.random.default_rng((1, seed))
    X = rng.standard_normal((4000, 20)) * np.sqrt(np.geomspace(0.2, 1, 20))
    y = X @ rng.standard_normal(20) + rng.standard_normal(4000)
    everywhere = (n_nodes, *X.shape)
    return (
        LeastSquares(np.broadcast_to(X, everywhere), np.broadcast_to(y, everywhere[:2]), batch=batch, seed=seed)
        if n_nodes > 1
        else LeastSquares(X[None], y[None], batch=batch, seed=seed)
    )
