"""Graph scheme: tables over every set, weights that realize alpha, running error, sizes."""

from itertools import combinations

import numpy as np
import pytest
from approx_codes import errors
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import get
from serverless_gc.codes.gradient.graph import GraphCode
from serverless_gc.codes.gradient.graph_decode import edge_weights
from serverless_gc.codes.gradient.graph_sizes import graph_sizes
from serverless_gc.codes.gradient.regular_graphs import complete, cycle, edge_list, margulis, petersen
from serverless_gc.codes.gradient.spectral import spectral_bound
from serverless_gc.errors import InputError

TABLES = {  # largest and mean error by the number of stragglers
    "petersen": (15, 10, [(0, 0), (0, 0), (1, 0.026374), (1, 0.105495), (2, 0.272172), (2, 0.565416)]),
    "complete": (6, 4, [(0, 0), (0, 0), (1, 0.4), (4 / 3, 1.066667), (2, 2), (4, 4)]),
    "cycle": (6, 6, [(0, 0), (1.2, 0.613333), (2, 1.4), (10 / 3, 2.533333), (4, 4), (6, 6)]),
}


@pytest.mark.parametrize("graph", TABLES)
def test_tables(graph):
    n, k, table = TABLES[graph]
    code = GraphCode(n, k, graph=graph)
    for s, (worst, mean) in enumerate(table, 1):
        found = errors(code, s)
        assert found.max() == pytest.approx(worst, abs=1e-9)
        assert found.mean() == pytest.approx(mean, abs=6e-7)
        assert code.least_worst_error(s) <= worst <= code.worst_error(s) + 1e-9


def test_independent_stragglers_on_the_petersen_graph():
    code = GraphCode(15, graph="petersen")
    total = [sum(code._solve(np.array(kept, int)).error for kept in combinations(range(15), f)) for f in range(16)]
    for p, expected in ((0.1, 0.00121778), (0.2, 0.00992995)):
        mean = sum(error * (1 - p) ** f * p ** (15 - f) for f, error in enumerate(total)) / 10
        assert mean == pytest.approx(expected, abs=5e-9)
        assert mean >= p**3
    assert code.least_independent_error(0.2) / 10 == pytest.approx(0.008 / 0.992)


def test_the_papers_bound_is_half_of_the_spectral_one_or_better():
    code = GraphCode(15, graph="petersen")
    assert code.worst_error(3) == pytest.approx(1.6667, abs=5e-5)
    assert code.second_eigenvalue == pytest.approx(1.0)
    for s in range(1, 7):
        assert code.worst_error(s) == pytest.approx(spectral_bound(code, s))


@given(data=st.data(), k=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_weights_and_running_error_on_any_graph(data, k):
    pairs = np.array(list(combinations(range(k), 2)), int).reshape(-1, 2)
    picks = data.draw(st.lists(st.sampled_from((0, 1, -1)), min_size=len(pairs), max_size=len(pairs)))
    edges = np.array([pair[::pick] for pair, pick in zip(pairs, picks, strict=True) if pick], int).reshape(-1, 2)
    a, alpha = edge_weights(edges, k)
    matrix = np.zeros((len(edges), k))
    np.put_along_axis(matrix, edges, 1.0, axis=1)
    best = np.linalg.lstsq(matrix.T, np.ones(k), rcond=None)[0] @ matrix if len(edges) else np.zeros(k)
    np.testing.assert_allclose(alpha, best, atol=1e-9)
    np.testing.assert_allclose(a @ matrix, alpha, atol=1e-9)


@given(seed=st.integers(0, 2**20))
@settings(max_examples=8, deadline=None)
def test_the_running_error_follows_the_solution(seed):
    code = GraphCode(60, 40, seed=seed % 5)
    tracker, arrived = code.tracker(), []
    for i in np.random.default_rng(seed).permutation(60).tolist():
        arrived.append(i)
        tracker.add(i)
        assert tracker.error == pytest.approx(code._solve(np.sort(arrived)).error, abs=1e-9)
    assert tracker.error == 0.0


def test_methods_agree_without_the_dense_matrix():
    code = GraphCode(60, 40, seed=1)
    for arrived in (range(0), range(10), range(50)):
        for method in code.methods:
            weights = code.weights(arrived, method)
            np.testing.assert_allclose(weights.a @ code.generator, weights.alpha, atol=1e-9)
            norms = np.linalg.norm(code.generator, axis=1)
            assert weights.amplification == pytest.approx(np.abs(weights.a) @ norms / np.sqrt(40))
            assert weights.error == pytest.approx(((weights.alpha - 1) ** 2).sum())
    assert code.weights(range(50), "one-step").a[0] == pytest.approx(60 / (50 * 3))


def test_a_large_graph_is_decoded_without_a_dense_matrix():
    edges = edge_list_of_circulant(20_000)
    code = GraphCode(graph=edges)
    g = np.random.default_rng(0).normal(size=(20_000, 1))
    arrived = range(1000, 40_000)
    values = {i: g[edges[i, 0]] + g[edges[i, 1]] for i in arrived}
    total, certificate = code.decode(values)
    np.testing.assert_allclose(total, code.weights(arrived).alpha @ g, atol=1e-6)
    assert certificate.error == 0.0
    assert not code._cache.generator


def edge_list_of_circulant(k):
    v = np.arange(k)
    return np.concatenate([np.stack([v, (v + step) % k], axis=1) for step in (1, 2)])


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ((None, None, None), (15, 10, 3)),
        ((20, None, None), (20, 10, 4)),
        ((16, None, None), (16, 8, 4)),
        ((17, None, None), (17, 17, 2)),
        ((None, 10, None), (15, 10, 3)),
        ((None, 7, None), (14, 7, 4)),
        ((None, 3, None), (3, 3, 2)),
        ((20, None, 5), (20, 8, 5)),
        ((None, None, 4), (20, 10, 4)),
        ((None, 9, 4), (18, 9, 4)),
        ((18, 9, None), (18, 9, 4)),
    ],
)
def test_sizes(given, sizes):
    assert graph_sizes(*given, "random") == sizes
    n, k, load = given
    code = get("graph", **{key: value for key, value in {"n_workers": n, "k": k, "load": load}.items() if value})
    assert (code.n_workers, code.k, code.load) == sizes
    assert (np.bincount(code.edges.ravel()) == code.load).all()


def test_given_graphs_keep_their_order():
    edges = [[2, 0], [0, 1], [2, 1]]
    code = GraphCode(graph=edges)
    np.testing.assert_array_equal(code.edges, edges)
    assert (code.load, code.row(0)[0]) == (2, (2, 0))
    np.testing.assert_array_equal(GraphCode(graph=petersen()).edges, edge_list(petersen()))
    assert GraphCode(k=5, graph="complete").n_workers == 10
    assert GraphCode(39, graph="paley").k == 13
    assert GraphCode(graph=cycle(5)).k == 5


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_workers": 15, "k": 9}, "n_workers must be k \\* load / 2"),
        ({"k": 7, "load": 3}, "leave out one of the three"),
        ({"k": 4, "load": 4}, "with 2 <= load < k"),
        ({"n_workers": 14, "load": 3}, "got 14: take one of 9, 12, 15, 18"),
        ({"load": 1}, "load must be an integer of at least 2"),
        ({"n_workers": 2}, "n_workers must be an integer of at least 3"),
        ({"graph": "star"}, "graph must be 'random'.*got 'star'"),
        ({"graph": "margulis", "n_workers": 36}, "graph must be 'random', 'complete', 'cycle', 'paley', 'petersen'"),
        ({"graph": "margulis", "k": 9}, "graph must be simple"),
        ({"graph": "complete", "n_workers": 14}, "take one of 6, 10, 15, 21"),
        ({"graph": "complete", "n_workers": 14, "k": 6}, "n_workers must be that of the 'complete' graph on 6"),
        ({"graph": "petersen", "load": 4}, "load must be that of the 'petersen' graph"),
        ({"graph": margulis(9)}, "graph must be simple"),
        ({"graph": [[0, 1], [1, 0], [0, 1]]}, "graph must be simple"),
        ({"graph": [[0, 1], [1, 2], [2, 2]]}, "graph must be simple"),
        ({"graph": [[0, 1], [1, 2], [2, 3]]}, "regular of degree at least 2, its degrees are"),
        ({"graph": [[0.5, 1], [1, 2]]}, "numbers from 0"),
        ({"graph": [[-1, 1], [1, 2]]}, "numbers from 0"),
        ({"graph": [0, 1]}, "adjacency matrix or edges"),
        ({"graph": complete(4), "n_workers": 5}, "n_workers must be that of the graph, 6, got 5"),
        ({"graph": complete(4), "load": 2}, "load must be that of the graph, 3, got 2"),
        ({"graph": np.eye(4)[[1, 0, 3, 2]]}, "degree at least 2"),
    ],
)
def test_refusals(params, words):
    with pytest.raises(InputError, match=words):
        GraphCode(**params)
    with pytest.raises(InputError, match=r"p must be in \[0, 1\)"):
        GraphCode().least_independent_error(1.0)
