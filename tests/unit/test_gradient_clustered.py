"""Clusters: static probabilities, assignments within the slots, balance, the codes of a round."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from gradient_sets import fed
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import from_manifest
from serverless_gc.codes.gradient import ClusteredCode, StragglerPredictor
from serverless_gc.codes.gradient.dynamic_clusters import balanced_assignment
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import InputError, NotDecodableError


@pytest.mark.parametrize(
    ("s", "expected"),
    [
        (1, {2: 0.8421053, 3: 0.5614035, 4: 0.2641899, 5: 0.0660475, 6: 0}),
        (2, {3: 0.982456, 5: 0.840041, 10: 0.042088}),
    ],
)
def test_static_probabilities(s, expected):
    code = ClusteredCode(20, 20, clusters=5, stragglers=s, inner="cyclic")
    for stragglers, p in expected.items():
        assert code.p_decodable(20 - stragglers) == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize("inner", ["cyclic", "frc"])
def test_counts_against_enumeration(inner):
    code = ClusteredCode(8, 8, clusters=2, stragglers=1, inner=inner)
    for f in range(9):
        sets = list(combinations(range(8), f))
        assert sum(fed(code, arrived).decodable for arrived in sets) == code.decodable_sets(f)
        assert code.p_decodable(f) == pytest.approx(code.decodable_sets(f) / math.comb(8, f))


def loads(code, assignment, flags):
    return [sum(flags[w] for w in range(code.n_workers) if assignment[w] == p) for p in range(code.clusters)]


def test_two_flags_in_one_cluster():
    flags = [True, True, False, False, False, False]
    rigid = ClusteredCode(6, 6, clusters=2, stragglers=1)
    assert loads(rigid, rigid.assign(flags), flags) == [2, 0]
    flexible = ClusteredCode(6, 6, clusters=2, stragglers=1, flexibility=2)
    assert loads(flexible, flexible.assign(flags), flags) == [1, 1]


@pytest.mark.parametrize(("q", "sigma", "expected"), [(1, 3, 640 / 1140), (2, 3, 1120 / 1140), (2, 5, 7144 / 15504)])
def test_share_of_sets_that_a_perfect_prediction_saves(q, sigma, expected):
    code = ClusteredCode(20, 20, clusters=5, stragglers=1, flexibility=q)
    rng = np.random.default_rng(0)
    trials = 300
    saved = 0
    for _ in range(trials):
        flags = np.zeros(20, bool)
        flags[rng.permutation(20)[:sigma]] = True
        saved += max(loads(code, code.assign(flags.tolist()), flags)) <= 1
    assert abs(saved / trials - expected) <= 3 * math.sqrt(expected * (1 - expected) / trials)


def test_full_flexibility_always_balances():
    code = ClusteredCode(20, 20, clusters=5, stragglers=1, flexibility=5)
    rng = np.random.default_rng(0)
    for sigma in (1, 3, 5, 8, 13, 20):
        flags = np.zeros(20, bool)
        flags[rng.permutation(20)[:sigma]] = True
        counts = loads(code, code.assign(flags.tolist()), flags)
        assert max(counts) - min(counts) <= 1


def test_small_assignments_are_optimal():
    clusters, size, q = 3, 2, 2
    allowed = [p for p in permutations(range(clusters)) if all((c - home) % clusters < q for home, c in enumerate(p))]
    for flagged in combinations(range(6), 3):
        flags = [w in flagged for w in range(6)]
        found = balanced_assignment(6, clusters, q, flags)
        best = min(
            sum(
                sum(flags[home * size + t] for t in range(size) for home in range(clusters) if slots[t][home] == p) ** 2
                for p in range(clusters)
            )
            for slots in ((a, b) for a in allowed for b in allowed)
        )
        counts = [sum(flags[w] for w in range(6) if found[w] == p) for p in range(clusters)]
        assert sum(c**2 for c in counts) == best


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 99), st.data())
def test_assignments_are_valid_and_reproducible(clusters, size, seed, data):
    n = clusters * size
    q = data.draw(st.integers(1, clusters))
    flags = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    code = ClusteredCode(n, n, clusters=clusters, flexibility=q)
    assignment = code.assign(flags, seed)
    assert assignment == code.assign(flags, seed)
    today = code.with_assignment(assignment)
    assert today.inner is code.inner
    for worker in range(n):
        partitions, _ = today.row(worker)
        assert set(partitions) <= set(code.stored(worker))
        assert {j // size for j in partitions} == {assignment[worker]}
    assert sum(c**2 for c in loads(code, assignment, flags)) <= sum(c**2 for c in loads(code, code.assignment, flags))
    gradients = np.random.default_rng(seed).normal(size=(n, 3))
    np.testing.assert_allclose(
        today.decode(dict(enumerate(today.encode(gradients))))[0], gradients.sum(axis=0), atol=1e-9
    )


def test_a_predicted_round_decodes_where_the_static_one_does_not():
    code = ClusteredCode(12, 12, clusters=3, stragglers=1, flexibility=3, inner="cyclic")
    late = [0, 1, 2]
    arrived = [w for w in range(12) if w not in late]
    gradients = np.random.default_rng(9).normal(size=(12, 4))
    sent = code.encode(gradients)
    with pytest.raises(NotDecodableError) as caught:
        code.decode({w: sent[w] for w in arrived})
    assert caught.value.missing == (0, 1, 2, 3)
    today = code.with_assignment(code.assign(StragglerPredictor(12).update(late)))
    assert code.assignment == tuple(w // 4 for w in range(12))
    sent = today.encode(gradients)
    total, certificate = today.decode({w: sent[w] for w in arrived})
    np.testing.assert_allclose(total, gradients.sum(axis=0), atol=1e-9)
    assert certificate.method == "by-cluster"
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(today.manifest())))
    assert again.assignment == today.assignment
    np.testing.assert_array_equal(again.generator, today.generator)


def test_generator_is_block_diagonal_in_the_home_assignment():
    code = ClusteredCode(6, 6, clusters=2, stragglers=1, inner="cyclic")
    np.testing.assert_array_equal(code.generator, np.kron(np.eye(2), code.inner.generator))


def test_defaults():
    for n, clusters, s in ((1, 1, 0), (7, 1, 1), (16, 4, 1), (20, 4, 1), (100, 10, 1), (1000, 25, 4)):
        code = ClusteredCode(n, n)
        assert (code.clusters, code.tolerated) == (clusters, s)


def test_refusals():
    with pytest.raises(InputError, match="clusters must divide n_workers=6, got 4"):
        ClusteredCode(6, 6, clusters=4)
    with pytest.raises(InputError, match="clusters must be an integer of at least 1"):
        ClusteredCode(6, 6, clusters=0)
    with pytest.raises(InputError, match="clusters of 3 workers: stragglers must be less than n_workers=3, got 3"):
        ClusteredCode(6, 6, clusters=2, stragglers=3)
    with pytest.raises(InputError, match="flexibility must be at most clusters=2, got 3"):
        ClusteredCode(6, 6, clusters=2, flexibility=3)
    with pytest.raises(InputError, match="flags must have one entry"):
        ClusteredCode(6, 6, clusters=2).assign([True])
    with pytest.raises(InputError, match=r"late must name workers in 0\.\.3, got 4"):
        StragglerPredictor(4).update([4])
    code = ClusteredCode(6, 6, clusters=2, flexibility=2)
    with pytest.raises(InputError, match="workers 0 and 3 both take slot 0 of cluster 0"):
        code.with_assignment([0, 0, 0, 0, 1, 1])
    with pytest.raises(InputError, match=r"worker 3 may serve in the clusters \(1,\), got 0"):
        ClusteredCode(6, 6, clusters=2).with_assignment([0, 0, 0, 0, 1, 1])
    with pytest.raises(InputError, match="one cluster per worker, 6, got 1"):
        code.with_assignment([0])
