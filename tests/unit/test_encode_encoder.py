import asyncio
import gc
import importlib
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import get
from serverless_gc.codes.base import Code
from serverless_gc.encode import as_source, encode_rows, fingerprint, load_encoded, read_manifest, scan, store_encoded
from serverless_gc.errors import CorruptObject, InputError, LimitError, ObjectNotFound, StoreError
from serverless_gc.limits import Limits
from serverless_gc.store.base import ObjectInfo, Store
from serverless_gc.wire import CsrBlock, unpack, unpack_block

blocks_module = importlib.import_module("serverless_gc.encode.blocks")


class Given(Code):
    """A code with a generator given outright; it encodes by the generic rule and decodes nothing."""

    name = "given"

    def __init__(self, n_workers, k, generator):
        super().__init__(n_workers, k)
        self._given = np.asarray(generator, dtype=float)

    def _build_generator(self):
        return self._given.copy()

    def params(self):
        return {"generator": self._given}

    def tracker(self):
        raise NotImplementedError

    def decode(self, values, *, out=None, tolerance=None):
        raise NotImplementedError


def systematic(n, k, seed=0):
    parity = np.random.default_rng(seed).standard_normal((n - k, k))
    return Given(n, k, np.vstack([np.eye(k), parity]))


def plain(n, k, seed=0):
    return Given(n, k, np.random.default_rng(seed).standard_normal((n, k)))


def replication(k, r):
    return Given(k * r, k, np.tile(np.eye(k), (r, 1)))


class DictStore(Store):
    """Objects in a dictionary; counts puts, and fails the put number ``fail_at``."""

    url = "memory://test"

    def __init__(self, fail_at=None):
        self.objects = {}
        self.puts = []
        self.fail_at = fail_at
        self.running = self.peak = 0

    async def get(self, key):
        if key not in self.objects:
            raise ObjectNotFound(f"no object {key}", key=key)
        return self.objects[key]

    async def put(self, key, data, *, if_absent=False):
        self.running += 1
        self.peak = max(self.peak, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        self.puts.append(key)
        if if_absent and key in self.objects:
            return False
        if len(self.puts) == self.fail_at:
            raise StoreError("503 SlowDown", key=key, retryable=True)
        self.objects[key] = b"".join(data) if isinstance(data, list) else bytes(data)
        return True

    async def head(self, key):
        return ObjectInfo(key, len(self.objects[key]), 0.0) if key in self.objects else None

    async def delete(self, keys):
        for key in keys:
            self.objects.pop(key, None)
        return {}

    async def list(self, prefix=""):
        for key in sorted(self.objects):
            if key.startswith(prefix):
                yield ObjectInfo(key, len(self.objects[key]), 0.0)


def dense(block):
    if isinstance(block, CsrBlock):
        return sp.csr_array((block.data, block.indices, block.indptr), shape=block.shape).toarray()
    return block


def reference(x, code, axis):
    """Coded blocks by the definition, in plain loops over blocks."""
    rows = np.asarray(x, dtype=np.result_type(x, np.float64))
    rows = rows.T if axis else rows
    b = -(-rows.shape[0] // code.k)
    padded = np.zeros((code.k * b, rows.shape[1]), dtype=rows.dtype)
    padded[: rows.shape[0]] = rows
    cut = padded.reshape(code.k, b, -1)
    return [sum(code.generator[i, j] * cut[j] for j in range(code.k)) for i in range(code.n_messages)]


def stored(store, encoded):
    return [dense(unpack_block(store.objects[key])) for key in encoded.keys]


# -- what is computed ----------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_equals_the_definition_for_any_shape_layout_and_strip(data):
    m, p = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))
    k = data.draw(st.integers(1, 6))
    axis = data.draw(st.sampled_from([0, 1]))
    kind = data.draw(st.sampled_from(["f8", "f4", "i2", "c16", ">f8"]))
    x = (np.random.default_rng(m * 31 + p).standard_normal((m, p)) * 9).astype(kind)
    layout = data.draw(st.sampled_from(["C", "F", "reversed", "sliced"]))
    if layout == "F":
        x = np.asfortranarray(x)
    elif layout == "reversed":
        x = x[::-1, ::-1]
    elif layout == "sliced":
        x = np.repeat(np.repeat(x, 2, axis=0), 2, axis=1)[::2, ::2]
    code = data.draw(st.sampled_from([systematic(k + 3, k), plain(k + 1, k), replication(k, 2)]))
    least, total = data.draw(st.sampled_from([(1, 64), (5, 640), (40, 640), (90, 640), (2048, 2**24)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "_STRIP_LEAST", least)
        patch.setattr(blocks_module, "_STRIP_BYTES", total)
        made = dict(encode_rows(x, code, axis=axis, max_bytes=data.draw(st.sampled_from([1, 3000, 2**30]))))
    assert sorted(made) == list(range(code.n_messages))
    for i, want in enumerate(reference(x, code, axis)):
        assert made[i].dtype == want.dtype
        np.testing.assert_allclose(made[i], want, rtol=1e-12, atol=1e-12)


def test_worked_polar_example_of_the_specification():
    """N=4, k=2: workers hold X0+X1, X1, X0+X1, X1; the repeated ones are one object."""
    x = np.array([[1, 0], [0, 1], [1, 1], [2, -1]])
    code = Given(4, 2, [[1, 1], [0, 1], [1, 1], [0, 1]])
    made = dict(encode_rows(x, code))
    assert made[0].tolist() == [[2, 1], [2, 0]]
    assert made[1].tolist() == [[1, 1], [2, -1]]
    assert made[2] is made[0]
    assert made[3] is made[1]


def test_data_blocks_of_a_systematic_code_are_views():
    x = np.random.default_rng(0).standard_normal((20, 4))
    for axis, array in ((0, x), (1, np.asfortranarray(x))):
        code = systematic(6, 4)
        made = dict(encode_rows(array, code, axis=axis))
        assert all(np.shares_memory(made[j], array) for j in range(4))
        assert not made[0].flags.writeable
    made = dict(encode_rows(x[:18], systematic(6, 4)))  # the last block is padded
    assert [np.shares_memory(made[j], x) for j in range(4)] == [True, True, True, False]
    assert not made[3][3:].any()
    single = x.astype(np.float32)
    assert np.shares_memory(dict(encode_rows(single, systematic(5, 4), dtype="f4"))[2], single)


def test_transposed_blocks_are_kept_for_the_sums_and_cannot_be_spoilt():
    x = np.random.default_rng(0).standard_normal((30, 20))
    code = systematic(6, 4)
    made = {}
    for message, block in encode_rows(x, code, axis=1):
        made[message] = block
        assert message >= 4 or not block.flags.writeable
    assert np.shares_memory(made[0].base, made[3].base)
    np.testing.assert_allclose(made[5], reference(x, code, 1)[5], rtol=1e-12)


def test_float32_is_rounded_once_from_double_sums():
    x = np.random.default_rng(0).standard_normal((40, 7)).astype(np.float32)
    code = systematic(12, 8)
    for axis in (0, 1):
        made = dict(encode_rows(x, code, axis=axis, dtype=np.float32))
        for i, want in enumerate(reference(x, code, axis)):
            assert made[i].dtype == np.float32
            np.testing.assert_allclose(made[i], want, rtol=2**-23, atol=1e-9)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [0, 1])
def test_files_are_encoded_from_the_mapping(axis, order, tmp_path):
    x = np.asarray(np.random.default_rng(0).standard_normal((37, 20)), order=order)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    code = systematic(6, 4)
    made = dict(encode_rows(mapped, code, axis=axis))
    for i, want in enumerate(reference(x, code, axis)):
        np.testing.assert_allclose(made[i], want, rtol=1e-12)
    assert np.shares_memory(made[0], mapped) == ((order == "C") == (axis == 0))


async def test_sparse_blocks_without_entries_survive_the_store():
    x = sp.csr_array(([2.0], ([1], [0])), shape=(3, 2))
    store, code = DictStore(), systematic(7, 5)
    encoded = await store_encoded(x, code, store, "d")
    for got, want in zip(stored(store, encoded), reference(x.toarray(), code, 0), strict=True):
        np.testing.assert_allclose(got, want)
    assert len(set(encoded.keys)) == 6, "the two blocks of padding alone are one object"


@pytest.mark.parametrize("axis", [0, 1])
def test_frames_of_mixed_types(axis):
    frame = pd.DataFrame({"a": np.arange(11), "b": np.arange(11) % 3 == 0, "c": pd.array(range(11), dtype="Int32")})
    code = systematic(6, 4)
    made = dict(encode_rows(frame, code, axis=axis))
    for i, want in enumerate(reference(frame.to_numpy(dtype=float), code, axis)):
        np.testing.assert_allclose(made[i], want, rtol=1e-12)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_equals_dense(axis, dtype):
    x = sp.csr_array(sp.random(53, 31, 0.15, random_state=2))
    code = systematic(9, 6)
    made = dict(encode_rows(x, code, axis=axis, dtype=dtype, max_bytes=500))
    for i, want in enumerate(reference(x.toarray(), code, axis)):
        assert isinstance(made[i], CsrBlock)
        assert made[i].data.dtype == dtype
        np.testing.assert_allclose(dense(made[i]), want, rtol=1e-6, atol=1e-9)
    if axis == 0 and dtype is np.float64:
        assert np.shares_memory(made[1].data, x.data)


def test_fewer_rows_than_blocks_shares_the_zero_block():
    made = dict(encode_rows(np.arange(1.0, 7).reshape(2, 3), systematic(7, 5)))
    assert made[0].tolist() == [[1, 2, 3]]
    assert made[2] is made[3] is made[4]
    assert not made[2].any()


def test_memory_beyond_the_source_is_bounded(monkeypatch):
    monkeypatch.setattr(blocks_module, "_STRIP_BYTES", 2**18)
    x = np.random.default_rng(0).standard_normal((4096, 256))  # 8 MiB; coded blocks in all: 16 MiB
    source = as_source(x)
    scanned = scan(source)
    code = systematic(48, 16)
    code.generator  # noqa: B018 - built outside of what is measured
    for axis in (0, 1):
        gc.collect()
        tracemalloc.start()
        for _, block in encode_rows(source, code, axis=axis, max_bytes=2**21, scanned=scanned):
            assert block.shape[0] == (256, 16)[axis]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3.2 * 2**20, f"axis {axis}: {peak}"


# -- what is refused -----------------------------------------------------------------------------------


async def test_bad_values_are_refused_before_anything_is_stored():
    x = np.zeros((8, 3))
    x[5, 1] = np.nan
    store = DictStore()
    with pytest.raises(InputError, match="row 5, column 1"):
        await store_encoded(x, systematic(5, 4), store, "d")
    with pytest.raises(InputError, match="row 5"):
        encode_rows(x, systematic(5, 4))
    with pytest.raises(InputError, match=r"times that: more than float32 can hold.*use dtype=float64"):
        await store_encoded(np.full((4, 2), 1e39), replication(2, 1), store, "d", dtype="f4")
    with pytest.raises(InputError, match="adds them up to 3 times"):
        await store_encoded(np.full((4, 2), 1e308), Given(2, 2, [[1, 2], [0, 1]]), store, "d")
    assert store.puts == []


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"axis": 2}, "axis must be 0"),
        ({"dtype": int}, "dtype must be float32 or float64"),
        ({"dtype": "nonsense"}, "dtype must be"),
        ({"dtype": np.complex128}, "is real"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"concurrency": 0}, "concurrency"),
        ({"prefix": "/d"}, "prefix"),
        ({"prefix": ""}, "prefix"),
        ({"limits": Limits(object_bytes=100)}, "larger k"),
    ],
)
async def test_bad_arguments_are_named(options, word):
    store = DictStore()
    options = {"prefix": "d", **options}
    with pytest.raises(InputError, match=word):
        await store_encoded(np.ones((8, 9)), systematic(5, 4), store, **options)
    assert store.puts == []


async def test_sparse_object_above_the_limit_is_refused():
    with pytest.raises(LimitError, match="larger k"):
        await store_encoded(
            sp.csr_array(np.eye(50)), systematic(3, 2), DictStore(), "d", limits=Limits(object_bytes=300)
        )


def test_a_gradient_code_does_not_encode_rows():
    class Partial(Given):
        kind = "gradient"

    with pytest.raises(InputError, match="gradient code"):
        encode_rows(np.eye(2), Partial(2, 2, np.eye(2)))


# -- the store -----------------------------------------------------------------------------------------


async def test_keys_manifest_and_description():
    x = np.random.default_rng(0).standard_normal((10, 7))
    store, code = DictStore(), systematic(6, 4)
    seen = []
    encoded = await store_encoded(x, code, store, "runs/1", on_progress=lambda *a: seen.append(a))
    assert encoded.keys == tuple(f"runs/1/rows/{i:05d}" for i in range(6))
    assert store.puts[-1] == encoded.manifest_key == "runs/1/rows/manifest"
    assert seen == [(i, 6) for i in range(1, 7)]
    assert (encoded.n_rows, encoded.n_cols, encoded.block_shape) == (10, 7, (3, 7))
    assert (encoded.dtype, encoded.sparse, encoded.stored_nnz) == (np.float64, False, 6 * 3 * 7)
    assert encoded.nbytes == sum(len(store.objects[k]) for k in encoded.keys)
    assert encoded.fingerprint == fingerprint(x)
    assert encoded.objects() == (encoded.manifest_key, *encoded.keys)
    for got, want in zip(stored(store, encoded), reference(x, code, 0), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    meta = unpack(store.objects[encoded.keys[5]]).header["meta"]
    assert meta == {"message": 5, "axis": "rows", "matrix": encoded.fingerprint}
    columns = await store_encoded(x, code, store, "runs/1", axis=1)
    assert columns.keys[3] == "runs/1/columns/00003"
    assert columns.block_shape == (2, 10)
    for got, want in zip(stored(store, columns), reference(x, code, 1), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


async def test_replicas_are_stored_once():
    store = DictStore()
    encoded = await store_encoded(np.eye(6), replication(3, 2), store, "d")
    assert encoded.keys == ("d/rows/00000", "d/rows/00001", "d/rows/00002") * 2
    assert len(store.objects) == 4
    assert encoded.stored_nnz == 36
    sparse = await store_encoded(sp.csr_array(np.eye(6)), replication(3, 4), store, "s")
    assert sparse.stored_nnz == 6


async def test_the_same_content_again_uploads_nothing():
    x = np.random.default_rng(0).standard_normal((10, 7))
    store = DictStore()
    first = await store_encoded(x, systematic(6, 4), store, "d")
    written = len(store.puts)
    again = await store_encoded(np.asfortranarray(x), systematic(6, 4), store, "d")
    assert (first.uploaded, again.uploaded, len(store.puts)) == (True, False, written)
    loaded = await load_encoded(store, "d", lambda m: Given(m["n_workers"], m["k"], **m["params"]))
    assert (loaded.keys, loaded.fingerprint, loaded.nbytes) == (first.keys, first.fingerprint, first.nbytes)
    assert np.array_equal(loaded.code.generator, first.code.generator)
    assert loaded.partition == first.partition


async def test_columns_that_no_message_needs_are_not_stored():
    x = np.random.default_rng(0).standard_normal((10, 12))
    store, code = DictStore(), get("short-dot", n_workers=6, k=2)
    encoded = await store_encoded(x, code, store, "d")
    whole = code.encode(x.reshape(2, 5, 12))
    for i, block in enumerate(stored(store, encoded)):
        assert np.array_equal(block, whole[i][:, code.support.columns(i, 12)])
    assert (encoded.stored_nnz, encoded.block_shape) == (6 * 5 * 8, (5, 8))
    assert encoded.nbytes < 6 * (5 * 8 * 8 + 300)
    assert not (await store_encoded(x, code, store, "d")).uploaded
    with pytest.raises(LimitError, match=r"is 5 x 8 float64, 320 bytes; the largest object is 319"):
        await store_encoded(x, code, store, "e", limits=Limits(object_bytes=319))


async def test_a_prefix_is_not_taken_over():
    x = np.random.default_rng(0).standard_normal((10, 7))
    store = DictStore()
    await store_encoded(x, systematic(6, 4), store, "d")
    written = len(store.puts)
    with pytest.raises(InputError, match="another matrix"):
        await store_encoded(x + 1, systematic(6, 4), store, "d")
    with pytest.raises(InputError, match="another matrix or type"):
        await store_encoded(x, systematic(6, 4), store, "d", dtype="f4")
    with pytest.raises(InputError, match=r"encoded with given \(n_workers=6, k=4\)"):
        await store_encoded(x, systematic(6, 4, seed=1), store, "d")
    assert len(store.puts) == written


async def test_half_written_is_not_taken_for_whole():
    x = np.random.default_rng(0).standard_normal((10, 7))
    store = DictStore(fail_at=4)
    with pytest.raises(StoreError, match="SlowDown"):
        await store_encoded(x, systematic(6, 4), store, "d", concurrency=2)
    with pytest.raises(ObjectNotFound):
        await load_encoded(store, "d", systematic(6, 4))
    encoded = await store_encoded(x, systematic(6, 4), store, "d")
    assert encoded.uploaded
    for got, want in zip(stored(store, encoded), reference(x, encoded.code, 0), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("damage", ["missing", "short", "manifest"])
async def test_what_is_no_longer_whole_is_written_again(damage):
    x = np.random.default_rng(0).standard_normal((10, 7))
    store = DictStore()
    encoded = await store_encoded(x, systematic(6, 4), store, "d")
    key = encoded.keys[2]
    if damage == "missing":
        del store.objects[key]
    elif damage == "short":
        store.objects[key] = store.objects[key][:-8]
    else:
        key = encoded.manifest_key
        store.objects[key] = store.objects[key][:-3] + b"xyz"
    with pytest.raises(CorruptObject if damage == "manifest" else ObjectNotFound, match=key):
        await load_encoded(store, "d", systematic(6, 4))
    again = await store_encoded(x, systematic(6, 4), store, "d")
    assert again.uploaded
    assert (await load_encoded(store, "d", systematic(6, 4))).sizes == encoded.sizes


async def test_manifest_holds_what_a_decoder_needs():
    store = DictStore()
    code = systematic(6, 4)
    await store_encoded(np.ones((10, 7)), code, store, "d", axis=1)
    manifest = await read_manifest(store, "d", axis=1)
    assert {k: manifest[k] for k in ("m", "p", "b", "axis", "dtype", "sparse")} == {
        "m": 10,
        "p": 7,
        "b": 2,
        "axis": 1,
        "dtype": "<f8",
        "sparse": False,
    }
    assert np.array_equal(manifest["code"]["params"]["generator"], code.generator)
    store.objects["d/rows/manifest"] = store.objects["d/columns/00000"]
    with pytest.raises(CorruptObject, match="not a manifest"):
        await read_manifest(store, "d")


async def test_writes_are_bounded_and_overlap():
    store = DictStore()
    await store_encoded(
        np.random.default_rng(0).standard_normal((64, 50)), systematic(32, 16), store, "d", concurrency=3
    )
    assert 1 < store.peak <= 3


async def test_cancelling_stops_writing_and_leaves_no_manifest():
    started = asyncio.Event()

    class Slow(DictStore):
        async def put(self, key, data, *, if_absent=False):
            started.set()
            await asyncio.Event().wait()
            return await super().put(key, data, if_absent=if_absent)

    store = Slow()
    task = asyncio.ensure_future(store_encoded(np.ones((64, 5)), systematic(32, 16), store, "d"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.objects == {}
    assert len(asyncio.all_tasks()) == 1
