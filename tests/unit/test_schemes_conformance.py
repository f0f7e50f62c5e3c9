"""Checks that cut across schemes: times, versions, idempotency, determinism, bias, restart, and exact error floors."""

import asyncio
import json
import math

import numpy as np
import pytest
from toy_problems import Delays, SlotDelays, exponential, lin20, train

from serverless_gc.aggregate import Mean
from serverless_gc.engine import Arrived, CloseRound, Completion, Engine, Issue, VirtualHost
from serverless_gc.fitting.training import Training
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
from serverless_gc.stragglers import Exponential


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
    outcomes = list(VirtualHost(Exponential(1.0), seed=5).simulate(engine, 2000))
    ages = {o.version - a.task.version for o in outcomes for a in o.arrivals}
    assert min(ages) >= 0
    assert (ages == {0}) == (policy.leftover == "cancel")
    total = outcomes[0].counts
    for o in outcomes[1:]:
        total = total + o.counts
    assert total.balanced


def gradient(task, x):
    return x + np.random.default_rng(task.seed).standard_normal(x.shape)


def exact_gradient(task, x):
    """Few binary digits: sums, and means of two or four, are exact in whatever order."""
    return np.round((x + np.random.default_rng(task.seed).standard_normal(x.shape)) * 2**20) / 2**20


def delivered(policy, rng=None, *, any_order=False):
    """Models of 30 rounds whose results come once, in order of issue; with ``rng``, twice and mixed with older ones."""
    engine, x, models, seen = Engine(policy, 4, seed=1), np.ones(2), [], []
    clock, flying = 0.0, []
    for _ in range(30):
        models.append(x)
        actions, close, again = engine.open(clock), None, []
        while close is None:
            flying += [a.task for a in actions if isinstance(a, Issue)]
            clock += 1.0
            task = flying.pop(int(rng.integers(len(flying))) if any_order else 0)
            deliveries = [task]
            if rng is not None:  # again what came in this round, at some later time of it, and some older results
                again.append(task)
                deliveries += [again.pop(int(rng.integers(len(again)))) for _ in range(rng.integers(len(again) + 1))]
                deliveries += [seen[int(rng.integers(len(seen)))] for _ in range(min(2, len(seen)))]
            seen.append(task)
            actions = []
            for t in deliveries:
                actions += engine.handle(Arrived(t, body=exact_gradient(t, models[t.version])), clock)
            close = next((a for a in actions if isinstance(a, CloseRound)), None)
        for t in again:  # the rest of the second copies come when the round is over
            assert engine.handle(Arrived(t, body=np.full(2, np.nan)), clock) == []
        x = x - 0.125 * np.sum([a.body for a in close.arrivals], axis=0) / 4
        flying = [t for t in flying if t.task_id in {f.task.task_id for f in engine.view.in_flight()}]
    return models, engine


@pytest.mark.parametrize(
    "policy",
    [WaitAll, lambda: KSync(3), lambda: Groups([[0, 1], [2, 3]]), lambda: KAsync(2), lambda: KBatchAsync(2)],
    ids=["WaitAll", "KSync", "Groups", "KAsync", "KBatchAsync"],
)
def test_results_delivered_twice_and_late_change_nothing(policy):
    once, _ = delivered(policy())
    for seed in range(5):
        twice, engine = delivered(policy(), np.random.default_rng(seed))
        assert np.array_equal(once, twice)
    assert sum(counts.duplicates + counts.late for counts in (engine.counts, engine.last.counts)) > 0


def test_results_of_a_round_delivered_twice_in_any_order_change_nothing():
    once, _ = delivered(WaitAll())
    for seed in range(10):
        assert np.array_equal(once, delivered(WaitAll(), np.random.default_rng(seed), any_order=True)[0])


def sgd(policy, *, work=gradient, **options):
    return train(
        policy, exponential, work, np.ones(3), n_slots=6, aggregator=Mean(), optimizer=Momentum(0.05),
        rounds=40, **options,
    )  # fmt: skip


def test_equal_seeds_give_equal_logs_and_times_do_not_change_synchronous_trajectories():
    for policy in (lambda: KSync(6), lambda: KBatchAsync(2)):
        first, again = sgd(policy()), sgd(policy())
        assert first.times == again.times
        assert np.array_equal(first.models, again.models)
    one, other = sgd(KSync(6), work=exact_gradient), sgd(KSync(6), work=exact_gradient, delay_seed=7)
    assert not set(one.times[1:]) & set(other.times[1:])
    # slots answer in another order, and means of six round differently
    np.testing.assert_allclose(one.models, other.models, rtol=1e-12)


def test_dropping_biases_fixed_shards_but_not_drawn_data():
    law = SlotDelays(lambda slot, _, rng: rng.standard_exponential() / (slot + 1))
    problem, x, rates = lin20(n=400), np.ones(20), np.array([0.1, 0.2, 0.3, 0.4])

    def frozen(work, rounds):
        run = train(KSync(1), law, work, x, n_slots=4, aggregator=Mean(), optimizer=SGD(1e-300), rounds=rounds)
        slots = np.bincount([s.outcome.arrivals[0].task.slot for s in run.steps])
        assert (np.abs(slots - rounds * rates) < 3 * np.sqrt(rounds * rates * (1 - rates))).all()
        return np.array([s.update.direction for s in run.steps])

    drawn = frozen(lambda task, x: problem.sample(x, 4, task.seed), 40_000)
    whole, error = problem.gradient(x, slice(None)), drawn.std(axis=0) / math.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - whole) < 3 * error).all()
    shards = np.array([problem.gradient(x, slice(100 * i, 100 * i + 100)) for i in range(4)])
    fixed = frozen(lambda task, _: shards[task.slot], 4000)
    error = fixed.std(axis=0) / math.sqrt(len(fixed))
    assert (np.abs(fixed.mean(axis=0) - rates @ shards) < 3 * error).all()
    assert (np.abs(rates @ shards - whole) > 10 * error).any()


async def resumed(policy, after, *, take_up=False):
    """Stop after so many updates, keep only what is stored, and go on with new objects.

    With ``take_up`` what was in flight is told as well, and the delays to come are those that would have come.
    """

    async def work(task, x):
        return Completion(gradient(task, x))

    def loop(x, version, seed):
        return Training(
            Engine(policy(), 6, seed=0, version=version), VirtualHost(Delays(exponential), seed=seed), work, x,
            aggregator=Mean(), optimizer=Momentum(0.05),
        )  # fmt: skip

    first = loop(np.ones(3), 0, 1)
    steps = [step async for step in first.steps(after)]
    second = loop(first.x, after, 2)
    second.state = first.state
    if take_up:
        told, models = json.loads(json.dumps(first.in_flight()[0])), first.in_flight()[1]
        second.host.now, second.host.draws = first.host.now, json.loads(json.dumps(first.host.draws))
        second.take_up(told, models)
    await first.close()
    steps += [step async for step in second.steps(20 - after)]
    await second.close()
    return steps


def test_a_synchronous_run_that_was_stopped_goes_on_as_if_it_had_not_been():
    whole = asyncio.run(resumed(WaitAll, 20))
    for after in range(1, 20):
        stopped = asyncio.run(resumed(WaitAll, after))
        assert [s.version for s in stopped] == list(range(20))
        np.testing.assert_allclose([s.x for s in stopped], [s.x for s in whole], rtol=1e-12)


@pytest.mark.parametrize("policy", [lambda: KAsync(2), lambda: KBatchAsync(2)], ids=["KAsync", "KBatchAsync"])
def test_an_asynchronous_run_that_takes_up_what_was_in_flight_is_the_same_to_the_last_bit(policy):
    whole = asyncio.run(resumed(policy, 20))
    for after in range(1, 20):
        stopped = asyncio.run(resumed(policy, after, take_up=True))
        assert [(s.version, s.staleness) for s in stopped] == [(s.version, s.staleness) for s in whole]
        assert np.array_equal([s.x for s in stopped], [s.x for s in whole])


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
