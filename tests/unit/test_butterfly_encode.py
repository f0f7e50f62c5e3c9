"""The butterfly against its matrix, in both kernels, both engines and both forms."""

from functools import reduce
from itertools import combinations
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.polar import butterfly
from serverless_gc.codes.polar.butterfly import encode
from serverless_gc.codes.polar.butterfly_program import require_convex, systematic_program
from serverless_gc.errors import InputError

ENGINES = ["numpy", "numba"]


@pytest.fixture(autouse=True)
def _numba_or_skip(request):
    if "engine" in request.fixturenames and request.getfixturevalue("engine") == "numba":
        pytest.importorskip("numba")


def matrix(length, kernel):
    """The transform written down from its definition."""
    if kernel == "binary":
        return np.array([[float((i & j) == j) for i in range(length)] for j in range(length)])
    one = np.array([[1.0, 1.0], [1.0, -1.0]]) / sqrt(2)
    return reduce(np.kron, [one] * (length.bit_length() - 1), np.eye(1))


def reed_muller(length, k):
    return sorted(sorted(range(length), key=lambda i: (-i.bit_count(), -i))[:k])


def plain(blocks, positions, length, rows=None, **options):
    rows = range(length) if rows is None else rows
    out = np.full((len(rows), np.shape(blocks)[1]), np.nan, np.result_type(np.asarray(blocks).dtype, np.float32))
    return encode(blocks, positions, length, out, rows, systematic=False, **options)


@pytest.mark.parametrize(
    ("length", "rows"),
    [
        (4, ["1111", "0101", "0011", "0001"]),
        (8, ["11111111", "01010101", "00110011", "00010001", "00001111", "00000101", "00000011", "00000001"]),
    ],
)
def test_written_matrices(length, rows):
    written = np.array([[float(c) for c in row] for row in rows])
    assert np.array_equal(matrix(length, "binary"), written)
    assert np.array_equal(plain(np.eye(length), range(length), length), written)


def test_worked_example():
    blocks = np.array([[1.0], [2.0], [3.0], [4.0]])
    assert plain(blocks, [3, 5, 6, 7], 8).ravel().tolist() == [10, 7, 8, 5, 9, 6, 7, 4]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@pytest.mark.parametrize("length", [1, 2, 4, 8, 32, 64])
def test_plain_equals_the_matrix(length, kernel, engine):
    rng = np.random.default_rng(length)
    k = max(1, 3 * length // 4)
    positions = rng.permutation(length)[:k].tolist()
    blocks = rng.normal(size=(k, 37))
    expected = matrix(length, kernel)[:, positions] @ blocks
    np.testing.assert_allclose(
        plain(blocks, positions, length, kernel=kernel, engine=engine), expected, rtol=0, atol=1e-13
    )
    rows = rng.permutation(length)[: length // 2 + 1].tolist()
    some = plain(list(blocks), positions, length, rows, kernel=kernel, engine=engine)
    np.testing.assert_allclose(some, expected[rows], rtol=0, atol=1e-13)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@pytest.mark.parametrize(("length", "k"), [(1, 1), (2, 1), (4, 2), (8, 4), (8, 8), (8, 1), (64, 48), (256, 192)])
def test_systematic_is_a_code_word_with_the_data_in_place(length, k, kernel, engine):
    positions = reed_muller(length, k)
    blocks = np.random.default_rng(k).integers(-9, 9, size=(k, 11)).astype(float)
    word = encode(blocks, positions, length, np.empty((length, 11)), range(length), kernel=kernel, engine=engine)
    assert np.array_equal(word[positions], blocks), "bit for bit"
    spectrum = np.linalg.solve(matrix(length, kernel), word)
    frozen = [i for i in range(length) if i not in positions]
    scale = np.abs(word).max()
    np.testing.assert_allclose(spectrum[frozen] / scale, 0, atol=1e-12)


@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
def test_systematic_equals_inverse_freeze_forward(kernel):
    length, k = 32, 20
    positions = reed_muller(length, k)
    blocks = np.random.default_rng(0).integers(-9, 9, size=(k, 5)).astype(float)
    one = np.array([[1.0, 1.0], [0.0, 1.0]]) if kernel == "binary" else np.array([[1.0, -1.0], [0.0, 1.0]])
    U = reduce(np.kron, [one] * 5)
    v = np.zeros((length, 5))
    v[positions] = blocks
    u = np.linalg.inv(U) @ v
    u[[i for i in range(length) if i not in positions]] = 0
    word = encode(blocks, positions, length, np.empty((length, 5)), range(length), kernel=kernel)
    np.testing.assert_allclose(word, U @ u, atol=1e-9)


def convex_sets(length):
    for k in range(1, length + 1):
        for positions in combinations(range(length), k):
            data = set(positions)
            if all(
                f in data
                for i in positions
                for j in positions
                if i & j == i
                for f in range(length)
                if f & i == i and f & j == f
            ):
                yield positions


def test_every_convex_set_of_length_8_has_a_systematic_code_and_no_other_is_accepted():
    G = matrix(8, "binary")
    accepted = 0
    convex = set(convex_sets(8))
    for k in range(1, 9):
        for positions in combinations(range(8), k):
            if positions not in convex:
                with pytest.raises(InputError, match="no systematic code"):
                    encode(np.eye(k), positions, 8, np.empty((8, k)), range(8))
                continue
            word = encode(np.eye(k), positions, 8, np.empty((8, k)), range(8))
            expected = G[:, positions] @ np.linalg.inv(G[np.ix_(positions, positions)])
            np.testing.assert_allclose(word, expected, atol=1e-12)
            accepted += 1
    assert 0 < accepted < 255


def test_shortened_code_of_the_specification():
    positions = [2, 3, 4, 5]
    word = encode(np.eye(4), positions, 8, np.empty((8, 4)), range(8))
    assert np.array_equal(word[positions], np.eye(4))
    assert np.array_equal(word[6:], np.zeros((2, 4)))


@pytest.mark.parametrize("systematic", [False, True])
@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64])
def test_engines_agree_bit_for_bit(dtype, kernel, systematic):
    pytest.importorskip("numba")
    rng = np.random.default_rng(3)
    blocks = rng.normal(size=(48, 1001)).astype(dtype)
    if blocks.dtype.kind == "c":
        blocks += dtype(1j) * rng.normal(size=(48, 1001)).astype(blocks.real.dtype)
    results = [
        encode(
            source,
            reed_muller(64, 48),
            64,
            np.empty((64, 1001), dtype),
            range(64),
            kernel=kernel,
            systematic=systematic,
            engine=engine,
            threads=threads,
        )
        for engine in ENGINES
        for source in (blocks, list(blocks))
        for threads in (1, 2)
    ]
    for result in results[1:]:
        assert np.array_equal(results[0], result)


@pytest.mark.parametrize("dtype", [np.int32, np.float16, bool])
@pytest.mark.parametrize("engine", ENGINES)
def test_integers_are_summed_in_float64(dtype, engine):
    blocks = np.random.default_rng(0).integers(0, 100, size=(6, 9)).astype(dtype)
    expected = matrix(8, "binary")[:, 2:] @ blocks.astype(float)
    for source in (blocks, list(blocks)):
        out = encode(source, range(2, 8), 8, np.empty((8, 9)), range(8), systematic=False, engine=engine)
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_foreign_byte_order_and_unaligned_rows(engine):
    blocks = np.random.default_rng(0).normal(size=(6, 9))
    expected = plain(blocks, range(2, 8), 8)
    assert np.array_equal(plain(blocks.astype(">f8"), range(2, 8), 8, engine=engine), expected)
    shifted = np.frombuffer(b"x" + blocks.tobytes(), dtype=np.float64, offset=1).reshape(6, 9)
    assert not shifted.flags.aligned
    out = np.empty((8, 9))
    encode(shifted, range(2, 8), 8, out, range(8), systematic=False, engine=engine)
    assert np.array_equal(out, expected)


def test_tiles_and_threads_do_not_change_the_result(monkeypatch):
    blocks = np.random.default_rng(1).normal(size=(12, 1003))
    whole = plain(blocks, range(4, 16), 16, threads=1)
    monkeypatch.setattr(butterfly, "_TILE_BYTES", 16 * 8 * 100)
    monkeypatch.setattr(butterfly, "_SHARE", 2**10)
    for threads in (1, 2, 3):
        assert np.array_equal(plain(blocks, range(4, 16), 16, threads=threads), whole)
    assert np.array_equal(plain(np.asfortranarray(blocks), range(4, 16), 16), whole)


def test_out_may_be_a_view_and_blocks_its_rows():
    memory = np.random.default_rng(2).normal(size=(8, 50))
    blocks = memory[4:]
    before = blocks.copy()
    expected = encode(before, [3, 5, 6, 7], 8, np.empty((4, 50)), [0, 1, 2, 4])
    assert np.array_equal(encode(blocks, [3, 5, 6, 7], 8, memory[:4], [0, 1, 2, 4]), expected)
    assert np.array_equal(blocks, before)
    wide = np.empty((4, 100))
    assert np.array_equal(encode(blocks, [3, 5, 6, 7], 8, wide[:, ::2], [0, 1, 2, 4]), expected)


def test_the_buffer_of_numpy_is_left_as_it_was():
    before = np.getbufsize()
    plain(np.ones((4, 10)), range(4), 4)
    assert np.getbufsize() == before


def test_no_columns_and_no_rows():
    assert plain(np.empty((3, 0)), range(3), 4).shape == (4, 0)
    assert plain(np.ones((3, 5)), range(3), 4, rows=[]).shape == (0, 5)


@pytest.mark.parametrize(("length", "k"), [(64, 48), (256, 192), (1024, 768)])
def test_systematic_takes_no_more_additions_than_one_transform(length, k):
    data = np.isin(np.arange(length), reed_muller(length, k))
    table = systematic_program(data, "binary").table()
    assert table[:, 4].sum() <= length // 2 * (length.bit_length() - 1)


@settings(deadline=None)
@given(st.integers(0, 5), st.data())
def test_linear_and_involutive(q, data):
    length = 2**q
    values = st.lists(st.integers(-50, 50), min_size=length, max_size=length)
    a, b = (np.array(data.draw(values), dtype=float)[:, None] for _ in range(2))
    every = range(length)
    assert np.array_equal(plain(a + 2 * b, every, length), plain(a, every, length) + 2 * plain(b, every, length))
    twice = plain(plain(a, every, length, kernel="hadamard"), every, length, kernel="hadamard")
    np.testing.assert_allclose(twice, a, atol=1e-12)


def test_require_convex_accepts_sets_closed_under_inclusion():
    for k in range(1, 65):
        require_convex(np.isin(np.arange(64), reed_muller(64, k)))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"length": 6}, "power of two"),
        ({"length": 0}, "length"),
        ({"kernel": "haar"}, "'haar'"),
        ({"engine": "cuda"}, "'cuda'"),
        ({"positions": [0, 0]}, "differ"),
        ({"positions": [0, 4]}, "0..3"),
        ({"positions": [0]}, "one block for each"),
        ({"rows": [0, -1, 2, 3]}, "rows"),
        ({"rows": [0]}, "one row for each"),
        ({"out": np.empty((4, 4))}, "length of a row"),
        ({"out": np.empty(4)}, "shape"),
        ({"out": np.broadcast_to(0.0, (4, 3))}, "writable"),
        ({"out": np.empty((4, 3), np.int64)}, "hold"),
        ({"blocks": [np.ones(3), np.ones(2)]}, "length of a row"),
        ({"blocks": np.array([["a"] * 3] * 2)}, "numeric"),
        ({"threads": 0}, "threads"),
        ({"positions": [0, 3], "systematic": True}, "no systematic code"),
    ],
)
def test_refusals(change, word):
    arguments = {
        "blocks": np.ones((2, 3)),
        "positions": [2, 3],
        "length": 4,
        "out": np.empty((4, 3)),
        "rows": range(4),
        "systematic": False,
    }
    with pytest.raises(InputError, match=word):
        encode(**{**arguments, **change})


def test_without_numba_the_engine_says_what_to_install(monkeypatch):
    monkeypatch.setattr(butterfly, "find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"serverless-gc\[fast\]"):
        plain(np.ones((2, 3)), [0, 1], 2, engine="numba")
    monkeypatch.setattr(butterfly, "_LARGE", 1)
    assert np.array_equal(plain(np.ones((2, 3)), [0, 1], 2), [[2] * 3, [1] * 3])
