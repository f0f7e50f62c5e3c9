"""Sets of arrivals of a gradient code against a least-squares solve that knows nothing of the code."""

from itertools import combinations

import numpy as np


def subsets(ids):
    """All subsets of these ids, small ones first."""
    ids = tuple(ids)
    return [chosen for size in range(len(ids) + 1) for chosen in combinations(ids, size)]


def least_error(code, arrived):
    """``err(F)`` by a dense solve with the rows of the code's matrix."""
    k = code.generator.shape[1]
    wanted = np.tile(np.eye(code.fold), (k // code.fold, 1))
    if not arrived:
        return float((wanted**2).sum()) / code.fold
    rows = code.generator[list(arrived)]
    a = np.linalg.lstsq(rows.T, wanted.astype(rows.dtype), rcond=None)[0]
    return float((np.abs(rows.T @ a - wanted) ** 2).sum()) / code.fold


def fed(code, arrived):
    """The code's tracker after these arrivals."""
    tracker = code.tracker()
    for message in arrived:
        tracker.add(message)
    return tracker


def messages_without(code, lost):
    """All messages but those of these workers."""
    return [m for worker in range(code.n_workers) if worker not in lost for m in code.placement(worker)]
