"""Karakus, Sun, Diggavi, Yin, "Straggler Mitigation in Distributed Optimization Through Data Encoding", and on.

arXiv:1711.04969 and 1803.05397: rows are spread by a frame of redundancy two, and every step uses whoever answered
first; nothing is decoded. The loss settles near the least one, nearer than with stragglers dropped.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main

from serverless_gc.codes.encoded.frames import make_frame
from serverless_gc.optim.encoded import AskGradients, AskNorms, Iterate, gradient_descent, safe_step
from serverless_gc.stragglers import Exponential

WORKERS, STEPS, SMOOTH = 32, 300, 20
FRAMES = ("hadamard", "haar", "replication", "uncoded")


class Problem:
    """Least squares on encoded data, answered in this process by ``wait`` random workers."""

    def __init__(self, name="hadamard", n=512, p=20, noise=1.0, seed=0, condition=1.0):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(n, p)) * np.geomspace(1, condition, p)
        self.y = self.X @ rng.normal(size=p) + noise * rng.normal(size=n)
        self.frame = make_frame(name, n, WORKERS, seed=1)
        coded, targets = self.frame.encode(self.X), self.frame.encode(self.y)
        self.parts = [(coded[s], targets[s]) for s in map(self.frame.part, range(WORKERS))]
        self.best = np.linalg.lstsq(self.X, self.y, rcond=None)[0]
        self.rng = rng

    def loss(self, w):
        """Half the sum of squares on the data as they were."""
        return 0.5 * np.sum((self.X @ w - self.y) ** 2)

    def drive(self, iteration, steps, wait):
        """Run an iteration; each question is answered by another random set."""
        ask, done, answers = next(iteration), [], {}
        while len(done) < steps:
            if isinstance(ask, Iterate):
                done.append(ask)
                ask = iteration.send({})
                continue
            chosen = self.rng.permutation(WORKERS)[:wait]
            answers = {int(i): self.answer(ask, *self.parts[i]) for i in chosen}
            ask = iteration.send(answers)
        return done

    def answer(self, ask, A, b):
        """Answer a question from one worker's encoded rows."""
        if isinstance(ask, AskGradients):
            return A.T @ (A @ ask.w - b)
        assert isinstance(ask, AskNorms)
        return np.sum((A @ ask.d) ** 2)

    def descend(self, steps, wait):
        """Gradient descent with the step that is safe for any such sets."""
        step = safe_step(np.linalg.eigvalsh(self.X.T @ self.X)[-1], WORKERS, wait)
        run = gradient_descent(np.zeros(self.X.shape[1]), step=step, n_workers=WORKERS, beta=self.frame.beta)
        return self.drive(run, steps, wait)


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested: loss over the least one, less 1."""

    course: dict  # over the steps, 24 workers awaited
    settled: dict  # (workers awaited, frame): mean of the last steps
    worst: dict  # solution from 16 workers, the worst of random sets
    in_time: dict  # expected seconds and loss, by workers awaited


def course(name, wait):
    problem = Problem(name)
    losses = np.array([problem.loss(one.w) for one in problem.descend(STEPS, wait)])
    return losses / problem.loss(problem.best) - 1


def worst(name, wait, sets=40):
    """Loss of the solution from one set of workers only."""
    problem = Problem(name)
    losses = []
    for _ in range(sets):
        chosen = [problem.parts[i] for i in problem.rng.permutation(WORKERS)[:wait]]
        A, b = (np.concatenate(part) for part in zip(*chosen, strict=True))
        losses.append(problem.loss(np.linalg.lstsq(A, b, rcond=None)[0]))
    return float(max(losses) / problem.loss(problem.best) - 1)


def figures():
    courses = {(wait, name): course(name, wait) for wait in (24, 16) for name in FRAMES}
    waits = {wait: courses[wait, "hadamard"] for wait in (16, 24)} | {WORKERS: course("hadamard", WORKERS)}
    delay = Exponential(1.0)
    return Figures(
        {name: courses[24, name] for name in FRAMES},
        {key: float(each[-50:].mean()) for key, each in courses.items()},
        {name: worst(name, 16) for name in FRAMES},
        {wait: (delay.mean_order_stat(wait, WORKERS) * np.arange(1, STEPS + 1), each) for wait, each in waits.items()},
    )


def picture(found, path):
    axes = {"y": "loss above the least, relative", "log": True}
    smooth = {name: np.convolve(excess, np.ones(SMOOTH) / SMOOTH, "valid") for name, excess in found.course.items()}
    in_time = {
        f"{wait} awaited": (seconds[seconds <= 100], excess[seconds <= 100])
        for wait, (seconds, excess) in found.in_time.items()
    }
    draw(
        path,
        f"Encoded optimization 2017-2019: {WORKERS} workers, redundancy 2",
        [
            Panel(
                f"24 random workers in each step, means of {SMOOTH} steps",
                lines={name: (np.arange(SMOOTH, STEPS + 1), excess) for name, excess in smooth.items()},
                x="steps",
                **axes,
            ),
            Panel("hadamard, exponential delays", lines=in_time, x="seconds, expected", **axes),
            Panel("solution from 16 workers, worst of 40 sets", axes["y"], bars=found.worst),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
