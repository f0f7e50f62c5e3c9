"""MDS codes: the worked example, every subset of small codes, accuracy of large ones."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.base import Certifier
from serverless_gc.codes.linear import as_linear
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.mds.code import MDSCode
from serverless_gc.codes.mds.parity import draw_parity, smallest_singular_value, spectral_norm
from serverless_gc.codes.registry import from_manifest
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

TOY = np.array([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2)


def relative_error(decoded, blocks):
    return np.linalg.norm(decoded - blocks) / np.linalg.norm(blocks)


@pytest.mark.parametrize("pair", list(combinations(range(4), 2)))
def test_condition_of_the_toy_code(pair):
    code = MDSCode(4, 2, parity=TOY)
    expected = 1.0 if pair in {(0, 1), (2, 3)} else 2.41421356
    assert code.certify(pair).amplification == pytest.approx(expected, abs=1e-7)
    assert np.linalg.cond(code.generator[list(pair)]) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("n", "k"), [(6, 3), (20, 16), (9, 3), (200, 150), (5, 1), (100, 50)])
def test_orthonormal_parity(n, k):
    P = MDSCode(n, k, seed=3).parity
    if n - k <= k:
        np.testing.assert_allclose(P @ P.T, np.eye(n - k), atol=1e-12)
    else:
        np.testing.assert_allclose(P.T @ P, np.eye(k) * (n - k) / k, atol=1e-12)
    assert np.array_equal(P, MDSCode(n, k, seed=3).parity)
    assert not np.array_equal(P, MDSCode(n, k, seed=4).parity)


def test_gaussian_parity_has_variance_one_over_k():
    P = MDSCode(400, 200, parity="gaussian").parity
    assert P.std() == pytest.approx(200**-0.5, rel=0.02)


@pytest.mark.parametrize("parity", ["orthonormal", "gaussian"])
@pytest.mark.parametrize(("n", "k"), [(6, 3), (7, 2), (8, 6), (5, 5), (4, 1), (1, 1)])
def test_every_subset_decodes_and_certifies(n, k, parity):
    code = MDSCode(n, k, parity=parity)
    blocks = np.random.default_rng(0).normal(size=(k, 4, 3))
    coded = code.encode(blocks)
    np.testing.assert_allclose(coded, np.tensordot(code.generator, blocks, 1), atol=1e-14)
    for size in range(k, n + 1):
        for subset in combinations(range(n), size):
            decoded, certificate = code.decode({i: coded[i] for i in subset})
            lost = sum(j not in subset for j in range(k))
            assert certificate.used == (subset if lost else tuple(range(k)))
            assert certificate.surplus_checked == min(size - k, 4)
            assert certificate.unknowns == lost
            surplus = size - k if lost else 0
            assert certificate.method == ("systematic" if not lost else "lstsq" if surplus else "lu")
            assert relative_error(decoded, blocks) < 10 * 2.0**-53 * certificate.amplification
            for j in set(subset) & set(range(k)):
                assert np.array_equal(decoded[j], blocks[j]), "a block that arrived is bit-identical"


def test_condition_is_exact_for_orthonormal_and_an_upper_estimate_for_gaussian_parity():
    rng = np.random.default_rng(5)
    for n, k, parity in [(40, 30, "orthonormal"), (40, 30, "gaussian"), (30, 8, "orthonormal")]:
        code = MDSCode(n, k, parity=parity)
        for _ in range(50):
            ids = rng.choice(n, k, replace=False).tolist()
            if set(ids) == set(range(k)):
                continue
            ratio = code.certify(ids).amplification / np.linalg.cond(code.generator[ids])
            if n - k <= k and parity == "orthonormal":
                assert ratio == pytest.approx(1, abs=0.03)
            else:
                assert 0.9 < ratio < 5


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 2), (6, 3), (8, 5), (10, 7), (9, 2)])
def test_tracker_equals_rank_on_all_subsets(n, k):
    code = MDSCode(n, k)
    reference = as_linear(code)
    for size in range(min(n, k + 2) + 1):
        for subset in combinations(range(n), size):
            fast, slow = code.tracker(), reference.tracker()
            for i in subset:
                verdict = fast.add(i)
                slow.add(i)
            assert fast.decodable == slow.decodable
            assert fast.missing() == slow.missing()
            if subset:
                assert (bool(verdict), verdict.missing) == (slow.decodable, slow.missing())


def test_every_way_to_lose_one_block_too_many_is_refused():
    code = MDSCode(8, 5)
    coded = code.encode(np.ones((5, 2)))
    for lost in combinations(range(8), 4):
        values = {i: coded[i] for i in range(8) if i not in lost}
        with pytest.raises(NotDecodableError, match="1 more results are needed") as caught:
            code.decode(values)
        assert caught.value.missing == tuple(j for j in range(5) if j in lost)
        with pytest.raises(NotDecodableError):
            code.certify(values)


@pytest.mark.parametrize(("n", "k"), [(20, 15), (100, 75), (200, 150), (200, 100)])
def test_accuracy_in_both_precisions(n, k):
    rng = np.random.default_rng(n + k)
    code = MDSCode(n, k)
    blocks = rng.normal(size=(k, 16))
    coded = code.encode(blocks)
    single = code.encode(blocks.astype(np.float32))
    assert single.dtype == np.float32
    for _ in range(20):
        ids = rng.choice(n, k, replace=False)
        decoded, certificate = code.decode({int(i): coded[i] for i in ids})
        error = relative_error(decoded, blocks)
        assert error < 1e-11
        assert error < 10 * certificate.predicted_error
        decoded, certificate = code.decode({int(i): single[i] for i in ids})
        assert decoded.dtype == np.float32
        error = relative_error(decoded, blocks)
        assert error < 1e-3
        assert error < 10 * certificate.predicted_error


def test_extra_results_shorten_the_tail_of_the_condition():
    rng = np.random.default_rng(9)
    code = MDSCode(100, 80)
    orders = [rng.permutation(100).tolist() for _ in range(60)]
    tails = [np.quantile([code.certify(o[: 80 + extra]).amplification for o in orders], 0.95) for extra in (0, 1, 5)]
    assert tails[0] > 2 * tails[1] > 3 * tails[2]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64, np.int16, np.float16, bool])
def test_dtypes_and_columns(dtype):
    rng = np.random.default_rng(1)
    code = MDSCode(9, 6)
    blocks = (rng.normal(size=(6, 5, 2)) * 10).astype(dtype)
    if blocks.dtype.kind == "c":
        blocks = blocks + dtype(1j) * rng.normal(size=blocks.shape).astype(blocks.real.dtype)
    whole, listed = code.encode(blocks), code.encode(list(blocks))
    expected = np.float64 if blocks.dtype.kind in "bi" or dtype is np.float16 else dtype
    assert whole.dtype == listed.dtype == expected
    np.testing.assert_allclose(listed, whole, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(whole[6:], np.tensordot(code.parity, blocks, 1), rtol=1e-4, atol=1e-4)
    decoded, _ = code.decode({i: whole[i] for i in (8, 1, 7, 3, 4, 2)})
    assert (decoded.shape, decoded.dtype) == (blocks.shape, expected)
    np.testing.assert_allclose(decoded, blocks, rtol=1e-4, atol=1e-4)


def test_blocks_wider_than_a_tile_and_the_choice_of_messages():
    code = MDSCode(7, 4)
    blocks = np.random.default_rng(2).normal(size=(4, 10_001))
    coded = code.encode(list(blocks))
    np.testing.assert_allclose(coded, code.generator @ blocks, atol=1e-13)
    some = code.encode(blocks, messages=[6, 0, 4])
    np.testing.assert_allclose(some, coded[[6, 0, 4]], atol=1e-13)
    decoded, certificate = code.decode({i: coded[i] for i in (0, 2, 4, 5, 6)})
    np.testing.assert_allclose(decoded, blocks, atol=1e-12)
    assert certificate.residual < 1e-15
    assert certificate.surplus_checked == 1


def test_encode_into_the_blocks_own_memory_copies_nothing():
    code = MDSCode(5, 3)
    out = np.random.default_rng(3).normal(size=(5, 8))
    sources = out[:3].copy()
    assert code.encode(out[:3], out) is out
    assert np.array_equal(out[:3], sources)
    np.testing.assert_allclose(out[3:], code.parity @ sources, atol=1e-14)
    with pytest.raises(InputError, match="shape"):
        code.encode(sources, np.empty((4, 8)))


def test_decode_into_the_messages_own_memory():
    code = MDSCode(5, 3)
    blocks = np.random.default_rng(4).normal(size=(3, 6))
    coded = code.encode(blocks)
    buffer = np.full((3, 6), np.nan)
    buffer[[0, 2]] = coded[[0, 2]]
    decoded, _ = code.decode({0: buffer[0], 2: buffer[2], 4: coded[4]}, out=buffer)
    assert decoded is buffer
    np.testing.assert_allclose(buffer, blocks, atol=1e-14)
    for out in (np.empty((6, 3)).T, np.empty((3, 6), np.float32)):
        decoded, _ = code.decode({i: coded[i] for i in (0, 2, 4)}, out=out)
        assert decoded is out
        np.testing.assert_allclose(out, blocks, atol=1e-6)


def test_scalars_and_empty_blocks():
    code = MDSCode(5, 3)
    coded = code.encode([1.0, 2.0, 3.0])
    decoded, _ = code.decode({i: coded[i] for i in (1, 3, 4)})
    np.testing.assert_allclose(decoded, [1, 2, 3], atol=1e-13)
    coded = code.encode(np.empty((3, 0)))
    assert coded.shape == (5, 0)
    assert code.decode({i: coded[i] for i in (1, 3, 4)})[0].shape == (3, 0)


def test_surplus_catches_a_wrong_result():
    code = MDSCode(10, 6)
    values = dict(enumerate(code.encode(np.random.default_rng(6).normal(size=(6, 4)))))
    del values[1]
    code.decode(values)
    values[3] = values[3] * 1.001
    with pytest.raises(DecodeError, match="contradict") as caught:
        code.decode(values)
    assert caught.value.predicted > caught.value.tolerance


def test_surplus_catches_a_wrong_source_block_though_nothing_is_lost():
    code = MDSCode(12, 6)
    values = dict(enumerate(code.encode(np.random.default_rng(6).normal(size=(6, 4)))))
    _, certificate = code.decode(values)
    assert (certificate.method, certificate.surplus_checked) == ("systematic", 4)
    assert certificate.residual < 1e-15
    values[3] = values[3] * 1.001
    with pytest.raises(DecodeError, match="contradict"):
        code.decode(values)


def test_non_finite_results_are_named():
    code = MDSCode(6, 4)
    coded = code.encode(np.ones((4, 5)))
    coded[5, 2] = np.inf
    coded[0, 4] = np.nan
    with pytest.raises(InputError, match=r"\[0, 5\]"):
        code.decode({i: coded[i] for i in (0, 2, 3, 5)})
    with pytest.raises(InputError, match=r"\[0\]"):
        code.decode({i: coded[i] for i in (0, 2, 3, 4)})


def test_tolerance_of_the_caller_refuses_the_default_only_warns():
    code = MDSCode(3, 2, parity=[[1e-4, 1.0]])
    coded = code.encode(np.ones((2, 3), np.float32))
    values = {1: coded[1], 2: coded[2]}
    decoded, certificate = code.decode(values)
    assert certificate.predicted_error > 1e-4
    assert "more results" in certificate.warning
    assert code.certify(values, np.float32).warning == certificate.warning
    assert not code.certify(values).warning
    np.testing.assert_allclose(decoded, 1.0, rtol=1e-2)
    with pytest.raises(DecodeError, match="tolerance"):
        code.decode(values, tolerance=1e-4)
    code.decode(values, tolerance=1e-2)


def test_singular_recovery_names_the_messages():
    code = MDSCode(4, 2, parity=[[1.0, 0.0], [1.0, 1.0]])
    coded = code.encode(np.ones((2, 3)))
    with pytest.raises(DecodeError, match=r"messages \[0, 2\] is singular"):
        code.decode({0: coded[0], 2: coded[2]})
    assert code.certify([0, 2]).predicted_error == math.inf
    code.decode({0: coded[0], 2: coded[2], 3: coded[3]})


def test_a_badly_conditioned_draw_would_be_seen():
    parity = np.array([[1.0, 2.0], [2.0, 4.0 + 1e-10]])
    assert smallest_singular_value(parity) == pytest.approx(np.linalg.svd(parity)[1][-1], rel=1e-6)
    assert smallest_singular_value(np.array([[1.0, 1e-9]])) == pytest.approx(1e-9)
    assert smallest_singular_value(draw_parity(3, 4, "gaussian", 0)) > 1e-8
    assert smallest_singular_value(np.empty((0, 3))) == math.inf


def test_spectral_norm():
    a = np.random.default_rng(0).normal(size=(30, 50))
    assert 0.95 < spectral_norm(a) / np.linalg.norm(a, 2) <= 1 + 1e-12
    assert spectral_norm(np.zeros((2, 2))) == 0
    assert spectral_norm(np.empty((0, 2))) == 0


def test_refusals():
    with pytest.raises(InputError, match="at most n_workers=3"):
        MDSCode(3, 4)
    for n, k in [(0, 1), (3, 0), (3.0, 2), (3, True)]:
        with pytest.raises(InputError):
            MDSCode(n, k)
    for seed in (-1, 1.5, True):
        with pytest.raises(InputError, match="seed"):
            MDSCode(4, 2, seed=seed)
    for parity, word in [("cauchy", "'cauchy'"), (np.ones((1, 2)), "shape"), ([[np.nan, 1], [1, 1]], "finite")]:
        with pytest.raises(InputError, match=word):
            MDSCode(4, 2, parity=parity)
    code = MDSCode(4, 2)
    for bad in (-1, 4):
        with pytest.raises(InputError, match="message id"):
            code.tracker().add(bad)
        with pytest.raises(InputError, match="message id"):
            code.source_of(bad)
        with pytest.raises(InputError, match="message id"):
            code.certify([0, bad])
    with pytest.raises(InputError, match="one shape"):
        code.decode({0: np.ones(2), 1: np.ones((2, 1))})


@pytest.mark.parametrize("code", [MDSCode(9, 6, seed=5), MDSCode(9, 6, parity="gaussian"), MDSCode(4, 2, parity=TOY)])
def test_manifest_round_trip_through_bytes(code):
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert isinstance(again, MDSCode)
    assert np.array_equal(again.generator, code.generator)
    assert again.params() == code.params()
    assert repr(again) == repr(code)
    assert np.array_equal(MDSCode(code.n_workers, code.k, **code.params()).parity, code.parity)


def test_the_stored_parity_counts_not_the_seed():
    manifest = MDSCode(6, 4, seed=1).manifest()
    manifest["params"] = {"parity": "orthonormal", "seed": 2}
    assert np.array_equal(MDSCode.from_manifest(manifest).parity, MDSCode(6, 4, seed=1).parity)


def test_structure():
    code = MDSCode(6, 4)
    assert isinstance(code, Certifier)
    assert [code.source_of(i) for i in range(6)] == [0, 1, 2, 3, None, None]
    assert (code.guaranteed_threshold, code.average_threshold) == (4, 4.0)
    with pytest.raises(ValueError, match="read-only"):
        code.parity[0, 0] = 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), max_size=20))
def test_tracker_laws(arrivals):
    code = MDSCode(8, 5)
    forward, backward = code.tracker(), code.tracker()
    done = False
    for i in arrivals:
        assert bool(forward.add(i)) or not done, "monotone"
        done = forward.decodable
        assert bool(forward.add(i)) == done, "idempotent"
    for i in reversed(arrivals):
        backward.add(i)
    assert backward.decodable == done == (len(set(arrivals)) >= 5)
    assert backward.missing() == forward.missing()


@settings(deadline=None)
@given(st.permutations(range(7)), st.integers(4, 7))
def test_the_answer_does_not_depend_on_the_order_of_arrival(order, count):
    code = MDSCode(7, 4)
    coded = code.encode(np.arange(8.0).reshape(4, 2))
    ids = order[:count]
    first, _ = code.decode({i: coded[i] for i in ids})
    second, _ = code.decode({i: coded[i] for i in reversed(ids)})
    assert np.array_equal(first, second)
