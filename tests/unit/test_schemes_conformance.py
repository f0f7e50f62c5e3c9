"""Checks that cut across schemes: times, versions, idempotency, determinism, bias, restart, and exact error floors."""

import asyncio
import math

import numpy as np
import pytest
from toy_problems import Delays, SlotDelays, exponential, lin20, train

from serverless_gc.aggregate import Mean
from serverless_gc.engine import Arrived, CloseRound, Completion, Engine, Issue, VirtualHost
from serverless_gc.optim import SGD, Momentum
from serverless_gc.policies import (
    AdaSync,
    Anytime,
    Cutoff,
    FreshK,
    GlobalBatch,
    Groups,
    KalmanLog,
    KAsync,
    KBatchAsync,
    KBatchSync,
    KSync,
    WaitAll,
)
from serverless_gc.training import Training


@pytest.mark.parametrize(
    ("policy", "n"),
    [
        (WaitAll(), 6),
        (KSync(4), 6),
        (AdaSync(2, interval=1.0), 6),
        (Anytime(1.0), 6),
        (Cutoff(KalmanLog()), 6),
        (Groups([[0, 1, 2], [3, 4, 5]]), 6),
        (KBatchSync(4), 6),
        (KAsync(4), 6),
        (GlobalBatch(4), 6),
        (FreshK(3), 6),
    ],
    ids=lambda value: type(value).__name__,
)
def test_versions_never_run_ahead_and_synchronous_ones_are_equal(policy, n):
    engine = Engine(policy, n)
    outcomes = list(VirtualHost(Delays(exponential), seed=5).simulate(engine, 200))
    ages = {o.version - a.task.version for o in outcomes for a in o.arrivals}
    assert min(ages) >= 0
    assert (ages == {0}) == (policy.leftover == "cancel")
    total = outcomes[0].counts
    for o in outcomes[1:]:
        total = total + o.counts
    assert total.balanced


def gradient(task, x):
    return x + np.random.default_rng(task.seed).standard_normal(x.shape)


@pytest.mark.parametrize("policy", [lambda: KSync(3), lambda: Groups([[0, 1], [2, 3]]), lambda: KBatchAsync(2)])
def test_results_delivered_twice_and_in_any_order_change_nothing(policy):
    def trajectory(shuffle):
        engine, x, models, rng = Engine(policy(), 4, seed=1), np.ones(2), {}, np.random.default_rng(0)
        clock, flying, seen = 0.0, [], []
        for version in range(30):
            models[version] = x
            actions, close = engine.open(clock), None
            while close is None:
                flying += [a.task for a in actions if isinstance(a, Issue)]
                clock += 1.0
                task = flying.pop(0)
                deliveries = [task]
                if shuffle:  # again the same, and something delivered long ago
                    deliveries += [task, *([seen[rng.integers(len(seen))]] if seen else [])]
                seen.append(task)
                actions = []
                for t in deliveries:
                    body = gradient(t, models[t.version])
                    if close is None:
                        actions += engine.handle(Arrived(t, body=body), clock)
                        close = next((a for a in actions if isinstance(a, CloseRound)), None)
                    else:
                        engine.handle(Arrived(t, body=body), clock)
            x = x - 0.1 * np.mean([a.body for a in close.arrivals], axis=0)
            flying = [t for t in flying if t.task_id in {f.task.task_id for f in engine.view.in_flight()}]
        return x

    assert np.array_equal(trajectory(shuffle=False), trajectory(shuffle=True))


def sgd(policy, delays=exponential, *, seed=0, **options):
    return train(
        policy, delays, gradient, np.ones(3), n_slots=6, aggregator=Mean(), optimizer=Momentum(0.05),
        rounds=40, seed=seed, **options,
    )  # fmt: skip


def test_equal_seeds_give_equal_logs_and_times_do_not_change_synchronous_trajectories():
    for policy in (lambda: KSync(6), lambda: KBatchAsync(2)):
        first, again = sgd(policy()), sgd(policy())
        assert first.times == again.times
        assert np.array_equal(first.models, again.models)
    slow = sgd(KSync(6), lambda rng: 7 * rng.standard_exponential())
    assert slow.times != sgd(KSync(6)).times
    # slots answer in another order, and sums round differently
    np.testing.assert_allclose(slow.models[-1], sgd(KSync(6)).models[-1], rtol=1e-12)


def test_dropping_biases_fixed_shards_but_not_drawn_data():
    law = SlotDelays(lambda slot, _, rng: rng.standard_exponential() / (slot + 1))
    problem, x = lin20(n=400), np.ones(20)

    def frozen(work):
        return train(KSync(1), law, work, x, n_slots=4, aggregator=Mean(), optimizer=SGD(1e-300), rounds=1500)

    drawn = frozen(lambda task, x: problem.sample(x, 4, task.seed))
    share = np.bincount([s.outcome.arrivals[0].task.slot for s in drawn.steps]) / 1500
    np.testing.assert_allclose(share, [0.1, 0.2, 0.3, 0.4], atol=0.04)
    directions = np.array([s.update.direction for s in drawn.steps])
    error = directions.std(axis=0) / math.sqrt(1500)
    assert (np.abs(directions.mean(axis=0) - problem.gradient(x, slice(None))) < 3.5 * error).all()
    fixed = frozen(lambda task, x: problem.gradient(x, slice(100 * task.slot, 100 * task.slot + 100)))
    weighted = sum(0.1 * (i + 1) * problem.gradient(x, slice(100 * i, 100 * i + 100)) for i in range(4))
    off = np.mean([s.update.direction for s in fixed.steps], axis=0) - weighted
    assert np.abs(off).max() < 0.1 < np.abs(weighted - problem.gradient(x, slice(None))).max()


async def resumed(policy, after):
    """Stop after so many updates, keep only what is stored, and go on with new objects."""

    async def work(task, x):
        return Completion(gradient(task, x))

    def loop(x, version, seed):
        return Training(
            Engine(policy(), 6, seed=0, version=version), VirtualHost(Delays(exponential), seed=seed), work, x,
            aggregator=Mean(), optimizer=Momentum(0.05),
        )  # fmt: skip

    first = loop(np.ones(3), 0, 1)
    steps = [step async for step in first.steps(after)]
    await first.close()
    second = loop(first.x, after, 2)
    second.state = first.state
    steps += [step async for step in second.steps(20 - after)]
    await second.close()
    return steps


@pytest.mark.parametrize("after", [1, 7, 19])
def test_a_synchronous_run_that_was_stopped_goes_on_as_if_it_had_not_been(after):
    stopped, whole = asyncio.run(resumed(WaitAll, after)), asyncio.run(resumed(WaitAll, 20))
    assert [s.version for s in stopped] == list(range(20))
    np.testing.assert_allclose(stopped[-1].x, whole[-1].x, rtol=1e-12)


def test_an_asynchronous_run_goes_on_with_right_versions():
    steps = asyncio.run(resumed(lambda: KBatchAsync(2), 10))
    assert [s.version for s in steps] == list(range(20))
    assert steps[10].staleness == (0, 0)  # what was in flight is void; the new run begins with fresh tasks
    assert max(age for s in steps[12:] for age in s.staleness) > 0
    assert all(0 <= age <= s.version - 10 for s in steps[10:] for age in s.staleness)


def quadratic(policy, n, lr, a, sigma, rounds, start):
    """Run many independent copies of ``F = a x^2 / 2`` with additive noise, one per coordinate."""

    def noisy(task, x):
        return a * x + sigma * np.random.default_rng(task.seed).standard_normal(x.shape)

    return train(
        policy, lambda _: 1.0, noisy, np.full(60, start), n_slots=n, aggregator=Mean(), optimizer=SGD(lr), rounds=rounds
    )


def test_error_floors_of_the_scalar_quadratic():
    a, lr, sigma = 2.0, 0.1, 3.0
    fresh = quadratic(KSync(5), 5, lr, a, sigma, 1000, 0.0)
    assert np.mean(np.square(fresh.models[100:])) == pytest.approx(0.05, rel=0.03)
    # two slots in turn: every gradient is exactly one version old
    stale = quadratic(KBatchAsync(1), 2, lr, a, sigma, 1500, 0.0)
    assert {step.staleness for step in stale.steps[1:]} == {(1,)}
    assert np.mean(np.square(stale.models[100:])) == pytest.approx(5 * 0.0613636, rel=0.03)


@pytest.mark.parametrize(("tau", "limit"), [(0, 2.0), (1, 1.0), (2, 0.618034), (3, 0.445042)])
def test_staleness_limits_the_step(tau, limit):
    assert 2 * math.sin(math.pi / (2 * (2 * tau + 1))) == pytest.approx(limit, abs=1e-6)
    for factor, stable in [(0.97, True), (1.03, False)]:
        run = quadratic(KBatchAsync(1), tau + 1, factor * limit, 1.0, 0.0, 900, 1.0)
        assert bool(np.abs(run.models[-1]).max() < 1.0) == stable
