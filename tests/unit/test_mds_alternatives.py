"""The other MDS constructions: their matrices, their conditioning, and the sizes at which they are refused."""

from itertools import combinations

import numpy as np
import pytest

from serverless_gc.codes import get
from serverless_gc.codes.base import Certifier
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.mds.code import MDSCode
from serverless_gc.codes.mds.nonsystematic import NonsystematicMDSCode
from serverless_gc.codes.mds.points import chebyshev, gaussian, roots_of_unity, vandermonde
from serverless_gc.codes.mds.rotation import RootsOfUnityCode, RotationCode
from serverless_gc.codes.registry import from_manifest
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

CONSTRUCTIONS = ["gaussian", "chebyshev", "vandermonde"]


def relative_error(decoded, blocks):
    return np.linalg.norm(decoded - blocks) / np.linalg.norm(blocks)


def conditions(matrix, k, trials=12):
    rng = np.random.default_rng(0)
    rows = [rng.choice(len(matrix), k, replace=False) for _ in range(trials)]
    return float(np.median([np.linalg.cond(matrix[r]) for r in rows])), float(np.linalg.cond(matrix[:k]))


@pytest.mark.parametrize(
    ("matrix", "k", "median", "consecutive"),
    [
        (vandermonde(20, 16), 16, 7e6, 1e8),
        (chebyshev(20, 16), 16, 18, 4e5),
        (chebyshev(31, 29), 29, 16, 9e3),
        (chebyshev(31, 26), 26, 60, 2e8),
        (chebyshev(101, 98), 98, 31, 3e8),
        (roots_of_unity(20, 16), 16, 11, 5e2),
        (roots_of_unity(31, 29), 29, 8, 55),
        (roots_of_unity(31, 26), 26, 23, 9e3),
        (roots_of_unity(101, 98), 98, 25, 8e3),
        (gaussian(20, 16, 0), 16, 44, None),
        (gaussian(100, 50, 0), 50, 190, None),
    ],
)
def test_condition_numbers_of_the_table(matrix, k, median, consecutive):
    with single_blas_thread():
        found, worst = conditions(matrix, k)
    assert median / 6 < found < 6 * median
    if consecutive is not None:
        assert consecutive / 4 < worst < 4 * consecutive


def test_definitions():
    j, i = np.arange(7)[:, None], np.arange(4)
    expected = np.sqrt(2 / 7) * np.cos(i * np.pi * (j + 0.5) / 7) / np.where(i == 0, np.sqrt(2), 1)
    np.testing.assert_allclose(NonsystematicMDSCode(7, 4, construction="chebyshev").generator, expected, atol=1e-15)
    np.testing.assert_allclose(expected.T @ expected, np.eye(4), atol=1e-14)
    points = np.linspace(-1, 1, 7)[:, None]
    assert np.array_equal(NonsystematicMDSCode(7, 4, construction="vandermonde").generator, points**i)
    np.testing.assert_allclose(RootsOfUnityCode(6, 4).generator, np.exp(2j * np.pi / 7 * j[:6] * i), atol=1e-14)
    assert NonsystematicMDSCode(400, 100).generator.std() == pytest.approx(0.1, rel=0.02)


def test_rotation_is_the_roots_of_unity_in_pairs():
    n, pairs = 6, 3
    code = RotationCode(n, 2 * pairs)
    blocks = np.random.default_rng(0).normal(size=(2 * pairs, 5))
    coded = code.encode(blocks)
    theta = 2 * np.pi / 7
    for w in range(n):
        assert code.placement(w) == (2 * w, 2 * w + 1)
        cos, sin = np.cos(theta * w * np.arange(pairs)), np.sin(theta * w * np.arange(pairs))
        np.testing.assert_allclose(coded[2 * w], cos @ blocks[::2] - sin @ blocks[1::2], atol=1e-13)
        np.testing.assert_allclose(coded[2 * w + 1], sin @ blocks[::2] + cos @ blocks[1::2], atol=1e-13)
    whole = RootsOfUnityCode(n, pairs).encode(blocks[::2] + 1j * blocks[1::2])
    np.testing.assert_allclose(whole, coded[::2] + 1j * coded[1::2], atol=1e-13)
    ids = [0, 2, 5]
    condition = RootsOfUnityCode(n, pairs).certify(ids).amplification
    assert condition == pytest.approx(np.linalg.cond(roots_of_unity(n, pairs)[ids]))
    both = [part for i in ids for part in code.placement(i)]
    assert code.certify(both).amplification == pytest.approx(condition)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize(("n", "k"), [(7, 4), (6, 6), (8, 3), (5, 1), (1, 1)])
def test_every_subset(construction, n, k):
    code = NonsystematicMDSCode(n, k, construction=construction)
    blocks = np.random.default_rng(0).normal(size=(k, 2, 3))
    coded = code.encode(blocks)
    for size in range(1, n + 1):
        for subset in combinations(range(n), size):
            tracker = code.tracker()
            for i in subset:
                tracker.add(i)
            rank = np.linalg.matrix_rank(code.generator[list(subset)], tol=1e-9)
            assert tracker.decodable == (size >= k) == (rank == k)
            assert tracker.missing() == (() if size >= k else tuple(range(k)))
            values = {i: coded[i] for i in subset}
            if size < k:
                with pytest.raises(NotDecodableError):
                    code.decode(values)
                continue
            decoded, certificate = code.decode(values)
            assert relative_error(decoded, blocks) < 10 * certificate.predicted_error + 50 * np.finfo(coded.dtype).eps
            assert certificate.surplus_checked == size - k


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64, np.float64, np.float32, np.int32])
@pytest.mark.parametrize(("n", "k"), [(6, 4), (5, 5), (5, 2), (1, 1)])
def test_every_subset_of_the_roots_of_unity(n, k, dtype):
    code = RootsOfUnityCode(n, k)
    blocks = np.random.default_rng(0).normal(scale=10, size=(k, 2, 3)).astype(dtype)
    if blocks.dtype.kind == "c":
        blocks = blocks * dtype(1 + 2j)
    coded = code.encode(blocks)
    single = dtype in {np.complex64, np.float32}
    assert coded.dtype == (np.complex64 if single else np.complex128)
    np.testing.assert_allclose(coded, np.tensordot(code.generator, blocks, 1), rtol=1e-4, atol=1e-4)
    for size in range(1, n + 1):
        for subset in combinations(range(n), size):
            values = {i: coded[i] for i in subset}
            tracker = code.tracker()
            for i in subset:
                tracker.add(i)
            assert tracker.decodable == (size >= k)
            if size < k:
                with pytest.raises(NotDecodableError, match="more results"):
                    code.decode(values)
                with pytest.raises(NotDecodableError):
                    code.certify(subset)
                continue
            decoded, certificate = code.decode(values)
            assert decoded.dtype == coded.dtype
            assert relative_error(decoded, blocks) < 10 * certificate.predicted_error + 50 * np.finfo(coded.dtype).eps
            assert (certificate.used, certificate.surplus_checked) == (subset, size - k)
            assert code.certify(subset, coded.dtype).predicted_error == pytest.approx(certificate.predicted_error)


@pytest.mark.parametrize(("n", "pairs"), [(5, 3), (4, 4), (4, 1), (1, 1)])
def test_every_set_of_workers_of_the_rotation_code(n, pairs):
    code = RotationCode(n, 2 * pairs)
    blocks = np.random.default_rng(0).normal(size=(2 * pairs, 4))
    coded = code.encode(blocks)
    for mask in range(1, 4**n):
        subset = [i for i in range(2 * n) if mask >> i & 1]
        tracker = code.tracker()
        for i in subset:
            tracker.add(i)
        complete = sum(2 * w in subset and 2 * w + 1 in subset for w in range(n))
        assert tracker.decodable == (complete >= pairs)
        if not tracker.decodable:
            assert tracker.missing() == tuple(range(2 * pairs))
        elif mask % 7 == 0:
            decoded, _ = code.decode({i: coded[i] for i in subset})
            np.testing.assert_allclose(decoded, blocks, atol=1e-11)


@pytest.mark.parametrize(
    "make",
    [
        lambda allow: NonsystematicMDSCode(20, 9, construction="vandermonde", allow_unstable=allow),
        lambda allow: NonsystematicMDSCode(40, 30, construction="chebyshev", allow_unstable=allow),
        lambda allow: NonsystematicMDSCode(100, 80, construction="chebyshev", allow_unstable=allow),
        lambda allow: RootsOfUnityCode(50, 36, allow_unstable=allow),
        lambda allow: RotationCode(50, 72, allow_unstable=allow),
    ],
)
def test_unstable_sizes_are_refused_unless_allowed(make):
    with pytest.raises(InputError, match=r"not stable .*use code 'mds' .*allow_unstable=True"):
        make(False)
    code = make(True)
    assert code.params()["allow_unstable"] is True
    assert from_manifest(code.manifest()).params() == code.params()


def test_stable_sizes_are_accepted():
    for n, k in [(20, 8), (200, 8), (8, 1)]:
        NonsystematicMDSCode(n, k, construction="vandermonde")
    for n, k in [(81, 78), (31, 29), (20, 16)]:
        NonsystematicMDSCode(n, k, construction="chebyshev")
        RootsOfUnityCode(n, k)
        RotationCode(n, 2 * k)
    NonsystematicMDSCode(120, 80)


def test_accuracy_of_the_gaussian_code():
    code = NonsystematicMDSCode(100, 80)
    rng = np.random.default_rng(1)
    blocks = rng.normal(size=(80, 8))
    coded = code.encode(blocks)
    for _ in range(10):
        decoded, certificate = code.decode({int(i): coded[i] for i in rng.choice(100, 80, replace=False)})
        error = np.linalg.norm(decoded - blocks) / np.linalg.norm(blocks)
        assert error < 1e-11
        assert error < 10 * certificate.predicted_error


def test_a_bad_pattern_of_an_allowed_code_warns_and_keeps_to_the_tolerance():
    code = NonsystematicMDSCode(101, 98, construction="chebyshev")
    coded = code.encode(np.ones((98, 2)))
    values = {i: coded[i] for i in range(98)}
    _, certificate = code.decode(values)
    assert 1e-9 < certificate.predicted_error < 1e-6
    with pytest.raises(DecodeError, match="tolerance"):
        code.decode(values, tolerance=1e-9)


def test_surplus_and_non_finite():
    for code, extra in ((NonsystematicMDSCode(8, 5), 1), (RootsOfUnityCode(8, 5), 1j)):
        values = dict(enumerate(code.encode(np.random.default_rng(2).normal(size=(5, 4)))))
        code.decode(values)
        values[3] = values[3] + 1e-3 * extra
        with pytest.raises(DecodeError, match="contradict"):
            code.decode(values)
        values[3][1] = np.nan
        with pytest.raises(InputError, match=r"\[3\]"):
            code.decode(values)


def test_refusals():
    for make in (NonsystematicMDSCode, RootsOfUnityCode):
        with pytest.raises(InputError, match="at most n_workers=3"):
            make(3, 4)
        with pytest.raises(InputError, match="k must be an integer of at least 1"):
            make(3, 0)
        with pytest.raises(InputError, match="integer"):
            make(3.0, 2)
    with pytest.raises(InputError, match=r"'cauchy'.*'roots-of-unity'"):
        NonsystematicMDSCode(4, 2, construction="cauchy")
    with pytest.raises(InputError, match="shape"):
        NonsystematicMDSCode(4, 2, construction=np.ones((2, 4)))
    with pytest.raises(InputError, match="seed"):
        NonsystematicMDSCode(4, 2, seed=-1)
    with pytest.raises(InputError, match="'mds-nonsystematic'"):
        MDSCode(4, 2, parity="chebyshev")
    for k in (3, 10):
        with pytest.raises(InputError, match=f"even and at most .*got {k}"):
            RotationCode(4, k)
    for code in (NonsystematicMDSCode(4, 2), RootsOfUnityCode(4, 2), RotationCode(2, 2)):
        with pytest.raises(InputError, match="message id"):
            code.tracker().add(4)
        with pytest.raises(InputError, match="message id"):
            code.encode(np.ones((2, 3)), messages=[4])
        with pytest.raises(InputError, match="message id"):
            code.certify([0, 4])


def test_roots_of_unity_say_what_to_use_for_real_data():
    with pytest.raises(InputError, match="complex data, or use code 'mds'"):
        RootsOfUnityCode(3, 2).encode(np.ones((2, 4)), np.empty((3, 4)))


def test_singular_recovery_names_the_messages():
    code = NonsystematicMDSCode(3, 2, construction=[[1, 0], [1, 0], [0, 1]])
    with pytest.raises(DecodeError, match=r"messages \[0, 1\] is singular"):
        code.decode({0: np.ones(2), 1: np.ones(2)})


def test_a_message_may_be_the_place_of_its_block():
    code = NonsystematicMDSCode(5, 3, construction="vandermonde")
    blocks = np.random.default_rng(3).normal(size=(3, 4))
    coded = code.encode(blocks)
    assert [code.source_of(i) for i in range(5)] == [None, None, 0, None, None]
    buffer = np.full((3, 4), np.nan)
    buffer[0] = coded[2]
    decoded, _ = code.decode({0: coded[0], 2: buffer[0], 3: coded[3]}, out=buffer)
    assert decoded is buffer
    np.testing.assert_allclose(buffer, blocks, atol=1e-13)


@pytest.mark.parametrize(
    "code",
    [
        NonsystematicMDSCode(6, 4, seed=3),
        NonsystematicMDSCode(6, 4, construction="chebyshev"),
        NonsystematicMDSCode(3, 2, construction=[[1, 0], [1, 1], [1, 2]]),
        RootsOfUnityCode(6, 4),
        RotationCode(6, 8),
    ],
)
def test_manifest_round_trip_through_bytes(code):
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert type(again) is type(code)
    assert isinstance(again, Certifier)
    assert np.array_equal(again.generator, code.generator)
    assert (again.params(), repr(again)) == (code.params(), repr(code))
    assert np.array_equal(type(code)(code.n_workers, code.k, **code.params()).generator, code.generator)


@pytest.mark.parametrize("name", ["mds-nonsystematic", "roots-of-unity", "rotation"])
def test_by_name(name):
    for sizes in ({}, {"n_workers": 20}, {"k": 12}, {"n_workers": 60}, {"n_workers": 1}):
        code = get(name, **sizes)
        assert code.guaranteed_threshold == (code.k // 2 if name == "rotation" else code.k)
        for label, value in sizes.items():
            assert getattr(code, label) == value
