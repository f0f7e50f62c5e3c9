"""What holds for every exact gradient code: identities, decodability by rank, refusals, manifests, the registry."""

from itertools import combinations

import numpy as np
import pytest
from gradient_sets import fed, least_error, messages_without, subsets
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import from_manifest, get
from serverless_gc.codes.gradient import (
    ClusteredCode,
    CodedReduceCode,
    CyclicMDSCode,
    CyclicRepetitionCode,
    FractionalRepetitionCode,
    NestedCode,
    YeAbbeCode,
    worst_case,
)
from serverless_gc.codes.gradient.worst import greedy_worst
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import InputError, NotDecodableError

NAMES = ["clustered", "coded-reduce", "cyclic", "cyclic-mds", "frc", "nested", "ye-abbe"]
CODES = {
    "frc": FractionalRepetitionCode(8, 12, stragglers=1),
    "frc-grouped": FractionalRepetitionCode(6, 6, stragglers=2, layout="grouped"),
    "cyclic": CyclicRepetitionCode(7, 7, stragglers=2),
    "cyclic-plain": CyclicRepetitionCode(5, 5, stragglers=0),
    "cyclic-all": CyclicRepetitionCode(6, 6, stragglers=5),
    "cyclic-mds": CyclicMDSCode(7, 7, stragglers=2),
    "cyclic-mds-complex": CyclicMDSCode(7, 7, stragglers=3, variant="complex"),
    "cyclic-mds-first": CyclicMDSCode(7, 7, stragglers=3, variant="complex", first_exponent=1),
    "ye-abbe": YeAbbeCode(7, 7, stragglers=2, fold=2),
    "ye-abbe-plain": YeAbbeCode(6, 6, stragglers=2, fold=1),
    "coded-reduce": CodedReduceCode.tree(4, 1, stragglers=1, inner="cyclic"),
    "clustered": ClusteredCode(8, 8, clusters=2, stragglers=1, inner="cyclic"),
    "clustered-frc": ClusteredCode(8, 8, clusters=2, stragglers=1, inner="frc"),
}


@pytest.mark.parametrize("name", CODES)
def test_every_set_is_decodable_exactly_when_the_rank_says_so(name):
    code = CODES[name]
    for arrived in subsets(range(code.n_messages)):
        decodable = least_error(code, arrived) <= 1e-12 * code.k
        tracker = fed(code, arrived)
        assert tracker.decodable == decodable
        assert bool(tracker.missing()) != decodable
        weights = code.weights(arrived)
        assert not np.any(np.delete(weights.a, list(arrived), axis=0))
        if decodable:
            wanted = np.tile(np.eye(code.fold), (code.k, 1)).T
            np.testing.assert_allclose(
                weights.a.reshape(code.n_messages, -1).T @ code.generator, wanted, rtol=0, atol=1e-9
            )
        else:
            assert weights.error > 1e-12


UNFOLDED = {
    **{name: code for name, code in CODES.items() if code.fold == 1},
    "nested": NestedCode(4, 4, stragglers=2),
    "coded-reduce-deep": CodedReduceCode.tree(2, 2, stragglers=1),
}


@pytest.mark.parametrize("name", UNFOLDED)
def test_identities_of_the_optimal_decoder(name):
    code = UNFOLDED[name]
    errors = {}
    for arrived in subsets(range(code.n_messages)):
        weights = code.weights(arrived)
        errors[arrived] = weights.error
        assert weights.alpha.sum() == pytest.approx(code.k - weights.error, abs=1e-7)
        assert np.vdot(weights.alpha, weights.alpha).real == pytest.approx(code.k - weights.error, abs=1e-7)
        for i in arrived:
            assert weights.error <= errors[tuple(j for j in arrived if j != i)] + 1e-7
    assert errors[()] == code.k


@pytest.mark.parametrize("name", CODES)
def test_no_set_of_tolerated_stragglers_does_harm_and_one_more_can(name):
    code = CODES[name]
    assert worst_case(code, code.tolerated).error < 1e-15
    assert greedy_worst(code, code.tolerated).error < 1e-15
    assert worst_case(code, code.tolerated + 1).error > 1e-12
    assert code.worst_error(code.tolerated) == 0
    assert code.expected_error(code.n_workers - code.tolerated) == 0


@pytest.mark.parametrize("name", CODES)
def test_rows_are_those_of_the_matrix_and_the_load_meets_its_bound(name):
    code = CODES[name]
    holders = np.zeros(code.k)
    for message in range(code.n_messages):
        partitions, coefficients = code.row(message)
        dense = np.zeros((code.k, code.fold), code.generator.dtype)
        dense[list(partitions)] = coefficients.reshape(len(partitions), code.fold)
        np.testing.assert_array_equal(dense.ravel(), code.generator[message])
        assert len(set(partitions)) == len(partitions)
        holders[list(partitions)] += 1
    assert holders.min() >= code.tolerated + 1


@pytest.mark.parametrize("name", CODES)
def test_gradients_come_back_from_every_tolerated_set(name):
    code = CODES[name]
    gradients = np.random.default_rng(5).normal(size=(code.k, 6))
    sent = code.encode(gradients)
    for lost in combinations(range(code.n_workers), code.tolerated):
        total, certificate = code.decode({m: sent[m] for m in messages_without(code, lost)})
        np.testing.assert_allclose(total, gradients.sum(axis=0), rtol=0, atol=1e-8)
        assert total.dtype == np.float64
        assert not set(certificate.used) & {m for worker in lost for m in code.placement(worker)}
        assert certificate.error < 1e-12
    if code.tolerated < code.n_workers - 1:
        with pytest.raises(NotDecodableError, match="wait for more results") as caught:
            code.decode({0: sent[0]})
        assert caught.value.missing
    with pytest.raises(NotDecodableError, match="no message arrived"):
        code.decode({})


@pytest.mark.parametrize("name", CODES)
def test_manifests_keep_the_matrix_to_the_last_bit(name):
    code = CODES[name]
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert type(again) is type(code)
    np.testing.assert_array_equal(again.generator, code.generator)
    assert (again.n_workers, again.k, again.tolerated, repr(again)) == (
        code.n_workers,
        code.k,
        code.tolerated,
        repr(code),
    )
    arrived = messages_without(code, range(code.tolerated))
    np.testing.assert_allclose(again.weights(arrived).a, code.weights(arrived).a, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 12, 16, 30, 64])
def test_every_name_works_with_any_number_of_workers(name, n):
    code = get(name, n_workers=n)
    assert (code.name, code.kind, code.exact, code.n_workers) == (name, "gradient", True, n)
    if name != "coded-reduce":
        assert code.k == n
    assert code.tolerated >= (1 if n > 1 else 0)
    lost = range(code.tolerated)
    arrived = messages_without(code, lost)
    assert fed(code, arrived).decodable
    np.testing.assert_allclose(code.weights(arrived).alpha, 1, atol=1e-8)
    assert type(get(name)) is type(code)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "coded-reduce"])
def test_common_refusals(name):
    with pytest.raises(InputError, match="stragglers must be an integer of at least 0, got -1"):
        get(name, n_workers=6, stragglers=-1)
    with pytest.raises(InputError, match="stragglers must be less than n_workers=6, got 6"):
        get(name, n_workers=6, stragglers=6, **({"clusters": 1} if name == "clustered" else {}))
    with pytest.raises(InputError, match="stragglers must be an integer"):
        get(name, n_workers=6, stragglers=1.5)
    with pytest.raises(InputError, match="k must"):
        get(name, n_workers=6, k=5)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(CODES)))
def test_trackers_are_idempotent_monotone_and_blind_to_order(data, name):
    code = CODES[name]
    arrivals = data.draw(st.lists(st.integers(0, code.n_messages - 1), max_size=2 * code.n_messages))
    tracker = code.tracker()
    seen = []
    for message in arrivals:
        verdict = tracker.add(message)
        assert verdict.decodable == tracker.decodable
        assert not (seen and seen[-1] and not verdict)
        seen.append(bool(verdict))
    shuffled = fed(code, data.draw(st.permutations(arrivals)))
    assert (shuffled.decodable, shuffled.missing()) == (tracker.decodable, tracker.missing())
    with pytest.raises(InputError, match="message id"):
        tracker.add(code.n_messages)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 24), data=st.data())
def test_random_sizes_decode_from_random_sets(n, data):
    s = data.draw(st.integers(0, n - 1))
    lost = data.draw(st.sets(st.integers(0, n - 1), max_size=s))
    arrived = [i for i in range(n) if i not in lost]
    codes = [CyclicRepetitionCode(n, n, stragglers=s), YeAbbeCode(n, n, stragglers=s)]
    if n % (s + 1) == 0:
        codes.append(FractionalRepetitionCode(n, n, stragglers=s))
    for code in codes:
        assert fed(code, arrived).decodable
        assert np.abs(code.weights(arrived).alpha - 1).max() < 1e-6
