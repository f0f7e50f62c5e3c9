"""What the driver spends on coding, measured here, and how accurate a decode is."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.codes.threshold import first_messages, predicted_errors
from serverless_gc.plan.memory import Problem, passes
from serverless_gc.types import Array

__all__ = ["decode_seconds", "encode_seconds", "predicted_error", "processor_seconds"]

_MOST_ENTRIES = 2_000_000
"""Entries of all messages of a timed decode together; longer ones are extrapolated."""

_STRIP = 4096


def decode_seconds(problem: Problem, code: Code, *, repeats: int = 3) -> float:
    """Measure how long the driver decodes, in all coded rounds of one computation."""
    rng = np.random.default_rng(0)
    messages = first_messages(code, rng.permutation(code.n_workers).tolist())
    total = 0.0
    for step in passes(problem, code):
        length = max(1, step.message // 8)
        timed = max(1, min(length, _MOST_ENTRIES // max(1, len(messages))))
        values: dict[int, Array] = _values(code, messages, timed, rng)
        total += processor_seconds(_decoding(code, values), repeats) * length / timed
    return total


def _decoding(code: Code, values: dict[int, Array]) -> Callable[[], object]:
    return lambda: code.decode(values, tolerance=np.inf)


def processor_seconds(run: Callable[[], object], repeats: int, *, enough: float = np.inf) -> float:
    """Return the least processor seconds of some runs on one thread: what else this machine does is not counted.

    After ``enough`` seconds of them there are no more runs.
    """
    best, total = np.inf, 0.0
    with single_blas_thread():
        for _ in range(repeats):
            start = time.process_time()
            run()
            took = time.process_time() - start
            best, total = min(best, took), total + took
            if total > enough:
                break
    return float(best)


def _values(code: Code, messages: list[int], length: int, rng: np.random.Generator) -> dict[int, Array]:
    sources = rng.standard_normal((code.k, 1, length))
    coded = code.encode(sources, messages=messages)
    return dict(zip(messages, coded, strict=True))


def encode_seconds(problem: Problem, code: Code) -> float:
    """Estimate how long storing both encodings takes the driver, from a strip of them; 0 where nothing is coded."""
    if code.kind == "gradient" or code.name in {"uncoded", "replication"}:
        return 0.0
    strip = np.random.default_rng(0).standard_normal((code.k, 1, _STRIP)).astype(problem.dtype)
    best = processor_seconds(lambda: code.encode(strip), 2)
    return best * problem.nbytes / strip.nbytes * len(passes(problem, code))


def predicted_error(problem: Problem, code: Code, *, trials: int = 5) -> float | None:
    """Predict the relative error of an answer, the worst of some random orders; None if the code cannot tell."""
    errors = predicted_errors(code, trials, dtype=problem.dtype)
    return None if errors is None else float(errors.max())
