"""A coded round ends before its stragglers do: in virtual time, where a second is exactly a second."""

import asyncio

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.encode import store_encoded
from serverless_gc.engine import AioHost
from serverless_gc.invoke import SimulatedInvoker, StragglingInvoker
from serverless_gc.limits import DEFAULT_LIMITS
from serverless_gc.pipeline import run_round
from serverless_gc.rounds.jobs import product_job
from serverless_gc.rounds.resources import Resources
from serverless_gc.store import MemoryStore
from serverless_gc.testing.jump_loop import run_virtually

N, K = 64, 48
SEEDS = range(40)
rng = np.random.default_rng(0)
X, y, w = rng.standard_normal((96, 8)), rng.standard_normal(96), rng.standard_normal(8)


def make(name):
    return sgc.codes.get("uncoded", n_workers=K) if name == "uncoded" else sgc.codes.get(name, n_workers=N, k=K)


def slow_slots(code, seed, version):
    stragglers = sgc.inject.Stragglers(fraction=0.1, slowdown=10, seed=seed)
    return [slot for slot in range(code.n_workers) if stragglers.factor(slot, version) > 1]


def covered(code, seed, version):
    """Whether what is not slow decodes, asked of the code's structure alone."""
    tracker = code.tracker()
    slow = slow_slots(code, seed, version)
    return bool([tracker.add(slot) for slot in range(code.n_workers) if slot not in slow][-1])


def seconds(report):
    """Length of each round on the virtual clock: from its first task to the time at which it was decodable."""
    opened = {}
    for span in report.spans:
        opened[span.round] = min(span.t_issued, opened.get(span.round, np.inf))
    return [closed - opened[number] for number, closed in sorted(report.decodable.items())]


def run(code, seed):
    """Two rounds in simulated time."""
    with sgc.Session(
        "simulated",
        delay=sgc.stragglers.Constant(1.0),
        inject=sgc.inject.Stragglers(fraction=0.1, slowdown=10, seed=seed),
    ) as s:
        return s.encode(X, y, code=code).gradient(w, with_report=True)


@pytest.mark.parametrize("name", ["mds", "polar", "uncoded"])
def test_rounds_end_with_the_fast_workers_if_they_suffice(name):
    code = make(name)
    both = {1.0: 0, 10.0: 0}
    for seed in SEEDS if name == "polar" else SEEDS[:8]:
        g, report = run(code, seed)
        np.testing.assert_allclose(g, X.T @ (X @ w - y), rtol=1e-9)
        expected = [1.0 if covered(code, seed, version) else 10.0 for version in (1, 2)]
        assert seconds(report) == expected
        assert report.balanced
        assert report.issued == 2 * code.n_workers
        assert report.failed == report.surplus == 0
        if expected == [1.0, 1.0]:
            never_waited_for = [len(slow_slots(code, seed, version)) for version in (1, 2)]
            assert report.voided >= sum(never_waited_for) > 0
            assert report.elapsed < 5  # virtual seconds and the real ones of coding; a slow round alone has 10
        for length in expected:
            both[length] += 1
    if name == "mds":
        assert both[10.0] == 0
    elif name == "polar":  # not every set of six is covered: then the round waits, and is right all the same
        assert both[1.0] > both[10.0]
    else:
        assert both[1.0] == 0


@pytest.mark.parametrize("delay", [None, sgc.stragglers.Constant(1.0)])
@pytest.mark.parametrize("stragglers", [[], [sgc.inject.Stragglers(fraction=0.1, slowdown=10)]])
def test_attempts_that_never_answer_do_not_stop_a_simulated_clock(delay, stragglers):
    lost = sgc.inject.Faults(drop=[0, 5])
    with sgc.Session("simulated", delay=delay, inject=[*stragglers, lost], deadline=60) as s:
        z, report = s.encode(X, code="mds", n_workers=N, k=K).matvec(w, with_report=True)
        np.testing.assert_allclose(z, X @ w, rtol=1e-9)
        assert report.voided == N - K
        with pytest.raises(sgc.DeadlineExceeded, match=r"46 of 48 results .* within 60.0 s"):
            s.encode(X, code="uncoded", n_workers=K).matvec(w)


@pytest.mark.parametrize("name", ["mds", "polar", "uncoded"])
def test_the_same_with_the_host_of_real_backends(name):
    """The asyncio host and the invoker that straggles on purpose, on an event loop whose clock jumps."""
    code = make(name)
    seed = next(seed for seed in SEEDS if slow_slots(code, seed, 1) and (name == "uncoded") != covered(code, seed, 1))
    store = MemoryStore()
    matrix = asyncio.run(store_encoded(X, code, store, "data"))

    async def main():
        loop = asyncio.get_running_loop()
        stragglers = sgc.inject.Stragglers(fraction=0.1, slowdown=10, seed=seed, base=1.0)
        invoker = StragglingInvoker(SimulatedInvoker(store), stragglers, clock=loop.time)
        res = Resources(
            "run", "runs/run", store, invoker, AioHost(), DEFAULT_LIMITS, attempt_timeout=60, max_attempts=3
        )
        z, report = await run_round(res, product_job(matrix, w), sgc.UntilDecodable)
        await res.settle()
        return z, report

    z, report = run_virtually(main())
    np.testing.assert_allclose(z, X @ w, rtol=1e-9)
    assert seconds(report) == pytest.approx([10.0 if name == "uncoded" else 1.0], abs=1e-6)
    assert report.balanced
    assert report.issued == code.n_workers
    assert (report.voided > 0) == (name != "uncoded")
