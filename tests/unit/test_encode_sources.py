import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from serverless_gc.encode import Source, as_source
from serverless_gc.encode import dense as dense_module
from serverless_gc.errors import InputError
from serverless_gc.wire import CsrBlock

BASE = np.random.default_rng(5).standard_normal((14, 9)).round(2) * 8


def layouts():
    big = np.zeros((28, 27))
    big[::2, ::3] = BASE
    negative = BASE[::-1, ::-1].copy()[::-1, ::-1]
    return {
        "C": BASE,
        "F": np.asfortranarray(BASE),
        "sliced": big[::2, ::3],
        "negative": negative,
        "big-endian": BASE.astype(">f8"),
        "nested lists": BASE.tolist(),
        "matrix": BASE.view(np.matrix),
        "unmasked": np.ma.masked_array(BASE),
        "read-only": np.frombuffer(BASE.tobytes()).reshape(BASE.shape),
    }


@pytest.mark.parametrize("layout", sorted(layouts()))
def test_pieces_of_any_layout(layout):
    src = as_source(layouts()[layout])
    assert (src.shape, src.dtype, src.sparse) == ((14, 9), np.float64, False)
    assert np.array_equal(src.rows(3, 8), BASE[3:8])
    assert np.array_equal(src.columns(2, 6), BASE.T[2:6])
    out = np.full((5, 9), np.nan, dtype=np.float32)
    assert src.rows(3, 8, out) is out
    assert np.array_equal(out, BASE[3:8].astype(np.float32))
    assert src.rows(4, 4).shape == (0, 9)
    assert not src.rows(0, 2).flags.writeable or not np.shares_memory(src.rows(0, 2), BASE)


def test_views_of_what_needs_no_conversion():
    assert np.shares_memory(as_source(BASE).rows(2, 5), BASE)
    fortran = np.asfortranarray(BASE)
    assert np.shares_memory(as_source(fortran).columns(2, 5), fortran)
    assert BASE.flags.writeable, "the user's array must stay writable"


@pytest.mark.parametrize(
    ("dtype", "working"),
    [
        ("?", np.float64),
        ("i1", np.float64),
        ("u8", np.float64),
        (">i4", np.float64),
        ("f2", np.float64),
        ("f4", np.float64),
        ("g", np.float64),
        ("c8", np.complex128),
        ("G", np.complex128),
    ],
)
def test_every_numeric_type_is_promoted(dtype, working):
    values = (np.abs(BASE) > 4).astype(dtype) * np.array(1, dtype=dtype)
    src = as_source(values)
    rows = src.rows(0, 14)
    assert src.dtype == rows.dtype == working
    assert np.array_equal(rows, values.astype(working))


def test_large_transposing_copy_goes_by_tiles_and_is_right(monkeypatch):
    monkeypatch.setattr(dense_module, "_TILE", (4, 3))
    assert np.array_equal(as_source(BASE.astype(np.float32)).columns(1, 8), BASE.astype(np.float32).T[1:8])


def test_memmap_is_read_by_pieces(tmp_path):
    np.save(tmp_path / "a.npy", BASE)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    src = as_source(mapped)
    piece = src.rows(2, 4)
    assert type(piece) is np.ndarray
    assert np.shares_memory(piece, mapped)
    assert np.array_equal(piece, BASE[2:4])


@pytest.mark.parametrize("fmt", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_sparse_formats(fmt, kind):
    values = np.where(np.abs(BASE) > 8, BASE, 0)
    given = getattr(sp, f"{fmt}_{kind}")(values)
    src = as_source(given)
    assert src.sparse
    rows, columns = src.rows(3, 9), src.columns(2, 7)
    assert isinstance(rows, CsrBlock)
    assert np.array_equal(dense(rows), values[3:9])
    assert np.array_equal(dense(columns), values.T[2:7])


def dense(block):
    return sp.csr_array((block.data, block.indices, block.indptr), shape=block.shape).toarray()


def test_sparse_duplicates_are_summed_in_the_working_type_and_the_input_is_left_alone():
    coo = sp.coo_array((np.array([100, 100, 1], dtype=np.int8), ([0, 0, 1], [1, 1, 0])), shape=(2, 3))
    assert np.array_equal(dense(as_source(coo).rows(0, 2)), [[0, 200, 0], [1, 0, 0]])
    csr = sp.csr_array((np.array([1.0, 2.0, 3.0]), np.array([2, 2, 0]), np.array([0, 3, 3])), shape=(2, 3))
    block = as_source(csr).rows(0, 2)
    assert block.indices.tolist() == [0, 2]
    assert block.data.tolist() == [3.0, 3.0]
    assert csr.data.tolist() == [1.0, 2.0, 3.0]
    assert csr.data.flags.writeable


def test_canonical_csr_is_not_copied():
    csr = sp.csr_array(np.eye(4))
    assert np.shares_memory(as_source(csr).rows(1, 3).data, csr.data)


def test_broken_sparse_structure_is_refused_not_read():
    csr = sp.csr_array(np.eye(3))
    csr.indices[1] = 77
    with pytest.raises(InputError, match="not a valid sparse matrix"):
        as_source(csr)
    with pytest.raises(InputError, match="out is for dense"):
        as_source(sp.csr_array(np.eye(3))).rows(0, 1, np.zeros((1, 3)))


def test_frames_of_one_type_and_of_many():
    plain = pd.DataFrame(BASE, columns=list("abcdefghi"))
    assert np.array_equal(as_source(plain).rows(0, 14), BASE)
    mixed = pd.DataFrame(
        {
            "i": np.arange(4),
            "b": [True, False, True, True],
            "f": np.array([0.5, 1.5, 2.5, 3.5], dtype=np.float32),
            "n": pd.array([1, 2, 3, 4], dtype="Int64"),
            "m": pd.array([True, False, False, True], dtype="boolean"),
        }
    )
    want = np.array([[0, 1, 0.5, 1, 1], [1, 0, 1.5, 2, 0], [2, 1, 2.5, 3, 0], [3, 1, 3.5, 4, 1]])
    src = as_source(mixed)
    assert src.dtype == np.float64
    assert np.array_equal(src.rows(0, 4), want)
    assert np.array_equal(src.rows(1, 3), want[1:3])
    assert np.array_equal(src.columns(1, 4), want.T[1:4])
    assert src.column_label(2) == "column 'f'"


@pytest.mark.parametrize(
    ("column", "word"),
    [
        (pd.Series(["a", "b"]), "numeric"),
        (pd.Series([Decimal(1), Decimal(2)]), "numeric"),
        (pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02"])), "subtract an origin"),
        (pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02"]).tz_localize("UTC")), "numeric"),
        (pd.Series(["x", "y"], dtype="category"), "get_dummies"),
        (pd.Series(pd.arrays.SparseArray([0.0, 1.0])), "sparse.to_coo"),
    ],
)
def test_other_columns_are_refused_by_name(column, word):
    with pytest.raises(InputError, match=r"column 'bad' of X") as caught:
        as_source(pd.DataFrame({"good": [1, 2], "bad": column}))
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (np.arange(3), r"reshape\(-1, 1\)"),
        (np.zeros((2, 2, 2)), "2 axes"),
        (np.float64(3), "2 axes"),
        (np.zeros((0, 3)), "at least one row"),
        (np.zeros((3, 0)), "at least one row"),
        (sp.csr_array((0, 3)), "at least one row"),
        (np.array([["a", "b"]]), "text"),
        (np.array([[object()]]), "astype"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), "origin"),
        (np.array([[1]], dtype="m8[s]"), "unit"),
        (np.zeros((2, 2), dtype=[("a", float)]), "fields"),
        ([[1, 2], [3]], "cannot be read"),
        (np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]]), "filled"),
        (pd.Series([1.0, 2.0]), "to_frame"),
        (pd.DataFrame(), "at least one row"),
    ],
)
def test_what_is_refused_says_what_to_do(value, word):
    with pytest.raises(InputError, match=word) as caught:
        as_source(value, name="A")
    assert "A" in str(caught.value)


def test_ranges_and_outputs_are_checked():
    src = as_source(BASE)
    for lo, hi in ((-1, 2), (3, 2), (0, 15)):
        with pytest.raises(InputError, match=r"within 0\.\.14"):
            src.rows(lo, hi)
    with pytest.raises(InputError, match=r"within 0\.\.9"):
        src.columns(0, 10)
    with pytest.raises(InputError, match="out must be"):
        src.rows(0, 2, np.zeros((3, 9)))
    with pytest.raises(InputError, match="out must be"):
        src.rows(0, 2, np.zeros((2, 9), dtype=int))


def test_a_source_passes_through():
    src = as_source(BASE, name="design")
    assert as_source(src) is src
    assert isinstance(src, Source)
    assert "design" in repr(src)


def test_dense_input_imports_neither_scipy_nor_pandas():
    code = (
        "import sys, numpy as np, serverless_gc.encode as e; e.fingerprint(np.eye(3)); "
        "print(sorted({'scipy', 'pandas', 'matplotlib', 'tqdm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
