"""Expander code: the Petersen table over all sets, eigenvalues of the families, mean errors."""

import numpy as np
import pytest
from approx_codes import errors, mean_within, random_errors

from serverless_gc.codes.gradient.expander import ExpanderCode
from serverless_gc.codes.gradient.regular_graphs import (
    adjacency,
    complete,
    margulis,
    paley,
    petersen,
    random_regular,
    second_eigenvalue,
    spread_regular,
)
from serverless_gc.codes.gradient.spectral import spectral_bound
from serverless_gc.errors import InputError

PETERSEN = {  # stragglers: worst one-step, worst optimal, bound, mean one-step, mean optimal
    1: (0.288066, 0.181818, 0.493827, 0.288066, 0.181818),
    2: (0.763889, 0.470588, 1.111111, 0.648148, 0.416290),
    3: (1.564626, 1.000000, 1.904762, 1.111111, 0.726407),
    4: (2.962963, 2.285714, 2.962963, 1.728395, 1.146022),
}


@pytest.mark.parametrize("s", PETERSEN)
def test_table_of_the_petersen_graph(s):
    code = ExpanderCode(10, 10, graph="petersen")
    one_step, best = errors(code, s, "one-step"), errors(code, s)
    found = (one_step.max(), best.max(), code.worst_error(s), one_step.mean(), best.mean())
    np.testing.assert_allclose(found, PETERSEN[s], atol=6e-7)
    assert code.one_step_error(10 - s) == pytest.approx(PETERSEN[s][3], abs=6e-7)
    assert spectral_bound(code, s) == pytest.approx(code.worst_error(s))
    assert best.max() >= s // 3


@pytest.mark.parametrize(
    ("m", "expected"), [(3, 4.605551), (4, 4.828427), (5, 5.325385), (6, 5.544607), (8, 5.623055), (10, 5.893523)]
)
def test_eigenvalues_of_margulis_graphs(m, expected):
    matrix = margulis(m * m)
    assert second_eigenvalue(matrix) == pytest.approx(expected, abs=6e-7)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert set(matrix.sum(axis=1)) == {8.0}
    assert second_eigenvalue(matrix) <= 5 * np.sqrt(2)


@pytest.mark.parametrize("q", [5, 13, 17, 29])
def test_paley_graphs(q):
    code = ExpanderCode(q, q, graph="paley")
    assert code.load == (q - 1) // 2
    assert code.second_eigenvalue == pytest.approx((1 + np.sqrt(q)) / 2)


@pytest.mark.parametrize(("n", "degree"), [(4, 3), (5, 2), (10, 3), (11, 8), (12, 6), (30, 5), (9, 0), (7, 6)])
def test_random_regular_graphs_are_simple_and_regular(n, degree):
    for seed in range(5):
        edges = random_regular(n, degree, np.random.default_rng(seed))
        matrix = adjacency(edges, n)
        assert (matrix.sum(axis=1) == degree).all()
        assert len(edges) == n * degree // 2
        assert not np.trace(matrix)


def test_all_small_regular_graphs_turn_up():
    found = {tuple(map(tuple, random_regular(5, 2, np.random.default_rng(s)).tolist())) for s in range(300)}
    assert len(found) == 12  # the 5-cycles on labelled vertices


def test_the_best_of_several_draws_is_kept():
    alone = [second_eigenvalue(adjacency(spread_regular(24, 3, seed, tries=1), 24)) for seed in range(4)]
    best = [second_eigenvalue(adjacency(spread_regular(24, 3, seed), 24)) for seed in range(4)]
    assert max(best) <= min(alone) + 0.1
    assert np.mean(best) < np.mean(alone)
    assert max(best) < 2 * np.sqrt(2) + 0.1


def test_mean_errors_at_one_hundred():
    found = []
    for seed in range(60):
        graph = adjacency(spread_regular(100, 5, seed, tries=1), 100)
        code = ExpanderCode(100, 100, graph=graph)
        found += random_errors(code, 80, 1, seed)
    assert mean_within(found, 1.153, extra=0.045 / 4)
    assert code.one_step_error(80) == pytest.approx(4.79798, abs=5e-6)
    assert ExpanderCode(30, 30, load=5).one_step_error(20) == pytest.approx(2.5862069, abs=5e-8)


def test_fixed_weights_follow_the_actual_number_of_arrivals():
    code = ExpanderCode(10, 10, graph="petersen")
    for arrived in (4, 7, 10):
        assert code.weights(range(arrived), "one-step").a[0] == pytest.approx(10 / arrived)


def test_usual_loads_and_graphs():
    assert [ExpanderCode(n, n).load for n in (3, 4, 5, 16, 17)] == [2, 3, 4, 3, 4]
    given = ExpanderCode(4, 4, graph=complete(4))
    assert (given.load, given.second_eigenvalue) == (3, pytest.approx(1.0))
    np.testing.assert_array_equal(given.adjacency, complete(4))
    assert second_eigenvalue(petersen()) == pytest.approx(2.0)
    assert paley(5).sum() == 10


@pytest.mark.parametrize(
    ("n", "params", "words"),
    [
        (7, {"load": 3}, "3-regular graph on 7 vertices does not exist.*product even"),
        (7, {"load": 7}, r"load must be an integer in 1\.\.6"),
        (2, {}, "n_workers must be at least 3"),
        (6, {"load": 1}, "connected and not bipartite"),
        (6, {"graph": "cycle"}, "connected and not bipartite"),
        (8, {"graph": np.kron(np.eye(2), complete(4))}, "connected and not bipartite"),
        (12, {"graph": "paley"}, r"prime number of vertices, 1 modulo 4, got 12: take one of 5, 13, 17, 29"),
        (10, {"graph": "margulis"}, "take one of 9, 16, 25, 36"),
        (9, {"graph": "petersen"}, "has 10 vertices, got 9"),
        (9, {"graph": "star"}, "graph must be 'random', 'complete'.*got 'star'"),
        (13, {"graph": "paley", "load": 5}, "load must be the degree of the graph, 6, got 5"),
        (3, {"graph": [[0, 1, 1], [1, 0, 0], [1, 0, 0]]}, "graph must be regular: its degrees range from 1 to 2"),
        (3, {"graph": [[0, 1, 1], [1, 0, 1], [0, 1, 0]]}, "symmetric"),
        (3, {"graph": np.eye(2)}, r"shape \(3, 3\)"),
        (4, {"seed": 1.5}, "seed must be an integer"),
    ],
)
def test_refusals(n, params, words):
    with pytest.raises(InputError, match=words):
        ExpanderCode(n, n, **params)
    with pytest.raises(InputError, match="k must equal n_workers"):
        ExpanderCode(n, n + 1, **params)
