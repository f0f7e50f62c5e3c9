"""LASGD and LayUp: what their papers promise, on toy problems and in virtual time."""

from fractions import Fraction

import numpy as np
import pytest
from network_problems import Lin20, SometimesSlow, net16, nothing, still, trained
from policy_lasgd_2022 import lasgd

from serverless_gc.aggregate import Mean
from serverless_gc.errors import InputError
from serverless_gc.gossip import LEAST_WEIGHT, LayUp, Mail, synchronous
from serverless_gc.optim import SGD
from serverless_gc.policies import KAsync
from serverless_gc.stragglers import Constant, Exponential
from serverless_gc.topologies import LayerPeers

# -- LASGD -----------------------------------------------------------------------------------------------


def test_lasgd_with_one_group_is_asynchronous_sgd():
    p = Lin20(batch=8)
    one = lasgd(6, 3, p.gradient, SometimesSlow(), slots=6, updates=60)
    plain = trained(KAsync(1), np.zeros(20), Mean(), SGD(0.05), p.gradient, SometimesSlow(), slots=6, updates=60)
    for (t, x), (t_plain, x_plain) in zip(one, plain, strict=True):
        assert t == t_plain
        np.testing.assert_array_equal(x[0], x_plain)


def test_lasgd_with_groups_of_one_is_local_sgd():
    p, period, slots = net16(n=4, batch=5), 3, 4
    steps = lasgd(1, period, p.gradient, Exponential(1.0), slots=slots, d=10, updates=5 * period * slots)
    x = np.zeros(10)
    for average in range(5):
        local = []
        for i in range(slots):
            z = x
            for h in range(period):
                z = z - 0.05 * p.gradient(i, average * period + h + 1, z)
            local.append(z)
        x = np.mean(local, axis=0)
        models = steps[(average + 1) * period * slots - 1][1]
        np.testing.assert_allclose(models, np.tile(x, (slots, 1)), rtol=0, atol=1e-14)


def test_lasgd_with_groups_of_one_and_period_one_is_synchronous_sgd():
    p = net16(n=4, batch=5)
    steps = lasgd(1, 1, p.gradient, Constant(1.0), slots=4, d=10, updates=40)
    x = np.zeros(10)
    for k in range(1, 11):
        x = x - 0.05 * np.mean([p.gradient(i, k, x) for i in range(4)], axis=0)
        t, models = steps[4 * k - 1]
        assert t == k
        np.testing.assert_allclose(models, np.tile(x, (4, 1)), rtol=0, atol=1e-14)


def test_lasgd_models_are_bit_identical_after_an_average():
    p = Lin20(batch=8)
    steps = lasgd(2, 4, p.gradient, SometimesSlow(), slots=8, updates=120)
    equal = [bool(np.all(x == x[0])) for _, x in steps]
    assert sum(equal) >= 5  # 120 updates are at least five averages of sixteen
    assert not all(equal)


def test_lasgd_larger_groups_stand_stragglers_better(figures):
    by_size = list(figures("policy_lasgd_2022").at_checkpoints.values())
    early = [excess[0] for excess in by_size[:4]]
    assert early == sorted(early, reverse=True)
    assert early[0] > 1.3 * early[1] > 1.3**2 * early[2]
    eights, asynchronous = by_size[3:]
    assert eights[1] < asynchronous[1]


# -- LayUp -----------------------------------------------------------------------------------------------


def test_layup_weights_are_conserved_exactly_and_mass_to_rounding():
    rng, n, layers, d = np.random.default_rng(7), 5, 3, 7
    kernel = LayUp(LayerPeers(n, layers, seed=3), nothing, rng.standard_normal((n, d)), still)
    block_of = np.repeat(range(layers), [3, 2, 2])
    states, rounds = [kernel.start(i) for i in range(n)], [0] * n
    inboxes = [[] for _ in range(n)]
    start = sum(x for x, _ in states)
    smallest = 1.0
    for event in range(3000):
        # Node 0 gets no mail in the middle third: its weights fall until it stops sending.
        i = 0 if 1000 < event < 1100 else int(rng.integers(n))
        rng.shuffle(inboxes[i])
        taken = 0 if i == 0 and 1000 < event < 2000 else int(rng.integers(len(inboxes[i]) + 1))
        mail, inboxes[i] = inboxes[i][:taken], inboxes[i][taken:]
        rounds[i] += 1
        states[i] = kernel.step(i, rounds[i], states[i], mail)
        for j, arrays in kernel.send(i, rounds[i], states[i]):
            inboxes[j].append(Mail(i, rounds[i], arrays))
        smallest = min(smallest, states[i][1].min())
        if event % 50:
            continue
        weights, mass = [Fraction(0)] * layers, np.zeros(d)
        for k, (x, omega) in zip(rounds, states, strict=True):
            kept = omega - kernel.sent_weights(omega) if k else omega
            weights = [w + Fraction(o) for w, o in zip(weights, kept, strict=True)]
            mass += kept[block_of] * x
        for message in (m for inbox in inboxes for m in inbox):
            chosen, omega, parts = message.arrays
            sent = np.isin(block_of, chosen)
            for layer, o in zip(chosen, omega, strict=True):
                weights[layer] += Fraction(o)
            mass[sent] += omega[np.searchsorted(chosen, block_of[sent])] * parts
        assert weights == [n] * layers
        np.testing.assert_allclose(mass, start, rtol=0, atol=1e-12)
    assert LEAST_WEIGHT / 2 <= smallest < LEAST_WEIGHT


def test_layup_with_one_layer_is_gossip_sgd():
    n, lr, rng = 4, 0.1, np.random.default_rng(1)
    p, topology = net16(n=n), LayerPeers(n, 1, seed=2)
    x, omega = rng.standard_normal((n, p.d)), np.ones(n)
    kernel = LayUp(topology, p.gradient, x, lr)
    sent = []
    for k, states in enumerate(synchronous(kernel, n, 15), 1):
        for j, message, weight in sent:
            x[j] = (omega[j] * x[j] + weight * message) / (omega[j] + weight)
            omega[j] += weight
        x = x - lr * np.array([p.gradient(i, k, x[i]) for i in range(n)])
        np.testing.assert_allclose([s[0] for s in states], x, rtol=0, atol=1e-12)
        omega /= 2
        sent = [(topology.of_layers(i, k)[0], x[i].copy(), omega[i]) for i in range(n)]


def test_layup_needs_a_coordinate_for_each_layer():
    with pytest.raises(InputError, match="layers must be at most the number of coordinates, 2, got 3"):
        LayUp(LayerPeers(2, 3), nothing, np.zeros(2), 0.1)


def test_layup_goes_on_while_others_wait_for_stragglers(figures):
    barrier, alone, gossip, gossip_mean = figures("policy_layup_2024").at_checkpoints.values()
    assert barrier[0] > 4 * gossip_mean[0]
    assert barrier[0] > 4 * gossip[0]
    assert gossip[0] < alone[0]
    assert gossip[1] < 0.75 * alone[1]
