"""Speed of polar decoding, as a ratio to one ``np.copyto`` of the received results on one thread in the same run.

Each figure is the median over several arrival patterns; within a pattern copy and decode alternate, so that a
disturbed moment hits both. Results that carry a block unchanged arrive in their place in ``out``, as the collector
writes them.
"""

import statistics
import time

import numpy as np
import pytest

from serverless_gc.codes.polar.code import PolarCode
from serverless_gc.codes.polar.decode import plan_decode
from serverless_gc.errors import NotDecodableError

PATTERNS = 10
REPEATS = 5


def arrivals(code, rng, count=None):
    """Arrive at random until decodable; with ``count``, draw sets of that size until one decodes."""
    while True:
        tracker = code.tracker()
        arrived = []
        for worker in rng.permutation(code.n_workers).tolist():
            arrived.append(worker)
            if tracker.add(worker):
                if count is None or len(arrived) == count:
                    return arrived
                break


def in_place(code, coded, arrived, out):
    values = {}
    for worker in arrived:
        block = code.source_of(worker)
        if block is None:
            values[worker] = coded[worker]
        else:
            out[block] = coded[worker]
            values[worker] = out[block]
    return values


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


CASES = [
    # n, k, m, options, exactly k results, goal (None: reported only)
    (64, 48, 100_000, {"mode": "sc"}, False, 2.0),
    (256, 192, 100_000, {"mode": "sc"}, False, 2.0),
    (256, 192, 10_000, {"mode": "sc"}, False, 4.0),
    (1024, 768, 10_000, {"mode": "sc"}, False, 4.5),
    (1024, 922, 10_000, {"mode": "sc"}, False, 2.5),
    (1024, 768, 10_000, {"mode": "sc", "kernel": "hadamard"}, False, None),
    (1024, 768, 10_000, {}, False, None),
    (256, 163, 10_000, {"design": "reed-muller"}, True, None),
    (1024, 768, 10_000, {"design": "reed-muller"}, True, None),
]


@pytest.mark.parametrize(("n", "k", "m", "options", "exactly", "goal"), CASES)
def test_decode_against_copy(benchmark, n, k, m, options, exactly, goal):
    rng = np.random.default_rng(0)
    code = PolarCode(n, k, **options)
    blocks = rng.standard_normal((k, m))
    coded = code.encode(blocks)
    out = np.zeros((k, m))
    ratios, runs, errors, unknowns, copies, decodes = [], [], [], [], [], []
    for _ in range(PATTERNS):
        arrived = arrivals(code, rng, k if exactly else None)
        received = coded[arrived]
        target = np.zeros_like(received)
        values = in_place(code, coded, arrived, out)
        code.decode(values, out=out)
        copy, decode, run = [], [], []
        have = {code.source_of(w) for w in arrived}
        lost = [t for t in range(k) if t not in have]
        plan = plan_decode(code._layout, code.mode, code._mask(arrived), lost)
        inputs, rows = [values.get(w) for w in range(n)], [out[t] for t in lost]
        for _ in range(REPEATS):
            copy.append(seconds(lambda to=target, of=received: np.copyto(to, of)))
            decode.append(seconds(lambda given=values: code.decode(given, out=out)))
            run.append(seconds(lambda p=plan, i=inputs, r=rows: p.run(i, r, out.dtype)))
        answer, certificate = code.decode(values, out=out)
        copies.append(statistics.median(copy))
        decodes.append(statistics.median(decode))
        ratios.append(decodes[-1] / copies[-1])
        runs.append(statistics.median(run) / copies[-1])
        errors.append(float(np.abs(answer - blocks).max()))
        unknowns.append(certificate.unknowns)
    benchmark.extra_info.update(
        ratio_to_copy=statistics.median(ratios),
        goal=goal,
        ratio_of_row_program_alone=statistics.median(runs),
        worst_error=max(errors),
        copy_ms=1e3 * statistics.median(copies),
        decode_ms=1e3 * statistics.median(decodes),
        unknowns=statistics.median(unknowns),
    )
    print(f"\n({n}, {k}) m={m} {options}: {benchmark.extra_info}")  # noqa: T201  # the figure is the point
    benchmark.pedantic(lambda: code.decode(values, out=out), rounds=3)


@pytest.mark.parametrize(("n", "k", "goal_ms"), [(64, 48, None), (256, 192, 0.7), (1024, 768, 3.0)])
def test_symbolic_build(benchmark, n, k, goal_ms):
    rng = np.random.default_rng(1)
    code = PolarCode(n, k, mode="sc")
    durations = []
    for _ in range(PATTERNS):
        arrived = arrivals(code, rng)
        have = {code.source_of(w) for w in arrived}
        lost = [t for t in range(k) if t not in have]
        present = code._mask(arrived)
        build = [seconds(lambda p=present, t=lost: plan_decode(code._layout, "sc", p, t)) for _ in range(REPEATS)]
        durations.append(1e3 * statistics.median(build))
    benchmark.extra_info.update(build_ms=statistics.median(durations), goal_ms=goal_ms)
    print(f"\n({n}, {k}) symbolic build: {benchmark.extra_info}")  # noqa: T201
    benchmark.pedantic(lambda: plan_decode(code._layout, "sc", present, lost), rounds=3)


@pytest.mark.parametrize("mode", ["sc", "peel", "rank"])
@pytest.mark.parametrize(("n", "k", "design"), [(1024, 768, "auto"), (1024, 512, "auto"), (1024, 768, "reed-muller")])
def test_tracker(benchmark, n, k, design, mode):
    rng = np.random.default_rng(2)
    code = PolarCode(n, k, mode=mode, design=design)
    code.tracker()
    per_arrival = []
    for _ in range(PATTERNS):
        order = rng.permutation(n).tolist()

        def follow(order=order):
            tracker = code.tracker()
            for count, worker in enumerate(order, 1):
                if tracker.add(worker):
                    return count
            return n

        count = follow()
        per_arrival.append(1e6 * statistics.median(seconds(follow) for _ in range(REPEATS)) / count)
    benchmark.extra_info.update(us_per_arrival=statistics.median(per_arrival), goal_us=5.0)
    print(f"\n({n}, {k}) {design} {mode}: {benchmark.extra_info}")  # noqa: T201
    benchmark.pedantic(follow, rounds=3)


def test_reed_muller_against_mds(benchmark):
    """Whole decode of exactly ``k`` results against the cheapest MDS decode: an LU of the lost rows alone."""
    n, k, m = 1024, 768, 10_000
    rng = np.random.default_rng(4)
    code = PolarCode(n, k, design="reed-muller")
    coded = code.encode(rng.standard_normal((k, m)))
    parity = rng.standard_normal((n - k, k)) / np.sqrt(k)
    out = np.zeros((k, m))
    ratios = []
    for _ in range(3):
        arrived = arrivals(code, rng, k)
        values = in_place(code, coded, arrived, out)
        have = [code.source_of(w) for w in arrived if code.source_of(w) is not None]
        lost = [t for t in range(k) if t not in have]
        received = rng.standard_normal((len(lost), m))

        def mds(have=have, lost=lost, received=received):
            rows = parity[: len(lost)]
            out[lost] = np.linalg.solve(rows[:, lost], received - rows[:, have] @ out[have])

        polar, dense = [], []
        for _ in range(3):
            dense.append(seconds(mds))
            polar.append(seconds(lambda given=values: code.decode(given, out=out)))
        ratios.append(statistics.median(polar) / statistics.median(dense))
    benchmark.extra_info.update(ratio_to_mds=statistics.median(ratios), goal=0.9, decode_ms=1e3 * polar[-1])
    print(f"\n(1024, 768) Reed-Muller against MDS: {benchmark.extra_info}")  # noqa: T201
    benchmark.pedantic(lambda: code.decode(values, out=out), rounds=3)


def test_reed_muller_share_and_accuracy(benchmark):
    """Exactly ``k`` random results of the (1024, 768) Reed-Muller code: how many patterns decode, and how well."""
    rng = np.random.default_rng(3)
    code = PolarCode(1024, 768, design="reed-muller")
    blocks = rng.standard_normal((768, 8))
    coded = code.encode(blocks)
    decoded, worst, optimism = 0, 0.0, []
    trials = 200
    for _ in range(trials):
        values = {w: coded[w] for w in rng.permutation(1024)[:768].tolist()}
        try:
            answer, certificate = code.decode(values)
        except NotDecodableError:
            continue
        decoded += 1
        error = float(np.linalg.norm(answer - blocks) / np.linalg.norm(blocks))
        worst = max(worst, float(np.abs(answer - blocks).max()))
        optimism.append(error / certificate.predicted_error)
    benchmark.extra_info.update(
        share=decoded / trials, goal_share=0.98, worst_error=worst, goal_error=1e-8, error_over_predicted=max(optimism)
    )
    print(f"\n(1024, 768) Reed-Muller, exactly k: {benchmark.extra_info}")  # noqa: T201
    benchmark.pedantic(lambda: code.decode(values), rounds=3)
