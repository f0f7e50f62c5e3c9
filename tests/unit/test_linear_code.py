"""The generic code against brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.base import Certifier
from serverless_gc.codes.linear import LinearCode, as_linear, outside
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.registry import from_manifest
from serverless_gc.codes.replication import ReplicationCode
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

POLAR_8_4 = [[int((i & j) == j) for i in (3, 5, 6, 7)] for j in range(8)]


def determined(rows, k):
    """Indices of the unknowns determined by integer rows, by exact comparison of ranks."""
    rank = np.linalg.matrix_rank(rows) if len(rows) else 0
    return {j for j in range(k) if np.linalg.matrix_rank(np.vstack([*rows, np.eye(k)[j]])) == rank}


def test_rank_counts_of_the_polar_example():
    code = LinearCode(POLAR_8_4)
    counts = {size: sum(decodable(code, s) for s in combinations(range(8), size)) for size in range(3, 9)}
    assert counts == {3: 0, 4: 58, 5: 56, 6: 28, 7: 8, 8: 1}


def decodable(code, messages):
    tracker = code.tracker()
    for i in messages:
        tracker.add(i)
    return tracker.decodable


def test_tracker_and_missing_equal_brute_force_on_all_subsets():
    code = LinearCode(POLAR_8_4)
    for size in range(9):
        for subset in combinations(range(8), size):
            tracker = code.tracker()
            for i in subset:
                tracker.add(i)
            known = determined([code.generator[i] for i in subset], 4)
            assert set(tracker.missing()) == set(range(4)) - known
            assert tracker.decodable == (len(known) == 4)


def test_decodes_the_worked_example():
    code = LinearCode(POLAR_8_4)
    blocks = np.array([1.0, 2.0, 3.0, 4.0])
    coded = code.encode(blocks)
    assert coded.tolist() == [10, 7, 8, 5, 9, 6, 7, 4]
    decoded, certificate = code.decode({i: coded[i] for i in (0, 5, 6, 7)})
    np.testing.assert_allclose(decoded, blocks, rtol=1e-14)
    assert certificate.used == (0, 5, 6, 7)
    assert certificate.residual is None
    assert certificate.amplification == pytest.approx(np.linalg.cond(code.generator[[0, 5, 6, 7]]))


def test_encodes_chosen_messages_into_given_memory():
    code = LinearCode(POLAR_8_4)
    blocks = np.arange(12.0).reshape(4, 3)
    for source in (blocks, list(blocks), blocks.astype(int)):
        out = np.full((2, 3), np.nan)
        assert code.encode(source, out, messages=[6, 0]) is out
        assert np.array_equal(out, code.generator[[6, 0]] @ blocks)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64, np.int32, np.float16, bool])
def test_dtypes_and_columns(dtype):
    rng = np.random.default_rng(1)
    code = LinearCode(rng.normal(size=(7, 4)))
    blocks = (rng.normal(size=(4, 3, 2)) * 10).astype(dtype)
    if blocks.dtype.kind == "c":
        blocks = blocks + dtype(1j) * rng.normal(size=blocks.shape).astype(blocks.real.dtype)
    coded = code.encode(blocks)
    decoded, _ = code.decode({i: coded[i] for i in (1, 3, 4, 6)})
    assert decoded.shape == blocks.shape
    assert decoded.dtype == np.result_type(coded.dtype)
    np.testing.assert_allclose(decoded, blocks, rtol=1e-4, atol=1e-4)


def test_surplus_is_checked_and_a_wrong_result_is_refused():
    rng = np.random.default_rng(2)
    code = LinearCode(rng.normal(size=(8, 4)))
    blocks = rng.normal(size=(4, 5))
    values = dict(enumerate(code.encode(blocks)))
    decoded, certificate = code.decode(values)
    np.testing.assert_allclose(decoded, blocks, rtol=1e-12)
    assert certificate.surplus_checked == 4
    assert certificate.residual < 1e-14
    values[3] = values[3] + 0.1
    with pytest.raises(DecodeError, match="contradict"):
        code.decode(values)
    values[3] = np.full(5, np.nan)
    for count in (8, 4):
        with pytest.raises(InputError, match=r"messages \[3\] hold NaN"):
            code.decode(dict(list(values.items())[:count]))


def test_undecodable_names_the_missing_blocks():
    code = LinearCode(POLAR_8_4)
    blocks = np.eye(4)
    coded = code.encode(blocks)
    with pytest.raises(NotDecodableError, match="do not determine") as caught:
        code.decode({7: coded[7], 5: coded[5]})
    assert caught.value.missing == (0, 2)
    with pytest.raises(NotDecodableError, match="no message"):
        code.decode({})


def test_tolerance_refuses_an_ill_conditioned_answer():
    code = LinearCode([[1.0, 0.0], [1.0, 1e-6]])
    coded = code.encode(np.ones((2, 3)))
    decoded, certificate = code.decode(dict(enumerate(coded)))
    assert certificate.amplification == pytest.approx(2e6, rel=1e-3)
    assert certificate.predicted_error == pytest.approx(2e6 * 2.0**-53, rel=1e-3)
    np.testing.assert_allclose(decoded, 1.0, rtol=1e-9)
    with pytest.raises(DecodeError, match="tolerance") as caught:
        code.decode(dict(enumerate(coded)), tolerance=1e-12)
    assert caught.value.tolerance == 1e-12
    _, single = code.decode({i: coded[i].astype(np.float32) for i in range(2)})
    assert "predicted relative error" in single.warning


def test_certify_says_what_decode_will_say():
    rng = np.random.default_rng(3)
    code = LinearCode(rng.normal(size=(6, 3)))
    coded = code.encode(rng.normal(size=(3, 2)))
    assert isinstance(code, Certifier)
    before = code.certify([5, 0, 3, 3])
    _, after = code.decode({i: coded[i] for i in (0, 3, 5)})
    assert before.used == after.used
    assert before.amplification == pytest.approx(after.amplification, rel=1e-12)
    with pytest.raises(NotDecodableError):
        code.certify([0, 1])


def test_multi_message_placement():
    sums = [[1, 0, 0], [0, 1, 1], [0, 1, 0], [1, 0, 1]]
    code = LinearCode(sums, placement=[(0, 1), (2, 3)])
    assert (code.n_workers, code.n_messages, code.k) == (2, 4, 3)
    assert code.placement(1) == (2, 3)
    assert LinearCode(sums, n_workers=2).placement(0) == (0, 1)
    tracker = code.tracker()
    assert [bool(tracker.add(i)) for i in (0, 1, 2)] == [False, False, True]
    with pytest.raises(InputError, match="worker"):
        code.placement(2)


def test_out_may_be_the_messages_themselves():
    code = LinearCode(np.vstack([np.eye(3), [[1, 2, 3]]]))
    blocks = np.arange(12.0).reshape(3, 4)
    coded = code.encode(blocks)
    buffer = coded[:3].copy()
    buffer[1] = -1
    decoded, _ = code.decode({0: buffer[0], 2: buffer[2], 3: coded[3]}, out=buffer)
    assert decoded is buffer
    np.testing.assert_allclose(buffer, blocks, atol=1e-12)
    strided = np.empty((4, 3)).T
    decoded, _ = code.decode({i: coded[i] for i in (0, 1, 3)}, out=strided)
    assert decoded is strided
    np.testing.assert_allclose(strided, blocks, atol=1e-12)


def test_refusals():
    for generator, word in [
        ([1, 2], "matrix"),
        (np.zeros((0, 2)), "matrix"),
        ([[1j]], "real"),
        ([[1, np.nan]], "finite"),
        ([[1, 1], [2, 2]], "rank"),
    ]:
        with pytest.raises(InputError, match=word):
            LinearCode(generator)
    eye = np.eye(3)
    for placement, word in [([(0,), (1,)], "nobody"), ([(0, 0), (1, 2)], "twice"), ([(0, 3), (1, 2)], "message 3")]:
        with pytest.raises(InputError, match=word):
            LinearCode(eye, placement=placement)
    with pytest.raises(InputError, match="evenly"):
        LinearCode(eye, n_workers=2)
    with pytest.raises(InputError, match="one entry per worker"):
        LinearCode(eye, placement=[(0, 1, 2)], n_workers=2)
    code = LinearCode(eye)
    with pytest.raises(InputError, match="message id"):
        code.tracker().add(3)
    with pytest.raises(InputError, match="one shape"):
        code.decode({0: np.ones(2), 1: np.ones(3), 2: np.ones(2)})
    with pytest.raises(InputError, match="message id"):
        code.decode({7: np.ones(2)})
    with pytest.raises(InputError, match="message id"):
        code.encode(eye, messages=[-1])
    with pytest.raises(InputError, match="k=3 blocks"):
        code.encode(np.eye(2))
    with pytest.raises(InputError, match="numeric"):
        code.decode({0: np.array("x")})
    with pytest.raises(InputError, match="shape"):
        code.decode({i: np.ones(2) for i in range(3)}, out=np.empty((3, 3)))
    with pytest.raises(InputError, match="hold"):
        code.decode({i: np.ones(2) * 1j for i in range(3)}, out=np.empty((3, 2)))


def test_manifest_round_trip_through_bytes():
    code = LinearCode(POLAR_8_4, placement=[(0, 1, 2, 3), (7, 6, 5, 4)])
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert isinstance(again, LinearCode)
    assert np.array_equal(again.generator, code.generator)
    assert [again.placement(w) for w in range(2)] == [(0, 1, 2, 3), (7, 6, 5, 4)]
    assert LinearCode(**code.params()).placement(1) == (7, 6, 5, 4)
    assert set(LinearCode(POLAR_8_4).params()) == {"generator"}


def test_view_of_another_code():
    code = ReplicationCode(6, 3)
    reference = as_linear(code)
    for size in range(7):
        for subset in combinations(range(6), size):
            fast, slow = code.tracker(), reference.tracker()
            for i in subset:
                assert bool(fast.add(i)) == bool(slow.add(i))
                assert fast.missing() == slow.missing()


@settings(deadline=None)
@given(st.permutations(range(8)), st.lists(st.integers(0, 7), max_size=20))
def test_tracker_laws(order, noise):
    code = LinearCode(POLAR_8_4)
    tracker = code.tracker()
    done = False
    for i in order:
        verdict = tracker.add(i)
        assert bool(verdict) or not done, "monotone"
        done = bool(verdict)
        assert bool(tracker.add(i)) == done, "idempotent"
    assert done
    forward, backward = code.tracker(), code.tracker()
    for i in noise:
        forward.add(i)
    for i in reversed(noise):
        backward.add(i)
    assert forward.decodable == backward.decodable
    assert forward.missing() == backward.missing()


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("tilt", [1.0, 0.6, 1e-3, 1e-7])
def test_a_basis_stays_orthonormal_however_much_rows_have_in_common(kind, tilt):
    """Rows near one direction lose all but a part ``tilt`` of themselves to those before."""
    rng = np.random.default_rng(1)
    common, own = rng.normal(size=30), rng.normal(size=(20, 30)).astype(kind)
    if kind is complex:
        own += 1j * rng.normal(size=own.shape)
    basis = np.empty((0, 30), kind)
    for row in common + tilt * own:
        rest, left = outside(row, basis)
        assert left == pytest.approx(np.linalg.norm(rest))
        expected = row - basis.T @ (basis.conj() @ row)
        np.testing.assert_allclose(rest, expected / np.linalg.norm(row), rtol=0, atol=1e-15)
        basis = np.vstack([basis, rest / left])
    np.testing.assert_allclose(basis @ basis.conj().T, np.eye(20), rtol=0, atol=1e-14)
