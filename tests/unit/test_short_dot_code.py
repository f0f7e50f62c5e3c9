"""Short-Dot: the worked example, zeros where they are promised, any K results."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import get
from serverless_gc.codes.base import Certifier
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.registry import from_manifest
from serverless_gc.codes.short_dot import ShortDotCode
from serverless_gc.encode import encode_rows
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

B = [[1, 1], [1, 2], [1, 3]]


def test_worked_example():
    code = ShortDotCode(3, 1, threshold=2, matrix=B)
    coded = code.encode(np.array([[[1.0, 2.0, 3.0]]]))
    assert coded[:, 0].tolist() == [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]
    results = coded @ np.ones(3)
    assert results.ravel().tolist() == [3, 0, -3]
    for pair in combinations(range(3), 2):
        answer, _ = code.decode({i: results[i] for i in pair})
        assert answer[0, 0] == pytest.approx(6, abs=1e-13)
    assert [code.columns(i, 3).tolist() for i in range(3)] == [[1, 2], [0, 2], [0, 1]]


@pytest.mark.parametrize(("n", "k", "threshold"), [(6, 2, 4), (5, 5, 5), (7, 1, 7), (6, 3, 3), (8, 2, 5), (1, 1, 1)])
@pytest.mark.parametrize("width", [1, 5, 23])
def test_zeros_are_exact_and_where_promised(n, k, threshold, width):
    code = ShortDotCode(n, k, threshold=threshold)
    blocks = np.random.default_rng(0).normal(size=(k, 3, width))
    coded = code.encode(blocks)
    fillers = threshold - k
    for j in range(width):
        empty = {(j + t) % n for t in range(fillers)}
        for i in range(n):
            assert (not coded[i, :, j].any()) == (i in empty)
            assert (j in code.columns(i, width)) == (i not in empty)
    for i in range(n):
        assert len(code.columns(i, width)) <= -(-width // n) * (n - fillers)
    assert code.density == pytest.approx((n - threshold + k) / n)


@pytest.mark.parametrize(("n", "k", "threshold"), [(6, 2, 4), (5, 5, 5), (7, 1, 7), (6, 3, 3), (9, 2, 5)])
def test_every_subset(n, k, threshold):
    code = ShortDotCode(n, k, threshold=threshold)
    rng = np.random.default_rng(0)
    blocks, x = rng.normal(size=(k, 2, 11)), rng.normal(size=(11, 3))
    results, exact = code.encode(blocks) @ x, blocks @ x
    reference = LinearCode(code.matrix)
    for size in range(1, n + 1):
        for subset in combinations(range(n), size):
            tracker, slow = code.tracker(), reference.tracker()
            for i in subset:
                tracker.add(i)
                slow.add(i)
            assert tracker.decodable == slow.decodable == (size >= threshold)
            assert tracker.missing() == (() if size >= threshold else tuple(range(k)))
            values = {i: results[i] for i in subset}
            if size < threshold:
                with pytest.raises(NotDecodableError, match=f"{threshold - size} more") as caught:
                    code.decode(values)
                assert caught.value.missing == tuple(range(k))
                continue
            answer, certificate = code.decode(values)
            np.testing.assert_allclose(answer, exact, atol=1e-9)
            assert np.linalg.norm(answer - exact) < (10 * certificate.predicted_error + 1e-13) * np.linalg.norm(exact)
            assert (certificate.used, certificate.surplus_checked) == (subset, size - threshold)


def test_a_worker_needs_only_its_columns():
    code = get("short-dot", n_workers=20)
    rng = np.random.default_rng(1)
    blocks, x = rng.normal(size=(code.k, 1, 200)), rng.normal(size=200)
    coded = code.encode(blocks)
    values = {}
    for worker in range(3, 3 + code.threshold):
        need = code.columns(worker, 200)
        assert len(need) == 200 * code.density
        values[worker] = coded[worker][:, need] @ x[need]
    answer, _ = code.decode(values)
    np.testing.assert_allclose(answer, blocks @ x, atol=1e-9)


@pytest.mark.parametrize(("n", "k", "threshold"), [(6, 2, 4), (5, 1, 4), (5, 5, 5), (7, 3, 5)])
@pytest.mark.parametrize("width", [1, 3, 20])
def test_every_subset_of_what_is_stored_and_sent(n, k, threshold, width):
    """Blocks as the encoder stores them, times the entries that a worker is sent, decode like whole ones."""
    code = ShortDotCode(n, k, threshold=threshold)
    rng = np.random.default_rng(5)
    matrix, x = rng.normal(size=(2 * k + 1, width)), rng.normal(size=(width, 2))
    exact = matrix @ x
    made = dict(encode_rows(matrix, code))
    stored = [range(width) if code.support is None else code.support.columns(i, width) for i in range(n)]
    assert [made[i].shape[1] for i in range(n)] == [len(columns) for columns in stored]
    assert code.width(width) == max(map(len, stored))
    for subset in combinations(range(n), threshold):
        answer, _ = code.decode({i: made[i] @ x[stored[i]] for i in subset})
        np.testing.assert_allclose(answer.reshape(-1, 2)[: 2 * k + 1], exact, atol=1e-9)


def test_the_order_of_storage_is_a_few_stretches():
    code = ShortDotCode(7, 2, threshold=5)
    for i in range(7):
        classes = [c for first, end in code.support.runs(i) for c in range(first, end)]
        assert len(code.support.runs(i)) <= 2
        assert np.array_equal(np.sort(code.support.columns(i, 30)), code.columns(i, 30))
        assert np.array_equal(code.support.columns(i, 30), np.concatenate([np.arange(30)[c::7] for c in classes]))


def test_size_of_entries_and_errors_at_100_workers():
    code = ShortDotCode(100, 45, threshold=90)
    rng = np.random.default_rng(0)
    blocks, x = rng.normal(size=(45, 1, 500)), rng.normal(size=500)
    coded = code.encode(blocks)
    assert 2e2 < np.abs(coded).max() / np.abs(blocks).max() < 4e4
    results, exact = coded @ x, blocks @ x
    errors, conditions = [], []
    for _ in range(15):
        ids = rng.choice(100, 90, replace=False).tolist()
        answer, certificate = code.decode({i: results[i] for i in ids})
        errors.append(np.linalg.norm(answer - exact) / np.linalg.norm(exact))
        conditions.append(certificate.amplification)
        assert errors[-1] < certificate.predicted_error
        assert code.certify(ids).predicted_error == pytest.approx(certificate.predicted_error)
    assert np.median(errors) < 3e-12
    assert max(errors) < 3e-10
    assert 100 < np.median(conditions) < 1000


def test_some_messages_and_the_memory_of_the_caller():
    code = ShortDotCode(6, 2)
    blocks = np.random.default_rng(2).normal(size=(2, 4, 9))
    coded = code.encode(blocks)
    assert np.array_equal(code.encode(list(blocks), messages=[5, 0, 5]), coded[[5, 0, 5]])
    out = np.empty((6, 4, 9))
    assert code.encode(blocks, out) is out
    assert np.array_equal(out, coded)
    target = np.empty((2, 4, 9), np.float32)
    answer, _ = code.decode({i: coded[i] for i in range(1, 6)}, out=target)
    assert answer is target
    np.testing.assert_allclose(target, blocks, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int32])
def test_dtypes(dtype):
    code = ShortDotCode(6, 2, threshold=3)
    blocks = np.random.default_rng(3).normal(scale=10, size=(2, 3, 8)).astype(dtype)
    coded = code.encode(blocks)
    assert coded.dtype == (np.float64 if dtype is np.int32 else dtype)
    answer, certificate = code.decode({i: coded[i] for i in (1, 3, 4)})
    np.testing.assert_allclose(answer, blocks, rtol=1e-3, atol=1e-3)
    assert certificate.predicted_error < (1e-3 if dtype is np.float32 else 1e-11)


def test_wrong_and_non_finite_results():
    code = ShortDotCode(6, 2, threshold=3)
    values = dict(enumerate(code.encode(np.random.default_rng(4).normal(size=(2, 3, 8)))))
    code.decode(values)
    with pytest.raises(DecodeError, match=r"short-dot: .*tolerance"):
        code.decode(values, tolerance=1e-17)
    values[2] = values[2] + 1e-3
    with pytest.raises(DecodeError, match="contradict"):
        code.decode(values)
    values[2][0, 0] = np.nan
    with pytest.raises(InputError, match=r"\[2\]"):
        code.decode(values)


def test_refusals():
    cases = [
        ({"n_workers": 3, "k": 4}, "at most n_workers=3"),
        ({"n_workers": 3, "k": 2, "threshold": 1}, "from k=2 to n_workers=3"),
        ({"n_workers": 3, "k": 2, "threshold": 4}, "from k=2 to n_workers=3"),
        ({"n_workers": 3, "k": 2, "threshold": 2.0}, "threshold"),
        ({"n_workers": 3, "k": 1, "threshold": 2, "matrix": [[1, 1], [1, 0], [1, 3]]}, "singular"),
        (
            {"n_workers": 3, "k": 1, "threshold": 2, "matrix": np.ones((3, 3))},
            r"shape \(n_workers, threshold\) = \(3, 2\)",
        ),
        ({"n_workers": 3, "k": 1, "threshold": 2, "matrix": [[1, 1], [1, np.inf], [1, 3]]}, "finite"),
        ({"n_workers": 3, "k": 1, "seed": -1}, "seed"),
    ]
    for arguments, words in cases:
        with pytest.raises(InputError, match=words):
            ShortDotCode(**arguments)
    code = ShortDotCode(6, 2)
    with pytest.raises(InputError, match="by column"):
        code.encode(np.ones((2, 12)))
    for refused in (code.source_of, code.tracker().add, lambda i: code.columns(i, 4)):
        with pytest.raises(InputError, match=r"0\.\.5"):
            refused(6)


@pytest.mark.parametrize("code", [ShortDotCode(6, 2, seed=3), ShortDotCode(3, 1, threshold=2, matrix=B)])
def test_manifest_round_trip_through_bytes(code):
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert isinstance(again, ShortDotCode)
    assert isinstance(again, Certifier)
    assert np.array_equal(again.matrix, code.matrix)
    assert again.params() == code.params()
    assert repr(again) == repr(code)
    assert np.array_equal(ShortDotCode(code.n_workers, code.k, **code.params()).matrix, code.matrix)
    coded = code.encode(np.ones((code.k, 2, 7)))
    assert np.array_equal(again.encode(np.ones((code.k, 2, 7))), coded)


def test_structure():
    code = ShortDotCode(6, 2)
    assert (code.threshold, code.guaranteed_threshold, code.average_threshold) == (4, 4, 4.0)
    assert code.source_of(0) is None
    assert np.array_equal(code.generator, code.matrix[:, :2])
    assert [get("short-dot", **sizes).threshold for sizes in ({}, {"n_workers": 20}, {"k": 12})] == [10, 12, 30]


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), max_size=20))
def test_tracker_laws(arrivals):
    tracker = ShortDotCode(8, 2, threshold=5).tracker()
    for count, i in enumerate(arrivals, 1):
        assert bool(tracker.add(i)) == (len(set(arrivals[:count])) >= 5)
