import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.base import Code
from serverless_gc.encode import SparseFillWarning, as_source, choose_code_for_sparse, encode_rows, projected_fill
from serverless_gc.errors import InputError


class Given(Code):
    """A code with a generator given outright."""

    name = "given"

    def __init__(self, generator):
        self._given = np.asarray(generator, dtype=float)
        super().__init__(*self._given.shape)

    def _build_generator(self):
        return self._given.copy()

    def tracker(self):
        raise NotImplementedError

    def decode(self, values, *, out=None, tolerance=None):
        raise NotImplementedError


class Replication(Given):
    name = "replication"

    def __init__(self, k, r):
        super().__init__(np.tile(np.eye(k), (r, 1)))


def gaussian(n, k):
    return Given(np.random.default_rng(0).standard_normal((n, k)))


def systematic(n, k):
    return Given(np.vstack([np.eye(k), gaussian(n - k, k).generator]))


def random_csr(m, p, density, seed=0):
    return sp.csr_array(sp.random(m, p, density, random_state=seed))


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_exact_when_every_place_is_looked_at(data):
    m, p = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 20))
    x = random_csr(m, p, data.draw(st.sampled_from([0.1, 0.3, 0.9])), seed=m)
    k = data.draw(st.integers(1, 5))
    code = data.draw(st.sampled_from([gaussian(k + 2, k), systematic(k + 2, k), Replication(k, 3)]))
    axis = data.draw(st.sampled_from([0, 1]))
    if x.nnz:
        kept = list(encode_rows(x, code, axis=axis))  # keeps the blocks alive: their ids tell them apart
        stored = sum({id(block): block.data.size for _, block in kept}.values())
        assert projected_fill(x, code, axis=axis) == pytest.approx(stored / x.nnz)


@pytest.mark.parametrize(
    ("code", "factor"), [(gaussian(64, 48), 62), (systematic(64, 48), 17), (Replication(48, 2), 1)]
)
def test_measured_factors_of_sparse_data(code, factor):
    """The figures of trial A30, on 0.1 % data."""
    assert projected_fill(random_csr(9600, 2000, 1e-3), code) == pytest.approx(factor, rel=0.03)


def test_a_sample_is_close_to_the_whole():
    x = random_csr(40_000, 400, 5e-3)
    code = systematic(64, 48)
    kept = list(encode_rows(x, code))
    stored = sum(block.data.size for _, block in kept)
    assert projected_fill(x, code) == pytest.approx(stored / x.nnz, rel=0.02)


def test_when_the_sample_sees_only_empty_rows_a_bound_is_given(monkeypatch):
    monkeypatch.setattr("serverless_gc.encode.fill._SAMPLE_ENTRIES", 1)
    x = sp.csr_array(([1.0], ([5000], [0])), shape=(10_000, 2))
    assert projected_fill(x, Given([[1, 0], [0, 1], [1, 1], [1, -1]])) == 3.0
    assert projected_fill(sp.csr_array((4, 4)), gaussian(3, 2)) == 1.0


def test_default_choice_keeps_sparse_sparse():
    x = random_csr(9600, 2000, 1e-3)
    mds, copies = systematic(64, 48), Replication(32, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_code_for_sparse(x, [mds, copies]) is copies
        assert choose_code_for_sparse(as_source(x), [copies, mds], axis=1) is copies
        assert choose_code_for_sparse(x, [mds], target=20) is mds
        assert choose_code_for_sparse(x, [], requested=copies) is copies
    with pytest.raises(InputError, match=r"within 4 times the input \(given 1\d\.\d\)"):
        choose_code_for_sparse(x, [Given(mds.generator)])


def test_asking_for_a_dense_code_warns_or_is_refused_with_the_factor():
    x = random_csr(9600, 2000, 1e-3)
    with pytest.warns(SparseFillWarning, match=r"stores 1\d\.\d times the 19200 entries of X"):
        assert choose_code_for_sparse(x, [], requested=systematic(64, 48)).k == 48
    with pytest.raises(InputError, match=r"6\d\.\d times .*allow_fill=True"):
        choose_code_for_sparse(x, [], requested=gaussian(64, 48))
    with pytest.warns(SparseFillWarning):
        choose_code_for_sparse(x, [], requested=gaussian(64, 48), allow_fill=True)


def test_dense_input_is_refused():
    with pytest.raises(InputError, match="X is dense"):
        projected_fill(np.eye(3), gaussian(3, 2))


A30 = """
import asyncio, resource, warnings
resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9))
import numpy as np, scipy.sparse as sp
from serverless_gc.codes.base import Code
from serverless_gc.encode import as_source, choose_code_for_sparse, store_encoded
from serverless_gc.store.base import Store
from serverless_gc.wire import unpack_block

class Given(Code):
    name = "given"
    def __init__(self, g):
        super().__init__(*g.shape)
        self.g = g
    def _build_generator(self):
        return self.g.copy()
    def tracker(self):
        raise NotImplementedError
    def decode(self, values, *, out=None, tolerance=None):
        raise NotImplementedError

class Kept(Store):
    url = "memory://a30"
    def __init__(self):
        self.objects = {}
    async def get(self, key):
        from serverless_gc.errors import ObjectNotFound
        if key not in self.objects:
            raise ObjectNotFound(key, key=key)
        return self.objects[key]
    async def put(self, key, data, *, if_absent=False):
        self.objects[key] = b"".join(data) if isinstance(data, list) else bytes(data)
        return True
    async def head(self, key):
        return None
    async def delete(self, keys):
        return {}
    async def list(self, prefix=""):
        for key in ():
            yield key

m, p, nnz = 200_000, 50_000, 1_000_000
rng = np.random.default_rng(0)
rows, columns = rng.integers(m, size=nnz), rng.integers(p, size=nnz)
X = as_source(sp.csr_array((rng.standard_normal(nnz), (rows, columns)), shape=(m, p)))
dense = Given(np.vstack([np.eye(12), rng.standard_normal((4, 12))]))
copies = Given(np.tile(np.eye(8), (2, 1)))
code = choose_code_for_sparse(X, [dense, copies])
assert code is copies, code
w = rng.standard_normal(p)
z = X.csr().data.sum()  # the source is usable
store = Kept()
for axis, size in ((0, p), (1, m)):
    encoded = asyncio.run(store_encoded(X, code, store, "x", axis=axis))
    assert encoded.stored_nnz < 4 * X.nnz
    v = rng.standard_normal(size)
    whole = X.csr(axis)
    want = sp.csr_array((whole.data, whole.indices, whole.indptr), shape=whole.shape) @ v
    parts = []
    for key in encoded.keys[:8]:
        b = unpack_block(store.objects[key])
        parts.append(sp.csr_array((b.data, b.indices, b.indptr), shape=b.shape) @ v)
    assert np.allclose(encoded.partition.join(np.stack(parts)), want)
# A dense code, asked for: 5 times the entries still fit.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    choose_code_for_sparse(X, [], requested=dense)
encoded = asyncio.run(store_encoded(X, dense, store, "dense", max_bytes=2**26))
print(len(caught), round(encoded.stored_nnz / X.nnz, 1))
"""


def test_a30_large_sparse_matrix_under_an_address_space_limit():
    done = subprocess.run([sys.executable, "-c", A30], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "5.0"]
