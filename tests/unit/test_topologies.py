"""Topologies: column-stochastic by construction, and as fast as their papers say."""

import numpy as np
import pytest

from serverless_gc.errors import InputError
from serverless_gc.topologies import (
    Complete,
    DirectedRing,
    FromAdjacency,
    Groups,
    LayerPeers,
    OnePeerExponential,
    RandomOut,
    Ring,
    StaticExponential,
    distance_to_average,
    is_doubly_stochastic,
    second_singular_value,
)
from serverless_gc.types import Topology

FIXED = [OnePeerExponential, StaticExponential, Ring, DirectedRing, Complete]


def every_topology():
    for n in (1, 2, 3, 6, 8, 11):
        yield from (kind(n) for kind in FIXED)
        yield from (RandomOut(n, d, seed=n) for d in {0, min(1, n - 1), n - 1})
        yield FromAdjacency(np.random.default_rng(n).random((n, n)) < 0.3)
        yield from (Groups(n, size) for size in range(1, n + 1) if n % size == 0)
        if n > 1:
            yield from (LayerPeers(n, layers, seed=n) for layers in (1, 4))


def test_weights_that_leave_a_node_sum_to_one():
    for topology in every_topology():
        for k in range(5):
            A = topology.matrix(k)
            np.testing.assert_allclose(A.sum(axis=0), 1, rtol=0, atol=1e-15)
            assert np.all(A >= 0)
            assert np.all(np.diag(A) > 0)
            for i in range(topology.n):
                targets = [j for j, _ in topology.out(i, k)]
                assert targets[0] == i
                assert len(set(targets)) == len(targets)
                assert set(targets) <= set(range(topology.n))


def test_they_are_the_protocol_of_the_engine():
    topology: Topology = Groups(6, 2)
    assert topology.groups() == [[0, 1], [2, 3], [4, 5]]
    assert Ring(3).groups() == [[0], [1], [2]]
    np.testing.assert_array_equal(topology.matrix(0), np.kron(np.eye(3), np.full((2, 2), 0.5)))


@pytest.mark.parametrize("kind", FIXED)
@pytest.mark.parametrize("n", [2, 5, 8, 12])
def test_the_regular_graphs_are_doubly_stochastic(kind, n):
    assert all(is_doubly_stochastic(kind(n), k) for k in range(4))


def test_random_peers_are_not_doubly_stochastic_and_change_with_round_and_seed():
    topology = RandomOut(12, 2, seed=5)
    assert not is_doubly_stochastic(topology)
    again, other = RandomOut(12, 2, seed=5), RandomOut(12, 2, seed=6)
    assert all(np.array_equal(topology.matrix(k), again.matrix(k)) for k in range(4))
    assert not np.array_equal(topology.matrix(0), topology.matrix(1))
    assert not np.array_equal(topology.matrix(0), other.matrix(0))
    counts = sum(topology.matrix(k) > 0 for k in range(600))
    np.testing.assert_allclose(counts[~np.eye(12, dtype=bool)], 600 * 2 / 11, atol=5 * np.sqrt(600 * 2 / 11))


@pytest.mark.parametrize(("n", "length"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (16, 4), (17, 5)])
def test_hops_of_the_exponential_graphs(n, length):
    assert length == int(np.floor(np.log2(n - 1))) + 1 if n > 2 else length == 1
    hops = [(OnePeerExponential(n).out(0, k)[1][0]) % n for k in range(length)]
    assert hops == [2**k for k in range(length)]
    assert OnePeerExponential(n).out(0, length) == OnePeerExponential(n).out(0, 0)
    assert [j for j, _ in StaticExponential(n).out(0, 0)] == [0, *hops]


@pytest.mark.parametrize("n", [4, 8, 16, 32])
def test_one_peer_rounds_average_exactly_for_powers_of_two(n):
    rounds = n.bit_length() - 1
    assert distance_to_average(OnePeerExponential(n), rounds) == 0
    assert distance_to_average(OnePeerExponential(n), rounds - 1) > 0.01


@pytest.mark.parametrize(("n", "distance"), [(6, 0.083), (12, 0.042)])
def test_one_peer_rounds_do_not_average_exactly_otherwise(n, distance):
    rounds = int(np.ceil(np.log2(n)))
    assert distance_to_average(OnePeerExponential(n), rounds) == pytest.approx(distance, abs=5e-4)


@pytest.mark.parametrize(("n", "value"), [(8, 0.5), (16, 0.6), (32, 0.6667)])
def test_second_singular_value_of_the_static_exponential_graph(n, value):
    exact = 1 - 2 / (1 + np.ceil(np.log2(n)))
    assert exact == pytest.approx(value, abs=5e-5)
    assert second_singular_value(StaticExponential(n)) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("n", [3, 4, 7, 12])
def test_second_singular_value_of_the_rings(n):
    assert second_singular_value(Ring(n)) == pytest.approx(
        max(abs(1 / 3 + 2 / 3 * np.cos(2 * np.pi * j / n)) for j in range(1, n)), abs=1e-12
    )
    if n > 4:
        assert second_singular_value(Ring(n)) == pytest.approx(1 / 3 + 2 / 3 * np.cos(2 * np.pi / n), abs=1e-12)
    assert second_singular_value(DirectedRing(n)) == pytest.approx(np.cos(np.pi / n), abs=1e-12)


def test_second_singular_value_at_the_ends():
    assert second_singular_value(Complete(5)) == pytest.approx(0, abs=1e-12)
    assert second_singular_value(Complete(1)) == 0
    assert second_singular_value(Groups(4, 2)) == pytest.approx(1)


def test_layer_peers_are_uniform_and_never_the_node_itself():
    topology = LayerPeers(5, layers=3, seed=1)
    chosen = np.array([topology.of_layers(2, k) for k in range(800)])
    counts = np.bincount(chosen.ravel(), minlength=5)
    assert counts[2] == 0
    np.testing.assert_allclose(np.delete(counts, 2), 600, atol=5 * np.sqrt(600))
    assert topology.out(2, 0)[0] == (2, 0.5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ring(0), "n must be an integer of at least 1, got 0"),
        (lambda: Complete(2.0), "n must be an integer"),
        (lambda: RandomOut(4, 4), "d must be at most the number of other nodes, 3, got 4"),
        (lambda: RandomOut(4, -1), "d must be an integer of at least 0"),
        (lambda: RandomOut(4, 1, seed=-1), "seed must be an integer of at least 0"),
        (lambda: FromAdjacency([[1, 0, 1], [0, 1, 1]]), r"adjacency must be a square matrix, got shape \(2, 3\)"),
        (lambda: Groups(6, 4), "size must divide the number of nodes, 6, got 4"),
        (lambda: Groups(6, 0), "size must be an integer of at least 1"),
        (lambda: LayerPeers(1, 2), "n must be an integer of at least 2"),
        (lambda: LayerPeers(3, 0), "layers must be an integer of at least 1"),
    ],
)
def test_bad_parameters_are_named(make, words):
    with pytest.raises(InputError, match=words):
        make()
