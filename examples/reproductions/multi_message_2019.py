"""Ozfatura, Gunduz, Ulukus, "Speeding Up Distributed Gradient Descent by Utilizing Non-persistent Stragglers" and on.

arXiv:1808.02240 and, of the same authors, clusters with several messages (2019): a slow worker is not a dead one. It
sends a message after each of its subtasks; one message at the end is what earlier codes send.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main

from serverless_gc.codes import get

N, TRIALS, CLUSTERS = 20, 400, 4
SUBTASKS = (2, 3, 4, 5)
SHIFT, RATE = 0.01, 10.0  # a subtask of a worker takes 0.01 s + Exp(10) s, the same for all of its subtasks in a trial


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested: by scheme, for each number of subtasks."""

    seconds: dict
    errors: dict  # standard errors of the seconds
    messages: dict  # received at completion
    message_errors: dict
    gained_by_exact: float  # least gain of the exact test over counting levels, in any trial


def subtask_times(rng):
    return SHIFT + rng.exponential(1 / RATE, N)


def completions(code, make_tracker):
    """Seconds and messages until the messages suffice, in each trial."""
    rng = np.random.default_rng(7)
    placed = [code.placement(i) for i in range(N)]
    r = len(placed[0])
    times, counts = np.empty(TRIALS), np.empty(TRIALS)
    for trial in range(TRIALS):
        ready = np.outer(subtask_times(rng), np.arange(1, r + 1)).ravel()
        tracker = make_tracker()
        for count, i in enumerate(np.argsort(ready, kind="stable").tolist(), 1):
            if tracker.add(placed[i // r][i % r]):
                times[trial], counts[trial] = ready[i], count
                break
    return times, counts


def single(r, awaited):
    """Seconds until so many workers have made all of their subtasks, in each trial, and that number."""
    rng = np.random.default_rng(7)
    times = np.array([r * np.sort(subtask_times(rng))[awaited - 1] for _ in range(TRIALS)])
    return times, np.full(TRIALS, awaited)


def schemes(r):
    clustered = get("gc-mmc", n_workers=N, k=N, r=r, clusters=CLUSTERS)
    uncoded, lagrange = (get(name, n_workers=N, k=N, r=r) for name in ("uc-mmc", "lcc-mmc"))
    return {
        "one subtask each": single(1, N),
        "gradient code, one message": single(r, N - r + 1),
        "Lagrange code, one message": single(r, 2 * -(-N // r) - 1),
        "clusters, each message": completions(clustered, clustered.level_tracker),  # the published rule counts levels
        "clusters, exact test": completions(clustered, clustered.tracker),
        "uncoded, each message": completions(uncoded, uncoded.tracker),
        "Lagrange code, each message": completions(lagrange, lagrange.tracker),
    }


def figures():
    found = [schemes(r) for r in SUBTASKS]
    names = list(found[0])

    def each(measure, part):
        return {name: np.array([measure(of[name][part]) for of in found]) for name in names}

    def error(values):
        return values.std() / np.sqrt(TRIALS)

    return Figures(
        each(np.mean, 0),
        each(error, 0),
        each(np.mean, 1),
        each(error, 1),
        float(min((of["clusters, each message"][0] - of["clusters, exact test"][0]).min() for of in found)),
    )


def picture(found, path):
    draw(
        path,
        f"Multi-message codes 2018-2020: {N} workers, {N} partitions",
        [
            Panel(
                "time to the gradient",
                "seconds",
                lines={name: (SUBTASKS, seconds) for name, seconds in found.seconds.items()},
                x="subtasks of a worker",
                legend=False,
            ),
            Panel(
                "cost on the link",
                "messages received",
                lines={name: (SUBTASKS, counts) for name, counts in found.messages.items()},
                x="subtasks of a worker",
            ),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
