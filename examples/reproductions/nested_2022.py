"""Massny, Hofmeister, Egger, Bitar, Wachter-Zeh, "Nested Gradient Codes", arXiv:2212.08580: work as stragglers ask for.

A fixed code for three stragglers does four partitions a worker, however many straggle. The nested one does one more
than there are stragglers; it is never slower than the fixed code or than uncoded computation.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, Problem, draw, main

from serverless_gc.codes import get

WORKERS, MOST, ROUNDS = 12, 3, 150


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    seconds: dict  # scheme -> mean seconds at 0, 1, 2, 3 stragglers
    never_slower: bool
    spec_example: dict
    decode_error: float


def times_of(taus, code):
    """Completion times of one round: uncoded, fixed code, nested code."""
    ordered = np.sort(taus)
    fixed = (MOST + 1) * ordered[WORKERS - 1 - MOST]
    return float(ordered[-1]), float(fixed), code.completion_time(taus.tolist())


def figures():
    rng = np.random.default_rng(0)
    code = get("nested", n_workers=WORKERS, stragglers=MOST)
    seconds = {"uncoded": [], "fixed code": [], "nested": []}
    never_slower = True
    for stragglers in range(MOST + 1):
        rounds = []
        for _ in range(ROUNDS):
            taus = 1 + 0.2 * rng.standard_exponential(WORKERS)
            taus[rng.permutation(WORKERS)[:stragglers]] *= 10
            rounds.append(times_of(taus, code))
        never_slower &= all(nested <= min(rest) + 1e-12 for *rest, nested in rounds)
        for name, value in zip(seconds, np.mean(rounds, axis=0), strict=True):
            seconds[name].append(float(value))
    small = get("nested", n_workers=8, stragglers=3)
    example = {"nested": small.completion_time([1.0] * 7 + [10.0]), "fixed": 4.0, "uncoded": 10.0}
    return Figures(seconds, bool(never_slower), example, decoded(code))


def decoded(code):
    """Relative error of a gradient from eleven workers that stopped at the second level, one of them silent."""
    parts = Problem.drawn().gradients(np.ones(20), WORKERS)
    arrived = [code.message(worker, level) for worker in range(1, WORKERS) for level in (0, 1)]
    total, _ = code.decode(dict(zip(arrived, code.encode(parts, messages=arrived), strict=True)))
    exact = parts.sum(axis=0)
    return float(np.linalg.norm(total - exact) / np.linalg.norm(exact))


def picture(found, path):
    lines = {name: (range(MOST + 1), values) for name, values in found.seconds.items()}
    draw(
        path,
        f"Nested codes 2022: {WORKERS} workers, up to {MOST} stragglers, 10 times slower",
        [Panel("seconds by number of stragglers", "seconds per iteration", lines, x="stragglers in the round")],
    )


if __name__ == "__main__":
    main(figures, picture)
