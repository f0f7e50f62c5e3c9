"""Data kept under a name: found again by another session, stored once, gone on with, never half of one and another."""

import numpy as np
import pytest
import scipy.sparse as sp

import serverless_gc as sgc
from serverless_gc import background
from serverless_gc.codes.manifests import manifest_to_bytes
from serverless_gc.errors import CorruptObject, InputError, LimitError, ObjectNotFound, StoreError
from serverless_gc.limits import Limits
from serverless_gc.store import LocalStore, MemoryStore, S3Store, StoreWrapper

KINDS = {
    "coded": {"code": "mds", "n_workers": 6, "k": 4},
    "polar": {"code": "polar", "n_workers": 8, "k": 6},
    "random": {"code": "lt", "n_workers": 12, "k": 4},
    "several-messages": {"code": "uc-mmc", "n_workers": 6},
    "gradient": {"code": "frc", "n_workers": 6, "stragglers": 2},
    "encoded": {"code": "encoded", "n_workers": 8},
    "polynomial": {"code": "lcc-mmc", "n_workers": 8, "k": 3},
}
SQUARES = {"encoded", "polynomial"}  # they keep what they need of y


class Watched(StoreWrapper):
    """Counts what is written, and fails from the n-th write on."""

    def __init__(self, inner, fails_at=None):
        super().__init__(inner)
        self.fails_at = fails_at
        self.puts = []

    async def put(self, key, data, *, if_absent=False):
        if self.fails_at is not None and len(self.puts) >= self.fails_at:
            raise StoreError(f"the machine of {key} is off", key=key)
        self.puts.append(key)
        return await super().put(key, data, if_absent=if_absent)

    def written(self, part="kept/"):
        return [key for key in self.puts if key.startswith(part)]


@pytest.fixture
def shelf(request, tmp_path):
    """A store that outlives sessions; of S3, a new one for each session as in another process."""
    if request.param == "s3":
        endpoint, bucket = request.getfixturevalue("s3_bucket")
        return lambda: S3Store(bucket, "sgc", region="us-east-1", endpoint=endpoint)
    kept = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "kept")
    return lambda: kept


@pytest.fixture
def memory():
    return MemoryStore()


def problem(rows=40, columns=5, seed=0):
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((rows, columns)), rng.standard_normal(columns)
    return X, rng.standard_normal(rows), w


def check(data, kind, w, expected):
    """Compare a gradient; encoded optimization's is an estimate unless all workers are waited for."""
    wait = {"wait": KINDS[kind]["n_workers"]} if kind == "encoded" else {}
    np.testing.assert_allclose(data.gradient(w, **wait), expected, rtol=1e-6, atol=1e-8)


def keys_of(store, prefix=""):
    async def listed():
        try:
            return [info.key async for info in store.list(prefix)]
        finally:
            await store.close()

    return background.run(listed())


@pytest.mark.parametrize(
    ("shelf", "kind"),
    [("memory", kind) for kind in KINDS]
    + [(where, kind) for where in ("folder", "s3") for kind in ("coded", "gradient")],
    indirect=["shelf"],
)
def test_what_one_session_kept_another_opens_without_the_matrix(shelf, kind):
    X, y, w = problem()
    expected = X.T @ (X @ w - y)
    with sgc.Session(store=shelf()) as first:
        made = first.encode(X, y, name="numbers", **KINDS[kind])
        assert made.name == "numbers"
        check(made, kind, w, expected)
    second_store = Watched(shelf())
    with sgc.Session(store=second_store) as second:
        data = second.open("numbers") if kind in SQUARES else second.open("numbers", y)
        assert (type(data), data.n_rows, data.n_cols) == (type(made), 40, 5)
        assert manifest_to_bytes(data.code.manifest()) == manifest_to_bytes(made.code.manifest())
        check(data, kind, w, expected)
        if kind in {"coded", "polar", "random"}:
            np.testing.assert_allclose(data.matvec(w), X @ w, rtol=1e-9, atol=1e-9)
        assert second_store.written() == []
    assert keys_of(shelf(), "runs/") == []
    assert keys_of(shelf(), "kept/") != []


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_the_same_again_stores_nothing(memory, kind):
    X, y, w = problem()
    with sgc.Session(store=memory) as first:
        first.encode(X, y, name="numbers", **KINDS[kind])
    store = Watched(memory)
    with sgc.Session(store=store) as second:
        data = second.encode(np.asfortranarray(X), y, name="numbers", **KINDS[kind])
        assert store.puts == []
        check(data, kind, w, X.T @ (X @ w - y))
        assert store.written() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_upload_is_never_opened_and_goes_on_where_it_stopped(memory, kind):
    X, y, w = problem()
    whole = MemoryStore()
    with sgc.Session(store=whole) as s:
        s.encode(X, y, name="numbers", **KINDS[kind])
    keys = sorted(keys_of(whole))
    for stop in (0, 1, len(keys) // 2, len(keys) - 1):
        memory = MemoryStore()
        broken = Watched(memory, fails_at=stop)
        with sgc.Session(store=broken) as s, pytest.raises(StoreError, match="is off"):
            s.encode(X, y, name="numbers", **KINDS[kind])
        assert len(broken.written()) == stop
        said = "not stored to the end" if stop else "no data set 'numbers'"
        with sgc.Session(store=memory) as s, pytest.raises(InputError, match=said):
            s.open("numbers", y)
        again = Watched(memory)
        with sgc.Session(store=again) as s:
            check(s.encode(X, y, name="numbers", **KINDS[kind]), kind, w, X.T @ (X @ w - y))
        assert sorted(keys_of(memory)) == keys
        # What was there already was passed over.
        assert sorted(broken.written() + again.written()) == keys


def test_a_block_that_was_damaged_meanwhile_is_stored_again_and_no_other(memory):
    X, y, _ = problem()
    broken = Watched(memory, fails_at=5)
    with sgc.Session(store=broken) as s, pytest.raises(StoreError, match="is off"):
        s.encode(X, y, name="numbers", **KINDS["coded"])
    damaged = next(key for key in broken.puts if "/rows/" in key)
    whole = bytes(background.run(memory.get(damaged)))
    other = whole[:12] + bytes(4) + whole[16:]  # as long, with another checksum
    background.run(memory.put(damaged, other))
    again = Watched(memory)
    with sgc.Session(store=again) as s:
        s.encode(X, y, name="numbers", **KINDS["coded"])
    assert damaged in again.puts
    assert not set(again.puts) & (set(broken.puts) - {damaged})
    assert bytes(background.run(memory.get(damaged))) == whole


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"X": 1}, "another fingerprint"),
        ({"k": 3}, "another code"),
        ({"code": "polar"}, "another code"),
        ({"dtype": np.float32}, "another dtype"),
        ({"rows": 41}, "another shape and another fingerprint"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_other_data_under_a_name_that_is_taken_are_refused_before_anything_is_stored(memory, change, said, whole):
    X, y, _ = problem()
    with sgc.Session(store=Watched(memory, None if whole else 3)) as s:
        try:
            s.encode(X, y, name="numbers", **KINDS["coded"])
        except StoreError:
            assert not whole
    before = {key: bytes(background.run(memory.get(key))) for key in keys_of(memory)}
    options = {"X": 0, "rows": 40, **KINDS["coded"], **change}
    X, y, _ = problem(options.pop("rows"), seed=options.pop("X"))
    refused = f"(?s){said}.*Choose another name, or delete that one"
    with sgc.Session(store=memory) as s, pytest.raises(InputError, match=refused):
        s.encode(X, y, name="numbers", **options)
    assert {key: bytes(background.run(memory.get(key))) for key in keys_of(memory)} == before


@pytest.mark.parametrize("kind", sorted(SQUARES))
def test_least_squares_data_are_held_to_the_targets_that_they_keep(memory, kind):
    X, y, _ = problem()
    with sgc.Session(store=memory) as s:
        s.encode(X, y, name="numbers", **KINDS[kind])
        with pytest.raises(InputError, match="another y"):
            s.encode(X, y + 1, name="numbers", **KINDS[kind])
        with pytest.raises(InputError, match="another y"):
            s.open("numbers", y + 1)
        s.open("numbers", y)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_taken_up_by_the_opened_set_and_not_with_other_targets(memory, tmp_path, kind):
    X, y, w = problem()
    options = {"method": "gradient-descent", "lr": 1e-3, "tolerance": 0, "checkpoint": tmp_path / "state"}
    with sgc.Session("simulated", store=memory) as s:
        sgc.minimize(s.encode(X, y, name="numbers", **KINDS[kind]), w, max_rounds=2, **options)
    store = Watched(memory)
    with sgc.Session("simulated", store=store) as s:
        data = s.open("numbers") if kind in SQUARES else s.open("numbers", y)
        fit = sgc.minimize(data, w, max_rounds=4, **options)
        assert (fit.resumed_at, fit.steps) == (2, 4)
        assert store.written() == []
        with pytest.raises(InputError, match="of a run with other settings: y was"):
            sgc.minimize(s.encode(X, y + 1, **KINDS[kind]), w, max_rounds=6, **options)


def test_products_alone_are_kept_too_and_columns_are_added_when_they_are_needed(memory):
    X, y, w = problem()
    with sgc.Session(store=memory) as s:
        s.encode(X, name="numbers", **KINDS["coded"])
    with sgc.Session(store=memory) as s:
        data = s.open("numbers", y)
        np.testing.assert_allclose(data.matvec(w), X @ w)
        with pytest.raises(InputError, match=r"rows of X only.*encode it once more with y"):
            data.gradient(w)
        s.encode(X, y, name="numbers", **KINDS["coded"])
        np.testing.assert_allclose(s.open("numbers", y).gradient(w), X.T @ (X @ w - y))


def test_sparse_complex_and_single_precision_data_come_back_as_they_were(memory):
    X, y, w = problem()
    sparse = sp.csr_array(np.where(X > 1, X, 0))
    with sgc.Session(store=memory) as s:
        s.encode(sparse, y, name="sparse", code="mds", n_workers=6, k=4, allow_fill=True)
        s.encode(X + 1j * X[::-1], name="complex", **KINDS["coded"])
        s.encode(X, y, name="single", dtype=np.float32, **KINDS["gradient"])
    with sgc.Session(store=memory) as s:
        np.testing.assert_allclose(s.open("sparse", y).gradient(w), sparse.T @ (sparse @ w - y))
        np.testing.assert_allclose(s.open("complex").matvec(w), (X + 1j * X[::-1]) @ w)
        np.testing.assert_allclose(s.open("single", y).gradient(w), X.T @ (X @ w - y), rtol=1e-4)
        assert sorted((kept.name, kept.whole) for kept in s.kept()) == [
            ("complex", True),
            ("single", True),
            ("sparse", True),
        ]


def test_labels_of_a_kept_set_are_kept_and_weights_are_not(memory):
    X, y, w = problem()
    weights = np.linspace(1, 2, len(y))
    with sgc.Session(store=memory) as s:
        data = s.encode(X, y, name="numbers", **KINDS["gradient"])
        kept = set(keys_of(memory, "kept/"))
        assert any("/labels-" in key for key in kept)
        data.gradient(w, sample_weight=weights)
        assert set(keys_of(memory, "kept/")) == kept
    assert keys_of(memory, "runs/") == []
    with sgc.Session(store=memory) as s:  # other labels are stored beside the first ones
        np.testing.assert_allclose(s.open("numbers", -y).gradient(w), X.T @ (X @ w + y))
    assert set(keys_of(memory, "kept/")) > kept


@pytest.mark.parametrize("kind", KINDS)
def test_closing_lets_go_of_what_is_kept(memory, kind):
    X, y, _ = problem()
    with sgc.Session(store=memory) as s:
        data = s.encode(X, y, name="numbers", **KINDS[kind])
        before = keys_of(memory)
        data.close()
        assert keys_of(memory) == before
        data = s.encode(X, y, name="numbers", **KINDS[kind])
        data.delete()
        assert keys_of(memory) == []


def test_closing_lets_go_and_deleting_deletes(memory):
    X, y, w = problem()
    with sgc.Session(store=memory) as s:
        data = s.encode(X, y, name="numbers", **KINDS["coded"])
        data.close()
        with pytest.raises(sgc.ServerlessGCError, match="let go or deleted"):
            data.matvec(w)
        store = s.encode(X, y, name="numbers", **KINDS["coded"])  # found again
        other = s.encode(X, y, **KINDS["coded"])  # the same without a name is a set of its own
        store.delete()
        assert keys_of(memory, "kept/") == []
        np.testing.assert_allclose(other.matvec(w), X @ w)
        other.delete()
        assert [key for key in keys_of(memory) if "/data/" in key] == []
        with pytest.raises(InputError, match=r"no data set 'numbers' is kept in memory://.*there are: none"):
            s.open("numbers")
        with pytest.raises(InputError, match="no data set 'numbers'"):
            s.delete("numbers")


def test_half_a_set_is_listed_as_such_and_can_be_deleted(memory):
    X, y, _ = problem()
    with sgc.Session(store=Watched(memory, fails_at=4)) as s, pytest.raises(StoreError):
        s.encode(X, y, name="half", **KINDS["coded"])
    with sgc.Session(store=memory) as s:
        (half,) = s.kept()
        assert (half.name, half.whole, half.objects) == ("half", False, 4)
        assert "40 x 5 float64, mds with 6 workers and k = 4" in half.what
        s.delete("half")
        assert s.kept() == []
    assert keys_of(memory) == []


def test_a_missing_or_exchanged_block_is_found_when_the_set_is_opened(memory):
    X, y, _ = problem()
    with sgc.Session(store=memory) as s:
        s.encode(X, y, name="numbers", **KINDS["coded"])
        s.encode(X + 1, y, name="others", **KINDS["coded"])
    block = "kept/numbers/rows/00002"
    mine = background.run(memory.get(block))
    theirs = background.run(memory.get("kept/others/rows/00002"))
    assert len(mine) == len(theirs)
    with sgc.Session(store=memory) as s:
        background.run(memory.put(block, theirs))
        with pytest.raises(ObjectNotFound, match=f"1 of 6 objects .* not those that were stored, the first is {block}"):
            s.open("numbers", y)
        background.run(memory.delete([block]))
        with pytest.raises(ObjectNotFound, match=block):
            s.open("numbers", y)
        s.encode(X, y, name="numbers", **KINDS["coded"])  # what is missing is stored again
        assert bytes(background.run(memory.get(block))) == bytes(mine)
        background.run(memory.put("kept/numbers/manifest", b"not a manifest"))
        with pytest.raises(CorruptObject, match=r"session\.delete\('numbers'\)"):
            s.open("numbers", y)


@pytest.mark.parametrize("backend", ["local", "processes", "simulated"])
def test_a_store_that_ends_with_its_session_keeps_nothing(backend):
    X, y, _ = problem()
    with sgc.Session(backend) as s, pytest.raises(InputError, match=r"own store ends with it: give one that lasts"):
        s.encode(X, y, name="numbers", **KINDS["coded"])


@pytest.mark.parametrize("name", ["a/b", ".hidden", "x" * 101, "ü", 7])
def test_a_name_is_refused_that_no_key_could_have(memory, name):
    X, y, _ = problem()
    with sgc.Session(store=memory) as s:
        for ask in (lambda: s.encode(X, y, name=name), lambda: s.open(name), lambda: s.delete(name)):
            with pytest.raises(InputError, match="name must be up to 100 letters"):
                ask()
    assert keys_of(memory) == []


def test_what_would_not_fit_a_function_takes_no_name(memory):
    X, y, _ = problem()
    with sgc.Session(store=memory, limits=Limits(function_bytes=1000)) as s, pytest.raises(LimitError):
        s.encode(X, y, name="numbers", **KINDS["coded"])
    assert keys_of(memory) == []


@pytest.mark.parametrize(
    ("X", "options", "said"),
    [
        (sp.eye_array(40, 5).tocsr(), {"code": "encoded", "n_workers": 8}, "must be dense"),
        (np.ones((40, 5)), {"code": "lcc-mmc", "n_workers": 8, "k": 3, "degree": 3}, "need degree=2"),
        (np.full((40, 5), 3.3e38), {"code": "polar", "n_workers": 8, "dtype": np.float32}, "float32"),
    ],
)
def test_what_is_refused_late_takes_no_name_either(memory, X, options, said):
    with sgc.Session(store=memory) as s, pytest.raises(InputError, match=said):
        s.encode(X, np.ones(40), name="numbers", **options)
    assert keys_of(memory) == []


def test_a_set_that_somebody_else_deleted_meanwhile_is_stored_again(memory):
    X, y, w = problem()
    with sgc.Session(store=memory) as s:
        for kind in ("coded", "gradient"):
            stale = s.encode(X, y, name=kind, **KINDS[kind])
            with sgc.Session(store=memory) as other:
                other.delete(kind)
            check(s.encode(X, y, name=kind, **KINDS[kind]), kind, w, X.T @ (X @ w - y))
            with pytest.raises(sgc.ServerlessGCError, match="let go or deleted"):
                stale.gradient(w)
    with sgc.Session(store=memory) as s:
        check(s.open("coded", y), "coded", w, X.T @ (X @ w - y))


def test_two_sessions_that_take_one_name_for_other_data_at_once_do_not_mix(memory):
    X, y, w = problem()

    async def race():
        import asyncio

        async with sgc.Session(store=memory) as one, sgc.Session(store=memory) as two:
            return await asyncio.gather(
                one.encode_async(X, y, name="numbers", **KINDS["coded"]),
                two.encode_async(X + 1, y, name="numbers", **KINDS["coded"]),
                return_exceptions=True,
            )

    outcomes = background.run(race())
    assert [isinstance(each, InputError) for each in outcomes].count(True) == 1
    mine = X if isinstance(outcomes[1], InputError) else X + 1
    with sgc.Session(store=memory) as s:
        np.testing.assert_allclose(s.open("numbers").matvec(w), mine @ w)


def test_the_gram_matrix_needs_the_matrix_and_says_so(memory):
    X, y, w = problem()
    with sgc.Session(store=memory) as s:
        s.encode(X, y, name="numbers", **KINDS["coded"])
    with sgc.Session(store=memory) as s:
        data = s.open("numbers", y)
        with pytest.raises(InputError, match=r"not after session\.open"):
            data.gradient(w, strategy="gram")
        for _ in range(4):  # "auto" would take it from the third on
            np.testing.assert_allclose(data.gradient(w), X.T @ (X @ w - y))
