import hashlib
import importlib
import threading
from concurrent.futures import CancelledError

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from serverless_gc.encode import as_source, fingerprint, scan
from serverless_gc.errors import InputError

module = importlib.import_module("serverless_gc.encode.fingerprint")  # the package has the function by that name


@pytest.fixture
def small_tiles(monkeypatch):
    """Many tiles and several tasks from a small matrix."""
    monkeypatch.setattr(module, "_TILE_BYTES", 256)
    monkeypatch.setattr(module, "_TILE_ROWS", 4)
    monkeypatch.setattr(module, "_TILES_PER_TASK", 2)


@pytest.mark.usefixtures("small_tiles")
def test_independent_of_layout_threads_and_container():
    a = np.random.default_rng(0).standard_normal((37, 23))
    expected = scan(as_source(a), threads=1).fingerprint
    assert len(expected) == 64
    wide = np.zeros((74, 46))
    wide[::2, ::2] = a
    alike = [
        a.copy(),
        np.asfortranarray(a),
        wide[::2, ::2],
        a[::-1].copy()[::-1],
        a.astype(">f8"),
        a.tolist(),
        pd.DataFrame(a),
    ]
    assert {scan(as_source(x), threads=3).fingerprint for x in alike} == {expected}


@pytest.mark.usefixtures("small_tiles")
def test_one_changed_entry_anywhere_changes_it():
    a = np.random.default_rng(0).standard_normal((37, 23))
    before = fingerprint(a)
    rng = np.random.default_rng(1)
    seen = {before}
    for _ in range(40):
        i, j = rng.integers(37), rng.integers(23)
        kept = a[i, j]
        a[i, j] = np.nextafter(kept, np.inf)
        seen.add(fingerprint(a))
        a[i, j] = kept
    assert len(seen) > 35
    assert before in seen
    assert fingerprint(a) == before


def test_type_shape_and_sparsity_are_part_of_it():
    zeros = [np.zeros((4, 6)), np.zeros((6, 4)), np.zeros((4, 6), dtype=np.float32), np.zeros((4, 6), dtype=np.int64)]
    zeros += [np.zeros((4, 6), dtype=complex), sp.csr_array((4, 6)), sp.csr_array((6, 4))]
    assert len({fingerprint(z) for z in zeros}) == len(zeros)


@pytest.mark.usefixtures("small_tiles")
def test_rows_cannot_move_between_tiles_unnoticed():
    a = np.arange(64.0).reshape(16, 4)
    assert fingerprint(a) != fingerprint(np.concatenate([a[8:], a[:8]]))


@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-9, 9)),
    st.data(),
)
def test_equal_exactly_when_bitwise_equal(a, data):
    b = data.draw(hnp.arrays(np.float64, a.shape, elements=st.sampled_from([*a.ravel().tolist(), 0.25])))
    assert (fingerprint(a) == fingerprint(b)) == (a.tobytes() == b.tobytes())


def test_sparse_formats_agree_and_an_edit_in_place_shows():
    rng = np.random.default_rng(3)
    coo = sp.coo_array(sp.random(50, 40, 0.1, random_state=3))
    csr = coo.tocsr()
    shuffled = rng.permutation(coo.nnz)
    mixed = sp.coo_array((coo.data[shuffled], (coo.row[shuffled], coo.col[shuffled])), shape=coo.shape)
    wide_index = csr.copy()
    wide_index.indices = csr.indices.astype(np.int64)
    wide_index.indptr = csr.indptr.astype(np.int64)
    before = fingerprint(csr)
    assert {fingerprint(x) for x in (coo, coo.tocsc(), mixed, wide_index, sp.csr_matrix(csr))} == {before}
    csr.data[7] += 1e-9
    assert fingerprint(csr) != before
    csr.data[7] -= 1e-9
    csr.indices[:] = csr.indices[::-1].copy()
    assert fingerprint(csr) != before


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "g"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_first_bad_row_is_named(order, dtype, value):
    a = np.zeros((40, 30), dtype=dtype, order=order)
    a[31, 2] = a[17, 25] = a[17, 28] = value
    word = "NaN" if np.isnan(value) else "infinity"
    with pytest.raises(InputError, match=rf"A holds {word} in row 17, column 25; 3 entries are not finite"):
        scan(as_source(a, name="A"), threads=2)


def test_bad_entries_of_sparse_matrices_and_frames_are_named():
    values = np.eye(5)
    values[3, 1] = np.nan
    with pytest.raises(InputError, match=r"NaN in row 3, column 1\."):
        scan(as_source(sp.csc_array(values)))
    frame = pd.DataFrame({"age": pd.array([1, None, 3], dtype="Int64"), "size": [1.0, 2.0, 3.0]})
    with pytest.raises(InputError, match=r"NaN in row 1, column 'age'"):
        scan(as_source(frame))
    with pytest.raises(InputError, match=r"infinity in row 0, column 'b'"):
        scan(as_source(pd.DataFrame({"a": [1.0], "b": [np.inf]})))


def test_extended_precision_is_rounded_and_refused_beyond_double():
    a = np.ones((3, 2), dtype=np.longdouble)
    assert fingerprint(a) == fingerprint(np.ones((3, 2)))
    a[2, 1] = np.longdouble(10) ** 400
    with pytest.raises(InputError, match="infinity in row 2, column 1"):
        scan(as_source(a))


def test_duplicates_that_overflow_when_summed_are_found():
    coo = sp.coo_array((np.array([1e308, 1e308]), ([1, 1], [0, 0])), shape=(2, 2))
    with pytest.raises(InputError, match="infinity in row 1, column 0"):
        scan(as_source(coo))


@pytest.mark.parametrize(
    ("values", "largest"),
    [
        ([[1.0, -7.0]], 7.0),
        ([[True, False]], 1.0),
        (np.array([[200, 3]], dtype=np.uint8), 200.0),
        (np.array([[-(2**63), 3]]), 2.0**63),
        (np.full((3, 3), 1e308), 1e308),
        (sp.csr_array((3, 3)), 0.0),
        (sp.csr_array([[0.0, -2.0]]), 2.0),
    ],
)
def test_largest_magnitude(values, largest):
    assert scan(as_source(values)).largest == largest


def test_largest_of_complex_is_an_upper_bound():
    largest = scan(as_source(np.array([[3 + 4j, 1]]))).largest
    assert 5 <= largest <= 5 * 1.42


def test_stop_gives_the_pass_up():
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        scan(as_source(np.eye(4)), stop=stop)


def test_it_is_the_documented_hash():
    """A change here would make every stored encoding look like that of another matrix."""
    a = np.arange(6.0).reshape(2, 3)
    tile = hashlib.sha256(a.astype("<f8").tobytes()).digest()
    assert fingerprint(a) == hashlib.sha256(b"serverless_gc matrix 1 dense <f8 2 3" + tile).hexdigest()
    assert fingerprint(a) == "4b1acaa867d7f5c51165b7abf22faae8ea9a3b306b73bdda89ad0e48569efde3"
