"""Product codes: worked values, every subset of small grids, round trips, refusals."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc import coded_gradient
from serverless_gc.codes import get
from serverless_gc.codes.base import Certifier
from serverless_gc.codes.linear import as_linear
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.product.code import ProductCode
from serverless_gc.codes.registry import from_manifest
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

SMALL = [
    (1, 1, None),
    (4, 1, None),
    (6, 2, None),
    (9, 4, None),
    (9, 3, ((3, 2), (3, 2))),  # an empty place
    (8, 3, ((4, 3), (2, 1))),
    (8, 6, ((4, 3), (2, 2))),  # no code along the rows
    (6, 4, ((6, 4), (1, 1))),  # two parities on one line: MDS
    (9, 2, ((3, 1), (3, 2))),
    (10, 3, ((5, 3), (2, 1))),
    (8, 1, ((8, 1), (1, 1))),
    (9, 9, None),
]


def make(n, k, grid):
    return ProductCode(n, k, grid=grid)


def relative_error(decoded, blocks):
    return np.linalg.norm(decoded - blocks) / np.linalg.norm(blocks)


def closure(code, arrived):
    """Cells known after repairing, line by line, whatever a line can: in plain sets, from the definition."""
    (n1, k1), (n2, k2) = code.grid
    known = set(arrived) | {i for i in range(code.n_workers) if not code.generator[i].any()}
    lines = [({a * n2 + c for c in range(n2)}, n2 - k2) for a in range(n1)]
    lines += [({a * n2 + c for a in range(n1)}, n1 - k1) for c in range(n2)]
    while True:
        more = set().union(*(cells - known for cells, spare in lines if len(cells - known) <= spare))
        if not more:
            return known
        known |= more


def test_counts_of_decodable_sets_in_the_3_by_3_grid():
    code = ProductCode(9, 4)
    counts = [sum(map(bool, decodable_sets(code, size))) for size in (4, 5, 6)]
    assert counts == [81, 117, 84]
    assert [sum(1 for _ in combinations(range(9), size)) for size in (4, 5, 6)] == [126, 126, 84]


def test_counts_of_decodable_sets_in_the_4_by_3_grid():
    code = ProductCode(12, 6, grid=((4, 3), (3, 2)))
    assert [sum(decodable_sets(code, size)) for size in (6, 7, 8, 9)] == [432, 648, 477, 220]


def decodable_sets(code, size):
    for subset in combinations(range(code.n_workers), size):
        tracker = code.tracker()
        for i in subset:
            tracker.add(i)
        yield tracker.decodable


def test_generator_of_the_3_by_3_grid():
    side = np.array([[1, 0], [0, 1], [1, 1]])
    assert np.array_equal(ProductCode(9, 4).generator, np.kron(side, side))


def test_two_parities_follow_the_cosine_rule():
    code = ProductCode(25, 9, grid=((5, 3), (5, 3)))
    angles = np.pi * (np.arange(3) + 0.25) / 3
    side = np.vstack([np.eye(3), np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(code.generator, np.kron(side, side), atol=1e-15)
    for k in (2, 3, 7, 30, 64, 100):
        parity = ProductCode((k + 2), k, grid=((k + 2, k), (1, 1))).generator[k:]
        assert np.abs(parity).min() > 1e-3
        minors = parity[0, :, None] * parity[1] - parity[1, :, None] * parity[0]
        assert np.abs(minors[~np.eye(k, dtype=bool)]).min() > 1e-3, "MDS for every k"


@pytest.mark.parametrize(("n", "k", "grid"), SMALL)
def test_every_subset_against_the_closure_and_the_rank(n, k, grid):
    code = make(n, k, grid)
    reference = as_linear(code)
    single = all(size - data <= 1 for size, data in code.grid)
    (n1, k1), (n2, k2) = code.grid
    for size in range(n + 1):
        for subset in combinations(range(n), size):
            tracker, slow = code.tracker(), reference.tracker()
            for i in subset:
                verdict = tracker.add(i)
                slow.add(i)
            cells = closure(code, subset)
            lost = tuple(j for j in range(k) if (j // k2) * n2 + j % k2 not in cells)
            assert tracker.missing() == lost
            assert tracker.known() == code.known_blocks(subset) == tuple(sorted(set(range(k)).difference(lost)))
            assert tracker.decodable == (not lost)
            if subset:
                assert (bool(verdict), verdict.missing) == (not lost, lost)
            if single or n2 == 1:
                assert tracker.decodable == slow.decodable, "peeling is exact"
            assert slow.decodable or not tracker.decodable
            assert tracker.decodable or size < code.guaranteed_threshold
    assert code.guaranteed_threshold == n - (n1 - k1 + 1) * (n2 - k2 + 1) + 1


@pytest.mark.parametrize("grid", [((3, 2), (3, 2)), ((4, 3), (3, 2)), ((5, 4), (4, 2)), ((8, 4), (1, 1))])
def test_the_guaranteed_threshold_is_tight(grid):
    (n1, k1), (n2, k2) = grid
    code = ProductCode(n1 * n2, k1 * k2, grid=grid)
    stuck = [a * n2 + c for a in range(n1 - k1 + 1) for c in range(n2 - k2 + 1)]
    arrived = [i for i in range(code.n_workers) if i not in stuck]
    assert len(arrived) == code.guaranteed_threshold - 1
    with pytest.raises(NotDecodableError, match=r"cells of the grid are stuck: \(0, 0\)") as caught:
        code.certify(arrived)
    assert 0 in caught.value.missing
    code.certify([*arrived, stuck[0]])


@pytest.mark.parametrize(("n", "k", "grid"), [case for case in SMALL if case[0] <= 9])
def test_every_decodable_subset_decodes_and_certifies(n, k, grid):
    code = make(n, k, grid)
    blocks = np.random.default_rng(0).normal(size=(k, 2, 3))
    coded = code.encode(blocks)
    np.testing.assert_allclose(coded, np.tensordot(code.generator, blocks, 1), atol=1e-14)
    filled = {i for i in range(n) if code.generator[i].any()}
    for size in range(1, n + 1):
        for subset in combinations(range(n), size):
            values = {i: coded[i] for i in subset}
            if len(code.known_blocks(subset)) < k:
                with pytest.raises(NotDecodableError):
                    code.decode(values)
                continue
            decoded, certificate = code.decode(values)
            assert relative_error(decoded, blocks) < 1e-13
            direct = {j for i in subset if (j := code.source_of(i)) is not None}
            assert certificate.method == ("systematic" if len(direct) == k else "peel")
            assert set(certificate.used) <= set(subset)
            surplus = len(filled.intersection(subset)) - k
            assert certificate.surplus_checked == surplus
            assert (certificate.residual is None) == (surplus == 0)
            for j in direct:
                assert np.array_equal(decoded[j], blocks[j]), "a block that arrived is bit-identical"


def test_what_is_used_suffices():
    rng = np.random.default_rng(3)
    code = ProductCode(36, 25)
    coded = code.encode(rng.normal(size=(25, 4)))
    for _ in range(30):
        ids = rng.choice(36, 33, replace=False).tolist()
        decoded, certificate = code.decode({i: coded[i] for i in ids})
        again, _ = code.decode({i: coded[i] for i in certificate.used})
        assert np.array_equal(again, decoded)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64, np.int16, np.float16, bool])
@pytest.mark.parametrize("grid", [((4, 3), (4, 3)), ((5, 3), (5, 3))])
def test_dtypes_and_columns(dtype, grid):
    rng = np.random.default_rng(1)
    n = grid[0][0] ** 2
    code = ProductCode(n, 9, grid=grid)
    blocks = (rng.normal(size=(9, 5, 2)) * 10).astype(dtype)
    if blocks.dtype.kind == "c":
        blocks = blocks + dtype(1j) * rng.normal(size=blocks.shape).astype(blocks.real.dtype)
    whole, listed = code.encode(blocks), code.encode(list(blocks))
    expected = np.float64 if blocks.dtype.kind in "bi" or dtype is np.float16 else dtype
    assert whole.dtype == listed.dtype == expected
    assert np.array_equal(listed, whole)
    tolerance = 1e-13 if expected in {np.float64, np.complex128} else 1e-5
    np.testing.assert_allclose(whole, np.tensordot(code.generator, blocks, 1), rtol=tolerance, atol=100 * tolerance)
    lost = (0, 6, n - 1)
    decoded, _ = code.decode({i: whole[i] for i in range(n) if i not in lost})
    assert (decoded.shape, decoded.dtype) == (blocks.shape, expected)
    if blocks.dtype.kind in "bi" and n == 16:
        assert np.array_equal(decoded, blocks), "sums of integers are exact"
    np.testing.assert_allclose(decoded, blocks.astype(expected), rtol=tolerance, atol=100 * tolerance)


def test_wide_blocks_and_the_choice_of_messages():
    code = ProductCode(16, 7)
    blocks = np.random.default_rng(2).normal(size=(7, 40_001))
    coded = code.encode(list(blocks))
    np.testing.assert_allclose(coded, code.generator @ blocks, atol=1e-13)
    ids = [15, 0, 15, 3, 14, 10, 7, 0]
    np.testing.assert_allclose(code.encode(blocks, messages=ids), coded[ids], atol=1e-13)
    assert code.encode(blocks, messages=[]).shape == (0, 40_001)
    decoded, certificate = code.decode({i: coded[i] for i in range(16) if i not in {0, 5, 12}})
    np.testing.assert_allclose(decoded, blocks, atol=1e-12)
    assert certificate.residual < 1e-15


def test_memory_of_the_caller():
    code = ProductCode(9, 4)
    places = [0, 1, 3, 4]
    out = np.random.default_rng(3).normal(size=(9, 8))
    sources = out[places].copy()
    assert code.encode([out[i] for i in places], out) is out
    assert np.array_equal(out[places], sources)
    np.testing.assert_allclose(out, code.generator @ sources, atol=1e-14)
    buffer = np.full((4, 8), np.nan)
    buffer[2] = out[3]
    decoded, _ = code.decode({3: buffer[2], 1: out[1], 2: out[2], 7: out[7], 8: out[8]}, out=buffer)
    assert decoded is buffer
    np.testing.assert_allclose(buffer, sources, atol=1e-13)
    for target in (np.empty((8, 4)).T, np.empty((4, 8), np.float32)):
        decoded, _ = code.decode({i: out[i] for i in (1, 2, 5, 6)}, out=target)
        assert decoded is target
        np.testing.assert_allclose(target, sources, atol=1e-6)
    with pytest.raises(InputError, match="shape"):
        code.encode(sources, np.empty((4, 8)))


def test_scalars_and_empty_blocks():
    code = ProductCode(9, 4)
    coded = code.encode([1.0, 2.0, 3.0, 4.0])
    decoded, _ = code.decode({i: coded[i] for i in (1, 2, 5, 6)})
    assert decoded.tolist() == [1, 2, 3, 4]
    assert code.decode(dict(enumerate(code.encode(np.empty((4, 0))))))[0].shape == (4, 0)


@pytest.mark.parametrize("wrong", range(16))
def test_surplus_catches_one_wrong_result_wherever_it_is(wrong):
    code = ProductCode(16, 9)
    values = dict(enumerate(code.encode(np.random.default_rng(6).normal(size=(9, 4)))))
    code.decode(values)
    values[wrong] = values[wrong] * 1.001
    with pytest.raises(DecodeError, match="contradict"):
        code.decode(values)


def test_blocks_that_cancel_are_no_contradiction():
    code = ProductCode(16, 9)
    blocks = np.random.default_rng(7).normal(size=(9, 50))
    blocks[8] -= blocks.sum(axis=0)
    code.decode(dict(enumerate(code.encode(blocks))))
    values = {i: np.zeros(3) for i in range(16)}
    assert not code.decode(values)[0].any()


def test_rounding_of_large_summands_is_no_contradiction():
    code = ProductCode(9, 4)
    values = dict(enumerate(code.encode(np.random.default_rng(8).normal(size=(4, 50)))))
    values[4] = values[4] + 1e-6
    with pytest.raises(DecodeError):
        code.decode(values)
    _, certificate = code.decode(values, scale=1e3)
    assert certificate.residual < 1e-8


def test_non_finite_results_are_named():
    code = ProductCode(9, 4)
    coded = code.encode(np.ones((4, 5)))
    coded[2, 3] = np.nan
    with pytest.raises(InputError, match=r"\[2\]"):
        code.decode({i: coded[i] for i in (1, 2, 3, 4)})
    coded[2, 3] = np.inf
    with pytest.raises(InputError, match=r"\[2\]"):
        code.decode(dict(enumerate(coded)))


def test_infinities_that_meet_are_named_too():
    code = ProductCode(9, 4)
    coded = code.encode(np.ones((4, 5)))
    coded[[1, 2], 3] = np.inf
    with pytest.raises(InputError, match=r"\[1, 2\]"):
        code.decode({i: coded[i] for i in (1, 2, 3, 4)})


def test_large_single_precision_numbers_are_checked_too():
    code = ProductCode(9, 4)
    values = dict(enumerate(code.encode(np.full((4, 50), 1e30, np.float32))))
    _, certificate = code.decode(values)
    assert certificate.residual < 1e-6
    values[4] = values[4] * np.float32(1.01)
    with pytest.raises(DecodeError, match="contradict"):
        code.decode(values)


@pytest.mark.parametrize("make", [lambda X: X, scipy.sparse.csr_array])
def test_a_gradient_by_way_of_a_session(make):
    rng = np.random.default_rng(9)
    X, y, w = rng.normal(size=(101, 7)), rng.normal(size=101), rng.normal(size=7)
    for sizes in ({}, {"n_workers": 24, "k": 13}):
        gradient = coded_gradient(make(X), y, w, code="product", allow_fill=True, **sizes)
        np.testing.assert_allclose(gradient, X.T @ (X @ w - y), rtol=1e-11)


def test_tolerance():
    code = ProductCode(9, 4)
    coded = code.encode(np.ones((4, 5)))
    values = {i: coded[i] for i in (1, 2, 5, 6)}
    code.decode(values, tolerance=1e-14)
    with pytest.raises(DecodeError, match="tolerance"):
        code.decode(values, tolerance=1e-17)


def test_refusals():
    cases = [
        ({"n_workers": 17, "k": 9}, r"n_workers=16 \(4 x 4, k=9\) or n_workers=18 \(6 x 3, k=10\); code 'mds'"),
        ({"n_workers": 2, "k": 1}, r"n_workers=4 \(2 x 2"),
        ({"n_workers": 16, "k": 15}, "at most 14"),
        ({"n_workers": 16, "k": 17}, "at most 14"),
        ({"n_workers": 0, "k": 1}, "n_workers must be an integer of at least 1"),
        ({"n_workers": 9, "k": 0}, "k must be an integer of at least 1"),
        ({"n_workers": 9.0, "k": 4}, "integer"),
        ({"n_workers": 9, "k": 4, "grid": ((3, 2), (4, 2))}, "12 cells"),
        ({"n_workers": 9, "k": 5, "grid": ((3, 2), (3, 2))}, "hold k=5"),
        ({"n_workers": 9, "k": 4, "grid": ((3, 4), (3, 2))}, "1 <= k1 <= n1"),
        ({"n_workers": 9, "k": 4, "grid": ((3, 2), (3, 0))}, "1 <= k2 <= n2"),
        ({"n_workers": 9, "k": 4, "grid": (3, 3)}, "two pairs"),
        ({"n_workers": 9, "k": 4, "grid": ((3, 2.5), (3, 2))}, "two pairs"),
        ({"n_workers": 9, "k": 4, "seed": -1}, "seed"),
        ({"n_workers": 9, "k": 4, "parities": [np.ones((1, 2))]}, "two matrices"),
        ({"n_workers": 9, "k": 4, "parities": [np.ones((1, 3)), np.ones((1, 2))]}, "shape"),
    ]
    for arguments, words in cases:
        with pytest.raises(InputError, match=words):
            ProductCode(**arguments)
    code = ProductCode(9, 4)
    for bad in (-1, 9):
        for refused in (code.tracker().add, code.source_of, lambda i: code.certify([0, i])):
            with pytest.raises(InputError, match="message id"):
                refused(bad)
    with pytest.raises(InputError, match="one shape"):
        code.decode({0: np.ones(2), 1: np.ones((2, 1))})
    with pytest.raises(InputError, match="k=4 blocks"):
        code.encode(np.ones((3, 2)))
    with pytest.raises(NotDecodableError, match="no message"):
        code.decode({})


@pytest.mark.parametrize(
    ("given_sizes", "grid"),
    [
        ({}, ((4, 3), (4, 3))),
        ({"n_workers": 20}, ((5, 4), (4, 3))),
        ({"k": 12}, ((5, 4), (4, 3))),
        ({"n_workers": 20, "k": 15}, ((5, 5), (4, 3))),
        ({"n_workers": 36, "k": 16}, ((6, 4), (6, 4))),
        ({"k": 1}, ((2, 1), (2, 1))),
        ({"n_workers": 1}, ((1, 1), (1, 1))),
        ({"n_workers": 256}, ((16, 15), (16, 15))),
        ({"n_workers": 16, "k": 8}, ((4, 3), (4, 3))),
    ],
)
def test_sizes(given_sizes, grid):
    code = get("product", **given_sizes)
    assert code.grid == grid
    for name, value in given_sizes.items():
        assert getattr(code, name) == value


@pytest.mark.parametrize(
    "code",
    [
        ProductCode(9, 4),
        ProductCode(16, 7),
        ProductCode(64, 16, grid=((8, 4), (8, 4)), seed=5),
        ProductCode(9, 4, parities=([[1, 2]], [[1, -1]])),
    ],
)
def test_manifest_round_trip_through_bytes(code):
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert isinstance(again, ProductCode)
    assert np.array_equal(again.generator, code.generator)
    assert (again.params(), repr(again), again.manifest().keys()) == (code.params(), repr(code), code.manifest().keys())
    assert np.array_equal(ProductCode(code.n_workers, code.k, **code.params()).generator, code.generator)
    coded = code.encode(np.eye(code.k))
    decoded, _ = again.decode({i: coded[i] for i in range(1, code.n_workers)})
    np.testing.assert_allclose(decoded, np.eye(code.k), atol=1e-12)


def test_the_stored_parity_counts_not_the_seed():
    manifest = ProductCode(64, 16, grid=((8, 4), (8, 4)), seed=1).manifest()
    manifest["params"]["seed"] = 2
    code = ProductCode(64, 16, grid=((8, 4), (8, 4)), seed=1)
    assert np.array_equal(ProductCode.from_manifest(manifest).generator, code.generator)
    assert not np.array_equal(ProductCode(64, 16, grid=((8, 4), (8, 4)), seed=2).generator, code.generator)


def test_structure():
    code = ProductCode(9, 3)
    assert isinstance(code, Certifier)
    assert [code.source_of(i) for i in range(9)] == [0, 1, None, 2, None, None, None, None, None]
    assert not code.generator[4].any(), "an empty place"
    assert code.encode(np.ones((3, 2)))[4].tolist() == [0, 0]
    assert code.tracker().known() == ()
    assert sum(code.tracker().add(i).decodable for i in range(9)) == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 15), max_size=24))
def test_tracker_laws(arrivals):
    code = ProductCode(16, 8)
    forward, backward = code.tracker(), code.tracker()
    done = False
    for i in arrivals:
        assert bool(forward.add(i)) or not done, "monotone"
        done = forward.decodable
        assert bool(forward.add(i)) == done, "idempotent"
    for i in reversed(arrivals):
        backward.add(i)
    assert (backward.decodable, backward.missing()) == (done, forward.missing())


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(16)), st.sampled_from([((4, 3), (4, 3)), ((4, 2), (4, 3))]))
def test_the_answer_does_not_depend_on_the_order_of_arrival(order, grid):
    code = ProductCode(16, 6, grid=grid)
    coded = code.encode(np.random.default_rng(0).normal(size=(6, 5)))
    tracker = code.tracker()
    count = next(j for j, i in enumerate(order, 1) if tracker.add(i))
    values = {i: coded[i] for i in order[:count]}
    first, _ = code.decode(values)
    second, _ = code.decode(dict(sorted(values.items())))
    assert np.array_equal(first, second), "bit by bit"
