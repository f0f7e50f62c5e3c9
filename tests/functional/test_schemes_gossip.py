"""AET-SGD and Stochastic Gradient Push: what their papers promise, on toy problems and in virtual time."""

import asyncio
import math

import numpy as np
import pytest
from network_problems import MemoryNodes, net16, nothing, still

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
from serverless_gc.policies import GossipReady
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


def test_aet_sends_less_and_still_arrives(figures):
    found = figures("policy_aet_2021")
    growing, short, long = found.messages.values()
    assert short >= 10 * growing
    assert abs(long - growing) <= 1
    assert found.early["10, 20, 30, ..."] <= 0.75 * found.early["150 always"]
    assert max(found.final.values()) < 0.003


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


def test_waiting_for_neighbours_alone_is_shorter(figures):
    seconds = list(figures("policy_push_2019").seconds.values())
    assert seconds == pytest.approx([2.72, 2.21, 1.97, 1.52, 1.28], rel=0.04)


def test_push_sum_is_as_good_as_an_all_reduce(figures):
    found = figures("policy_push_2019")
    for final, margin in ((found.final_mean_node, 1.5), (found.final_each_node, 4)):
        for name in ("push, one peer", "push, irregular"):
            assert final[name] < margin * final["all-reduce"]
        for name in ("averages of rows", "push without weights"):
            assert final[name] > 20 * final["all-reduce"]
