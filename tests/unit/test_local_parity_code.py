"""Local-parity codes: tiles are product codes side by side."""

from itertools import combinations

import numpy as np
import pytest
from gradient_sets import fed
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import get
from serverless_gc.codes.base import Certifier
from serverless_gc.codes.linear import as_linear
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.product.code import ProductCode
from serverless_gc.codes.product.local_parity import LocalParityCode
from serverless_gc.codes.registry import from_manifest
from serverless_gc.errors import DecodeError, InputError, NotDecodableError


def test_a_single_tile_is_a_product_code():
    assert np.array_equal(LocalParityCode(20, 12).generator, ProductCode(20, 12).generator)


def test_tiles_are_independent():
    code = LocalParityCode(27, 12)
    assert (code.tile, code.n_tiles, code.grid) == ((2, 2), 3, ((3, 2), (3, 2)))
    assert np.array_equal(code.generator, np.kron(np.eye(3), ProductCode(9, 4).generator))
    tile = ProductCode(9, 4)
    rng = np.random.default_rng(0)
    for _ in range(200):
        ids = rng.choice(27, 21, replace=False).tolist()
        each = [{i - 9 * t for i in ids if i // 9 == t} for t in range(3)]
        known = [4 * t + j for t in range(3) for j in tile.known_blocks(each[t])]
        assert list(code.known_blocks(ids)) == known


@pytest.mark.parametrize(
    ("n", "k", "tile"), [(8, 4, (3, 1)), (6, 4, (2, 1)), (9, 4, (2, 2)), (8, 2, (1, 1)), (9, 5, (2, 1))]
)
def test_every_subset_against_the_rank(n, k, tile):
    every_subset_against_the_rank(LocalParityCode(n, k, tile=tile), 1e-13)


def every_subset_against_the_rank(code, accuracy):
    n, k, tile = code.n_workers, code.k, code.tile
    reference = as_linear(code)
    blocks = np.random.default_rng(0).normal(size=(k, 3))
    coded = code.encode(blocks)
    np.testing.assert_allclose(coded, code.generator @ blocks, atol=1e-14)
    largest = 0
    for size in range(1, n + 1):
        for subset in combinations(range(n), size):
            tracker, slow = code.tracker(), reference.tracker()
            for i in subset:
                tracker.add(i)
                slow.add(i)
            assert (tracker.decodable, tracker.missing()) == (slow.decodable, slow.missing())
            values = {i: coded[i] for i in subset}
            if tracker.decodable:
                decoded, certificate = code.decode(values)
                np.testing.assert_allclose(decoded, blocks, atol=accuracy)
                assert certificate.method in {"systematic", "peel"}
            else:
                largest = size
                with pytest.raises(NotDecodableError, match="stuck"):
                    code.decode(values)
    assert largest + 1 <= code.guaranteed_threshold
    assert largest + 1 == code.guaranteed_threshold or k < code.n_tiles * tile[0] * tile[1]


@pytest.mark.parametrize(("n", "k", "tile"), [(3, 1, (1, 1)), (8, 4, (2, 1)), (8, 3, (2, 1)), (10, 6, (3, 1))])
def test_every_subset_of_two_parities_against_the_rank(n, k, tile):
    """A column with two parities is an MDS code: peeling reaches all that follows."""
    every_subset_against_the_rank(LocalParityCode(n, k, tile=tile, parities=2), 2e-13)


def test_two_parities_of_a_square_tile_against_the_rank():
    """Peeling gives up on a few sets of which the rank is full: as many as counted here, and on none of eight."""
    code = LocalParityCode(16, 4, parities=2)
    assert (code.tile, code.grid, code.guaranteed_threshold) == ((2, 2), ((4, 2), (4, 2)), 8)
    blocks = np.random.default_rng(0).normal(size=(4, 3))
    coded = code.encode(blocks)
    counts = {}
    for size in range(4, 9):
        subsets = list(combinations(range(16), size))
        full = np.linalg.matrix_rank(code.generator[np.array(subsets)]) == 4
        trackers = [fed(code, subset) for subset in subsets]
        decodable = np.array([tracker.decodable for tracker in trackers])
        assert decodable.tolist() == [closure_of_lines(subset) for subset in subsets]
        assert not np.any(decodable & ~full)
        counts[size] = len(subsets), int(decodable.sum()), int(full.sum())
        for at in range(0, len(subsets), 41):
            values = {i: coded[i] for i in subsets[at]}
            if decodable[at]:
                np.testing.assert_allclose(code.decode(values)[0], blocks, atol=1e-11)
            else:
                with pytest.raises(NotDecodableError, match="stuck") as caught:
                    code.decode(values)
                assert caught.value.missing == trackers[at].missing() != ()
    assert counts == {
        4: (1820, 1260, 1280),
        5: (4368, 4032, 4032),
        6: (8008, 7896, 7896),
        7: (11440, 11424, 11424),
        8: (12870, 12870, 12870),
    }


def closure_of_lines(subset):
    """Repair as it is defined: any row or column of a 4 x 4 tile with at most two lost cells, until nothing changes."""
    grid = np.zeros((4, 4), dtype=bool)
    grid.flat[list(subset)] = True
    while not grid.all():
        before = grid.sum()
        grid[grid.sum(axis=1) >= 2] = True
        grid[:, grid.sum(axis=0) >= 2] = True
        if grid.sum() == before:
            return False
    return True


def test_two_parities_are_those_of_the_product_code():
    tile = ProductCode(16, 4, grid=((4, 2), (4, 2)))
    code = LocalParityCode(32, 8, parities=2)
    assert (code.tile, code.n_tiles) == ((2, 2), 2)
    assert np.array_equal(code.generator, np.kron(np.eye(2), tile.generator))
    with pytest.raises(NotDecodableError, match=r"\(0, 0\) of tile 1"):
        code.certify(set(range(32)) - {16 + 4 * a + c for a in (0, 1, 3) for c in (0, 2, 3)})


def test_the_stuck_cells_are_named_with_their_tile():
    code = LocalParityCode(18, 8)
    with pytest.raises(NotDecodableError, match=r"\(0, 0\) of tile 1, \(0, 1\) of tile 1, \(1, 0\) of tile 1"):
        code.certify(set(range(18)) - {9, 10, 12, 13})


def test_a_repair_reads_one_line():
    code = LocalParityCode(100, 64)
    assert code.tile == (4, 4)
    for lost in range(100):
        block = code.source_of(lost)
        if block is None:
            continue
        certificate = code.certify(set(range(100)) - {lost})
        assert (
            len(set(certificate.used) - set(range(100)) | {i for i in certificate.used if code.source_of(i) is None})
            == 1
        )
        assert certificate.amplification < 5


def test_surplus_catches_a_wrong_result_in_any_tile():
    code = LocalParityCode(18, 8)
    for wrong in range(18):
        values = dict(enumerate(code.encode(np.random.default_rng(1).normal(size=(8, 3)))))
        values[wrong] = values[wrong] + 1e-3
        with pytest.raises(DecodeError, match="contradict"):
            code.decode(values)


@pytest.mark.parametrize(
    ("given_sizes", "sizes", "tile"),
    [
        ({}, (16, 9), (3, 3)),
        ({"n_workers": 20}, (20, 12), (4, 3)),
        ({"n_workers": 100}, (100, 64), (4, 4)),
        ({"n_workers": 1024}, (1024, 672), (7, 3)),
        ({"n_workers": 17}, (17, 16), (16, 1)),
        ({"n_workers": 20, "k": 15}, (20, 15), (3, 1)),
        ({"k": 12}, (20, 12), (4, 3)),
        ({"k": 40}, (60, 40), (5, 4)),
        ({"k": 1}, (2, 1), (1, 1)),
        ({"n_workers": 18, "k": 7}, (18, 7), (2, 2)),
        ({"n_workers": 36, "k": 16, "parities": 2}, (36, 16), (4, 4)),
        ({"n_workers": 32, "k": 8, "parities": 2}, (32, 8), (2, 2)),
        ({"n_workers": 36, "k": 17, "parities": 2}, (36, 17), (2, 1)),
    ],
)
def test_sizes(given_sizes, sizes, tile):
    code = get("local-parity", **given_sizes)
    assert ((code.n_workers, code.k), code.tile) == (sizes, tile)


def test_refusals():
    cases = [
        ({"n_workers": 1, "k": 1}, "at least 2"),
        ({"n_workers": 20, "k": 20}, "at most 19"),
        ({"n_workers": 20, "k": 8, "tile": (2, 2)}, "multiple of 9"),
        ({"n_workers": 18, "k": 9, "tile": (2, 2)}, "hold 8 blocks"),
        ({"n_workers": 18, "k": 8, "tile": (0, 2)}, "at least 1"),
        ({"n_workers": 18, "k": 8, "tile": (2,)}, "tile"),
        ({"n_workers": 18, "k": 8, "tile": 2}, "tile"),
        ({"n_workers": 18, "k": 8, "tile": (2, 2.0)}, "tile"),
        ({"n_workers": 2, "k": 1, "parities": 2}, "at least 3 for a local-parity code with parities=2"),
        ({"n_workers": 9, "k": 8, "parities": 2}, "at most 7 .* with parities=2"),
        ({"n_workers": 18, "k": 8, "tile": (2, 2), "parities": 2}, "multiple of 16, .* with parities=2"),
        *[({"n_workers": 9, "k": 4, "parities": p}, "parities must be 1 or 2") for p in (0, 3, True, 2.0, "2", None)],
    ]
    for arguments, words in cases:
        with pytest.raises(InputError, match=words):
            LocalParityCode(**arguments)


@pytest.mark.parametrize(
    "code",
    [
        LocalParityCode(18, 7),
        LocalParityCode(20, 15),
        LocalParityCode(12, 6, tile=(1, 1)),
        LocalParityCode(32, 8, parities=2),
        LocalParityCode(8, 3, tile=(2, 1), parities=2),
    ],
    ids=str,
)
def test_manifest_round_trip_through_bytes(code):
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert isinstance(again, LocalParityCode)
    assert isinstance(again, Certifier)
    assert np.array_equal(again.generator, code.generator)
    assert (again.params(), repr(again)) == (code.params(), repr(code))


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([LocalParityCode(18, 8), LocalParityCode(32, 8, parities=2)]),
    st.randoms(use_true_random=False),
    st.sampled_from([np.float64, np.float32, np.complex128, np.int64]),
)
def test_round_trip_in_any_order(code, random, dtype):
    order = random.sample(range(code.n_workers), code.n_workers)
    blocks = np.random.default_rng(0).normal(scale=10, size=(8, 4, 2)).astype(dtype)
    coded = code.encode(blocks)
    tracker = code.tracker()
    count = next(j for j, i in enumerate(order, 1) if tracker.add(i))
    assert all(tracker.add(i) for i in order), "monotone"
    decoded, _ = code.decode({i: coded[i] for i in order[:count]})
    np.testing.assert_allclose(decoded, blocks, rtol=1e-4, atol=1e-4)
