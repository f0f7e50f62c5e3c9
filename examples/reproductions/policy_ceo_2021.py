"""Zhang, Tao, Wang, "Sum-Rate-Distortion Function ... in Federated Learning", arXiv:2101.08696: bits for a gradient.

Workers see noisy versions of one gradient: the fewest bits for an unbiased estimate have a closed form. Quantizers with
a dither and the plain mean are its test channel, without the binning that would use the correlation between workers.
"""

from dataclasses import dataclass

import numpy as np
from laboratory import Panel, draw, main
from toy_problems import Least, train

from serverless_gc.aggregate import Mean
from serverless_gc.engine import Completion
from serverless_gc.optim import SGD
from serverless_gc.policies import DitheredUniform, WaitAll, bits_for, independent_bits, step_for

WORKERS, STEPS, D = 10, 300, 50
ERRORS = np.geomspace(0.105, 2.0, 24)  # of the estimate, where signal and noise have variance 1


@dataclass(frozen=True)
class Figures:
    """What is drawn and tested."""

    bits: dict  # a coordinate, for each of the errors
    variance_ratio: dict  # measured error of the mean over the planned one, by the planned one
    excess: dict  # over the steps
    floor: dict
    sent: dict  # bits of a worker in a step


def variance_ratio(error):
    """Measure the error of the mean of quantized gradients whose step was planned for an error."""
    compressor = DitheredUniform(step_for(error, WORKERS, noise=1.0))
    seen = np.random.default_rng(2).standard_normal((WORKERS, 20_000))
    return np.var(np.mean([compressor.decode(compressor.encode(g, s), s) for s, g in enumerate(seen)], axis=0)) / error


def trained(problem, compressor):
    """Excess after each step, and bits of a worker in a step."""
    bits = []

    def work(task, x):
        g = problem.sample(x, 20, task.seed)
        if compressor is None:
            bits.append(32 * g.size)
            return Completion(g)
        data = compressor.encode(g, task.seed)
        bits.append(8 * len(data))
        return Completion(compressor.decode(data, task.seed))

    run = train(
        WaitAll(), lambda _: 1.0, work, np.zeros(D), n_slots=WORKERS, aggregator=Mean(), optimizer=SGD(0.1),
        rounds=STEPS,
    )  # fmt: skip
    return np.array([problem.excess(x) for x in run.models[1:]]), float(np.mean(bits))


def figures():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, D))
    problem = Least(X, X @ rng.standard_normal(D) + 0.5 * rng.standard_normal(2000))
    compressors = {"float32": None} | {f"step {s:g} rms": DitheredUniform(s, relative=True) for s in (0.5, 1.5, 4.0)}
    runs = {name: trained(problem, compressor) for name, compressor in compressors.items()}
    return Figures(
        {
            name: np.array([bits(error, WORKERS, signal=1, noise=1) for error in ERRORS])
            for name, bits in (("fewest possible", bits_for), ("without correlation", independent_bits))
        },
        {error: variance_ratio(error) for error in (0.15, 0.25, 0.5)},
        {name: excess for name, (excess, _) in runs.items()},
        {name: float(excess[STEPS // 2 :].mean()) for name, (excess, _) in runs.items()},
        {name: bits for name, (_, bits) in runs.items()},
    )


def picture(found, path):
    draw(
        path,
        f"Gradients as a CEO problem 2021: {WORKERS} workers",
        [
            Panel(
                "signal and noise of variance 1",
                "bits of all workers, a coordinate",
                lines={name: (ERRORS, bits) for name, bits in found.bits.items()},
                x="variance of the estimate",
                log=True,
            ),
            Panel(
                f"training, {D} coordinates",
                "loss above the least",
                lines={name: (np.arange(1, STEPS + 1), excess) for name, excess in found.excess.items()},
                x="steps",
                log=True,
            ),
            Panel("messages", "bits of a worker in a step", bars=found.sent),
        ],
    )


if __name__ == "__main__":
    main(figures, picture)
