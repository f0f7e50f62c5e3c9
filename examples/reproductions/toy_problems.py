"""Small problems with known optima, laws of delay, and runs of the driver loop in virtual time."""

import asyncio
import bisect
from dataclasses import dataclass, field

import numpy as np

from serverless_gc.engine import Completion, Engine, VirtualHost
from serverless_gc.fitting.training import Training
from serverless_gc.types import Timing


class Least:
    """Least squares, ``||X w - y||^2 / (2 n)``."""

    def __init__(self, X, y):
        self.X, self.y = X, y
        self.n, self.d = X.shape
        self.gram = X.T @ X / self.n
        self.best = np.linalg.lstsq(X, y, rcond=None)[0]

    def excess(self, w):
        """Loss above the least."""
        away = w - self.best
        return 0.5 * float(away @ self.gram @ away)

    def errors(self, w, rows):
        """``X w - y`` of these rows."""
        return self.X[rows] @ w - self.y[rows]

    def gradient(self, w, rows):
        """Gradient of the mean loss of these rows."""
        X = self.X[rows]
        return X.T @ (X @ w - self.y[rows]) / len(X)

    def sample(self, w, size, seed):
        """Gradient on a mini-batch, drawn with replacement."""
        return self.gradient(w, draw(seed, self.n, size))


class Logistic:
    """Regularized logistic regression with labels in {0, 1}."""

    def __init__(self, X, y, l2=1e-2):
        self.X, self.y, self.l2 = X, y, l2
        self.n, self.d = X.shape
        self.best = self._newton()
        self.least = self.loss(self.best)

    def probabilities(self, w, rows=slice(None)):
        """Probability of label 1, for each of these rows."""
        return 1.0 / (1.0 + np.exp(-(self.X[rows] @ w)))

    def loss(self, w):
        """Mean loss of all rows, with the regularizer."""
        z = self.X @ w
        return float(np.mean(np.logaddexp(0.0, z) - self.y * z) + 0.5 * self.l2 * w @ w)

    def excess(self, w):
        """Loss above the least."""
        return self.loss(w) - self.least

    def gradient(self, w, rows=slice(None)):
        """Gradient of the mean loss of these rows, with the regularizer."""
        X = self.X[rows]
        return X.T @ (self.probabilities(w, rows) - self.y[rows]) / len(X) + self.l2 * w

    def sample(self, w, size, seed):
        """Gradient on a mini-batch, drawn with replacement."""
        return self.gradient(w, draw(seed, self.n, size))

    def hessian(self, w):
        """Second derivatives of the loss."""
        p = self.probabilities(w)
        return (self.X.T * (p * (1 - p))) @ self.X / self.n + self.l2 * np.eye(self.d)

    def _newton(self):
        w = np.zeros(self.d)
        for _ in range(30):
            w = w - np.linalg.solve(self.hessian(w), self.gradient(w))
        return w


def draw(seed, n, size):
    """Rows of a task: the same for the same seed."""
    return np.random.default_rng(seed).integers(n, size=size)


def lin20(n=4000, noise=1.0, seed=0):
    """D1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 20)) * np.sqrt(np.geomspace(0.2, 1, 20))
    return Least(X, X @ rng.standard_normal(20) + noise * rng.standard_normal(n))


def log20(seed=0):
    """D2."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4000, 20)) * np.linspace(0.3, 1.5, 20)
    p = 1.0 / (1.0 + np.exp(-(X @ rng.standard_normal(20))))
    return Logistic(X, (rng.random(4000) < p).astype(float))


def fed10(seed=0):
    """D3: the whole problem, and the rows of each client."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(10)
    X, y = [], []
    for _ in range(10):
        part = rng.standard_normal((200, 10)) * np.exp(0.5 * rng.standard_normal(10))
        p = 1.0 / (1.0 + np.exp(-(part @ (common + rng.standard_normal(10)))))
        X.append(part)
        y.append((rng.random(200) < p).astype(float))
    shards = [slice(200 * i, 200 * (i + 1)) for i in range(10)]
    return Logistic(np.concatenate(X), np.concatenate(y)), shards


def net16(seed=0):
    """D4: one least-squares problem per node."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(10)
    nodes = []
    for _ in range(16):
        X = rng.standard_normal((100, 10))
        nodes.append(Least(X, X @ (common + 0.5 * rng.standard_normal(10)) + 0.3 * rng.standard_normal(100)))
    return nodes


def hetero10(seed=0):
    """D5: label noise 10 at the first three workers, 0.5 at the others."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2000, 10))
    noise = np.repeat([10.0] * 3 + [0.5] * 7, 200)
    w = rng.standard_normal(10)
    return Least(X, X @ w + noise * rng.standard_normal(2000)), w


@dataclass
class Delays:
    """A law of delay from a function of the generator."""

    draw: object

    def sample(self, slot, k, work, rng):  # noqa: ARG002 - the arguments of the protocol
        """Draw the times of one task."""
        return Timing(compute=work * self.draw(rng))


@dataclass
class SlotDelays:
    """A law of delay from a function of the slot, the round and the generator."""

    draw: object

    def sample(self, slot, k, work, rng):
        """Draw the times of one task."""
        return Timing(compute=work * self.draw(slot, k, rng))


def exponential(rng):
    return rng.standard_exponential()


def shifted(rng):
    return 0.5 + rng.standard_exponential()


@dataclass
class Run:
    """What came of a run: times of the updates, their models, and everything the loop said."""

    times: list = field(default_factory=list)
    models: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    training: object = None

    def at(self, t, value):
        """``value`` of the model at time ``t``."""
        return value(self.models[bisect.bisect_right(self.times, t) - 1])

    @property
    def updates(self):
        """Number of updates of the model."""
        return len(self.times) - 1

    @property
    def used(self):
        """Number of results that entered an update."""
        return sum(len(step.outcome.arrivals) for step in self.steps)


def train(
    policy,
    delays,
    work,
    x,
    *,
    n_slots,
    aggregator,
    optimizer,
    until=np.inf,
    rounds=10**9,
    seed=0,
    delay_seed=None,
    on_step=None,
    engine_options=None,
    **options,
):
    """Run the loop in virtual time; ``work(task, x)`` returns a body or a `Completion`."""
    law = delays if hasattr(delays, "sample") else Delays(delays)
    host = VirtualHost(law, seed=1000 + seed if delay_seed is None else delay_seed)
    engine = Engine(policy, n_slots, seed=seed, keep_records=False, **(engine_options or {}))

    async def perform(task, x):
        done = work(task, x)
        return done if isinstance(done, Completion) else Completion(done)

    training = Training(engine, host, perform, x, aggregator=aggregator, optimizer=optimizer, **options)
    run = Run([0.0], [training.x], [], training)
    if on_step is not None:
        on_step(run, None)

    async def go():
        async for step in training.steps(rounds):
            run.times.append(step.outcome.t_close)
            run.models.append(step.x)
            run.steps.append(step)
            if on_step is not None:
                on_step(run, step)
            if step.outcome.t_close > until or not np.abs(step.x).max() < 1e12:
                break
        await training.close()

    asyncio.run(go())
    return run


def mean_excess(runs, times, value):
    """Mean over runs at each time; infinite where a run diverged."""
    with np.errstate(over="ignore", invalid="ignore"):
        table = [[run.at(t, value) for t in times] for run in runs]
    return np.nan_to_num(np.mean(table, axis=0), nan=np.inf)


def chosen(excess, times, checkpoints):
    """Each method's values at some of the times."""
    return {name: values[np.searchsorted(times, checkpoints)] for name, values in excess.items()}
