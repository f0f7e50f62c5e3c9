"""A small problem for stochastic trainings, and what workers draw and compute, in plain NumPy."""

import numpy as np
import pytest
from node_rig import keys_of

import serverless_gc as sgc
from serverless_gc.encode.parts import Parts
from serverless_gc.engine import Engine
from serverless_gc.policies import WaitAll
from serverless_gc.store import MemoryStore


class Sampled:
    """Least squares, or logistic regression with labels in {0, 1}, in ``n`` partitions; the mean over all rows."""

    def __init__(self, n=4, *, rows=43, d=3, loss="squared", l2=0.01, noise=0.1, seed=0):
        rng = np.random.default_rng((n, rows, d, seed))
        self.n, self.d, self.loss, self.l2 = n, d, loss, l2
        self.X = rng.standard_normal((rows, d))
        z = self.X @ rng.standard_normal(d) + noise * rng.standard_normal(rows)
        self.y = z if loss == "squared" else (rng.random(rows) < 1 / (1 + np.exp(-z))).astype(float)
        self.parts = [np.arange(*Parts(rows, n).range(i)) for i in range(n)]
        self.w0 = np.zeros(d)

    def encode(self, session):
        return session.encode(self.X, self.y, code="ignore-stragglers", n_workers=self.n)

    @property
    def objective(self):
        return {"loss": self.loss, "l2": self.l2}

    def each(self, w, rows):
        """Gradient of each row's loss with its share of the regularizer."""
        z = self.X[rows] @ w
        slope = z - self.y[rows] if self.loss == "squared" else 1 / (1 + np.exp(-z)) - self.y[rows]
        return self.X[rows] * slope[:, None] + self.l2 * w

    def gradient(self, w, rows=slice(None)):
        return self.each(w, rows).mean(axis=0)

    @property
    def best(self):
        w = np.zeros(self.d)
        for _ in range(50):
            p = np.ones(len(self.X)) if self.loss == "squared" else (s := 1 / (1 + np.exp(-self.X @ w))) * (1 - s)
            hessian = (self.X.T * p) @ self.X / len(self.X) + self.l2 * np.eye(self.d)
            w = w - np.linalg.solve(hessian, self.gradient(w))
        return w

    def part(self, task):
        """Rows of the partition that a task draws."""
        row = np.random.default_rng((task.seed, 1)).integers(len(self.X))
        return next(part for part in self.parts if row in part)

    @staticmethod
    def rows(task, part, batch, t=0):
        """Rows of a task's mini-batch."""
        return part[np.random.default_rng((task.seed, 0, t)).integers(len(part), size=batch)] if batch else part


def tasks_of(version, n, seed=0):
    """Tasks of a round that gives every slot one."""
    return [action.task for action in Engine(WaitAll(), n, seed=seed, version=version).open(0.0)]


NET = Sampled(4)
LOG = Sampled(8, rows=200, loss="logistic")


def trained(session, net=NET, **asked):
    """Train on a problem."""
    return sgc.minimize_stochastic(net.encode(session), net.w0, **{**net.objective, "seed": 5, **asked})


def check_refused(asked, said):
    """Check that arguments are refused with these words, and that nothing was stored for them."""
    store = MemoryStore()
    with sgc.Session("local", store=store) as s:
        data = NET.encode(s)
        before = keys_of(store)
        with pytest.raises(sgc.InputError, match=said):
            sgc.minimize_stochastic(data, **{"w0": NET.w0, "lr": 0.1, **asked})
        assert keys_of(store) == before
