"""AET-SGD and Stochastic Gradient Push: what their papers promise, on toy problems and in virtual time."""

import asyncio
import math

import numpy as np
import pytest
from network_problems import MemoryNodes, net16

from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.gossip import (
    AET,
    LinearSampleTrigger,
    Mail,
    PushSum,
    RowAverage,
    own_share,
    synchronous,
)
from serverless_gc.optim import inverse_time
from serverless_gc.policies import GossipReady, KSync
from serverless_gc.stragglers import Exponential
from serverless_gc.topologies import (
    Complete,
    FromAdjacency,
    OnePeerExponential,
    RandomOut,
    Ring,
    StaticExponential,
)

LOPSIDED = FromAdjacency([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]])  # columns of 6.11 (f)


def nothing(node, k, x):  # noqa: ARG001 - a gradient
    return np.zeros_like(x)


def still(k):  # noqa: ARG001 - a step length
    return 0.0


def last(kernel, n, rounds):
    *_, states = synchronous(kernel, n, rounds)
    return states


# -- AET-SGD ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "samples", "rounds"),
    [(10, 10, 10_000, 45), (50, 50, 20_000, 28), (1, 1, 5050, 100), (100, 10, 50_000, 33)],
)
def test_aet_rounds_grow_like_the_square_root_of_the_samples(a, b, samples, rounds):
    trigger = LinearSampleTrigger(a, b)
    assert trigger.rounds(samples) == rounds
    assert rounds == math.ceil((-(2 * b - a) + math.sqrt((2 * b - a) ** 2 + 8 * a * samples)) / (2 * a))
    assert rounds == pytest.approx(math.sqrt(2 * samples / a), rel=0.06)
    assert LinearSampleTrigger(0, 10).rounds(10_000) == 1000


@pytest.mark.parametrize(("a", "b", "cap"), [(3, 2, None), (3, 2, 20), (3, 2, 2), (0, 5, None), (0, 5, 9), (7, 1, 8)])
def test_aet_totals_are_sums_of_rounds(a, b, cap):
    trigger = LinearSampleTrigger(a, b, cap)
    sizes = [trigger.samples(i) for i in range(40)]
    assert max(sizes) <= (math.inf if cap is None else cap)
    assert [trigger.total(r) for r in range(41)] == [0, *np.cumsum(sizes)]
    for samples in range(1, 120):
        r = trigger.rounds(samples)
        assert trigger.total(r - 1) < samples <= trigger.total(r)
    assert not trigger.should_send({"round": 2, "samples": sizes[2] - 1})
    assert trigger.should_send({"round": 2, "samples": sizes[2]})
    assert trigger.site == "worker"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((-1, 1), "a must be at least 0"),
        ((1, 0), "b must be at least 1"),
        ((1, 9, 8), "cap must be at least b = 9, got 8"),
    ],
)
def test_aet_bad_parameters_are_named(fields, words):
    with pytest.raises(InputError, match=words):
        LinearSampleTrigger(*fields)


def test_aet_counts_samples_through_the_rounds():
    seen = []
    kernel = AET(Ring(3), lambda node, t, x: seen.append((node, t)) or x, np.ones(2), LinearSampleTrigger(2, 1, 4), 0.1)
    states = last(kernel, 3, 4)
    assert [int(s[1][0]) for s in states] == [1 + 3 + 4 + 4] * 3
    assert sorted(seen) == [(i, t) for i in range(3) for t in range(12)]


def test_aet_sends_less_and_still_arrives():
    growing, short, long = LinearSampleTrigger(10, 10), LinearSampleTrigger(0, 10), LinearSampleTrigger(0, 150)
    assert short.rounds(4000) >= 10 * growing.rounds(4000)
    assert abs(long.rounds(4000) - growing.rounds(4000)) <= 1

    def excess(trigger, seed, samples):
        """Of the last model that all nodes had in common by then."""
        p = net16(n=8, batch=1, shuffled=True, seed=seed)
        kernel = AET(Complete(8), p.gradient, np.zeros(p.d), trigger, inverse_time(0.1, 0.01))
        states = last(kernel, 8, trigger.rounds(samples + 1) - 1)
        return p.excess(np.mean([x for x, _ in states], axis=0)), p.excess(np.zeros(p.d))

    early = {t: np.mean([excess(t, seed, 500)[0] for seed in range(10)]) for t in (growing, long)}
    assert early[growing] <= 0.75 * early[long]
    for trigger in (growing, short, long):
        final, initial = excess(trigger, 0, 2000)
        assert final < 0.003 * initial


# -- Stochastic Gradient Push ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topology", [LOPSIDED, RandomOut(6, 2, seed=1), OnePeerExponential(6)], ids=lambda t: type(t).__name__
)
@pytest.mark.parametrize("tau", [0, 2])
def test_push_sum_conserves_mass_whatever_is_in_flight(topology, tau):
    n, lr = topology.n, 0.1
    x0 = np.random.default_rng(0).standard_normal((n, 3))
    moved = np.zeros(3)

    def gradient(node, k, z):
        nonlocal moved
        g = np.sin(z + node + k)
        moved = moved - lr * g
        return g

    nodes = MemoryNodes(PushSum(topology, gradient, x0, lr))
    engine, host = Engine(GossipReady(topology, tau), n), VirtualHost(Exponential(1.0), seed=2)
    in_flight = 0
    for _ in range(25):
        asyncio.run(host.run(engine, nodes.run))
        kept = [(own_share(topology, i, k), state) for i, (k, state) in nodes.states.items()]
        total = [sum(share * state[part] for share, state in kept) for part in (0, 1)]
        for arrays in nodes.mail.values():
            total = [have + more for have, more in zip(total, arrays, strict=True)]
        in_flight += len(nodes.mail)
        assert total[1][0] == pytest.approx(n, abs=1e-12)
        np.testing.assert_allclose(total[0], x0.sum(axis=0) + moved, rtol=0, atol=1e-11)
    assert in_flight > 0


@pytest.mark.parametrize(
    "topology", [Ring(5), OnePeerExponential(8), StaticExponential(6)], ids=lambda t: type(t).__name__
)
def test_push_sum_on_doubly_stochastic_graphs_is_dpsgd(topology):
    p = net16(n=topology.n)
    for push, plain in zip(
        synchronous(PushSum(topology, p.gradient, np.zeros(p.d), 0.1), topology.n, 12),
        synchronous(PushSum(topology, p.gradient, np.zeros(p.d), 0.1, debias=False), topology.n, 12),
        strict=True,
    ):
        for (x, w), (y, _) in zip(push, plain, strict=True):
            assert w[0] == pytest.approx(1, abs=1e-14)
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-13)


def test_dpsgd_is_the_mixing_matrix_times_the_models():
    p, topology, lr = net16(n=5), RandomOut(5, 2, seed=3), 0.1
    x = np.zeros((5, p.d))
    for k, states in enumerate(synchronous(PushSum(topology, p.gradient, np.zeros(p.d), lr, debias=False), 5, 6), 1):
        x = x - lr * np.array([p.gradient(i, k, x[i]) for i in range(5)])
        np.testing.assert_allclose([s[0] for s in states], x, rtol=0, atol=1e-12)
        x = topology.matrix(k) @ x


def test_push_sum_on_the_complete_graph_is_synchronous_sgd():
    p, lr = net16(n=8, batch=4), 0.1
    x = np.zeros(p.d)
    for k, states in enumerate(synchronous(PushSum(Complete(8), p.gradient, x, lr), 8, 20), 1):
        x = x - lr * np.mean([p.gradient(i, k, x) for i in range(8)], axis=0)
        assert all(w[0] == 1 for _, w in states)
        np.testing.assert_allclose(np.mean([s[0] for s in states], axis=0), x, rtol=0, atol=1e-13)
    still_going = PushSum(Complete(8), nothing, x, still)
    shares = [Mail(i, 20, (y / 8, w / 8)) for i, (y, w) in enumerate(states)]
    mixed = [still_going.step(i, 21, states[i], shares[:i] + shares[i + 1 :])[0] for i in range(8)]
    np.testing.assert_allclose(mixed[0], x, rtol=0, atol=1e-13)
    assert len({model.tobytes() for model in mixed}) == 1  # every node adds up in the same order


def test_push_sum_finds_the_mean_where_others_do_not():
    x0 = np.array([[1.0], [2.0], [3.0], [10.0]])
    np.testing.assert_allclose(
        LOPSIDED.matrix(0).T, [[1 / 3, 1 / 3, 1 / 3, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]]
    )
    kernel = PushSum(LOPSIDED, nothing, x0, still)
    states = last(kernel, 4, 200)
    np.testing.assert_allclose([w[0] for _, w in states], np.array([12, 8, 16, 16]) / 13, rtol=1e-12)
    np.testing.assert_allclose([kernel.model(s)[0] for s in states], 4, rtol=1e-12)
    biased = [s[0][0] for s in last(PushSum(LOPSIDED, nothing, x0, still, debias=False), 4, 200)]
    np.testing.assert_allclose(biased, 4 * np.array([12, 8, 16, 16]) / 13, rtol=1e-12)
    np.testing.assert_allclose([s[0][0] for s in last(RowAverage(LOPSIDED, nothing, x0, still), 4, 200)], 57 / 13)


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (None, 2.72),
        (lambda: GossipReady(Ring(8), every=400), 2.21),
        (lambda: GossipReady(OnePeerExponential(8), every=400), 1.97),
        (lambda: GossipReady(OnePeerExponential(8), 1, every=400), 1.52),
        (lambda: GossipReady(OnePeerExponential(8), 3, every=400), 1.28),
    ],
    ids=["barrier", "ring", "one-peer", "tau=1", "tau=3"],
)
def test_waiting_for_neighbours_alone_is_shorter(policy, seconds):
    host = VirtualHost(Exponential(1.0), seed=3)
    if policy is None:
        rounds = len(list(host.simulate(Engine(KSync(8), 8, keep_records=False), 1200)))
    else:
        rounds = 400 * len(list(host.simulate(Engine(policy(), 8, keep_records=False), 3)))
    assert host.now / rounds == pytest.approx(seconds, rel=0.04)


def test_push_sum_is_as_good_as_an_all_reduce():
    n, rounds = 16, 300

    def lr(t):
        return 0.0 if t == rounds - 1 else 0.05 if t < rounds // 2 else 0.005  # the last round only mixes

    def irregular(seed):
        rng, edges = np.random.default_rng(seed), np.zeros((n, n), bool)
        for i in range(n):
            edges[i, [(i + 1) % n, 0, *rng.choice(n, rng.integers(4), replace=False)]] = True
        return FromAdjacency(edges)

    figures = {}
    for seed in range(2):
        p = net16(batch=10, seed=seed)
        x = np.zeros(p.d)
        for t in range(rounds):
            x = x - lr(t) * np.mean([p.gradient(i, t + 1, x) for i in range(n)], axis=0)
        figures["all-reduce"] = figures.get("all-reduce", 0) + np.array([p.excess(x)] * 2)
        common, digraph = (p.gradient, np.zeros(p.d), lr), irregular(seed)
        for name, kernel in {
            "one-peer": PushSum(OnePeerExponential(n), *common),
            "irregular": PushSum(digraph, *common),
            "rows": RowAverage(digraph, *common),
            "biased": PushSum(digraph, *common, debias=False),
        }.items():
            models = [kernel.model(s) if isinstance(kernel, PushSum) else s[0] for s in last(kernel, n, rounds)]
            both = p.excess(np.mean(models, axis=0)), np.mean([p.excess(m) for m in models])
            figures[name] = figures.get(name, 0) + np.array(both)
    mean, each = figures["all-reduce"]
    for name in ("one-peer", "irregular"):
        assert figures[name][0] < 1.5 * mean
        assert figures[name][1] < 4 * each
    for name in ("rows", "biased"):
        assert figures[name][0] > 20 * mean
        assert figures[name][1] > 20 * each
