"""Every data code of the catalog, by its name alone: products and gradients equal NumPy's wherever they run."""

from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
from gradient_cases import close, problem

import serverless_gc as sgc
from serverless_gc.codes import available, get
from serverless_gc.codes.peeling.lt import LTCode
from serverless_gc.codes.short_dot import ShortDotCode
from serverless_gc.encode import FILL_TARGET, SparseFillWarning, encode_rows, projected_fill


def of_blocks(info):
    return info.kind in {"data", "multi-message"} and info.exact and get(info.name).target == "blocks"


NAMES = [info.name for info in available() if of_blocks(info)]
SLOW = sgc.inject.Stragglers(fraction=0.2, slowdown=10, seed=3, base=0.002)


def test_the_names():
    assert {
        "ldpc",
        "local-parity",
        "lt",
        "mds",
        "mds-nonsystematic",
        "polar",
        "product",
        "replication",
        "roots-of-unity",
        "rotation",
        "short-dot",
        "uncoded",
    } <= set(NAMES)


@pytest.fixture(scope="module", params=["local", "simulated", "aws"])
def session(request):
    """One session a backend: with stragglers, and over S3 and HTTP."""
    if request.param == "aws":
        with request.getfixturevalue("running_aws").activated(), sgc.Session("aws") as s:
            yield s
            # Workers that lost the race may still be writing: they are done once every slot has been served again.
            s.encode(np.eye(16), code="uncoded").matvec(np.ones(16))
    else:
        with sgc.Session(request.param, inject=SLOW) as s:
            yield s


@pytest.mark.parametrize("name", NAMES)
def test_products_and_gradients_by_name(session, name):
    """Rows that no number of blocks divides; the gradient is of the loss that needs two rounds."""
    X, y, w, expected = problem("logistic", 101)
    z, report = sgc.coded_matvec(X, w, code=name, session=session, with_report=True)
    close(z, X @ w)
    assert z.dtype == np.float64
    assert report.balanced
    assert report.failed == 0
    close(sgc.coded_gradient(X, y, w, code=name, loss="logistic", session=session), expected)


@pytest.fixture(scope="module")
def local():
    with sgc.Session("local") as s:
        yield s


@pytest.mark.parametrize("name", NAMES)
def test_other_types_and_shapes(local, name):
    """Columns, complex data, single precision in the blocks, integers, columns first, fewer rows than blocks."""
    rng = np.random.default_rng(2)
    X, W = rng.standard_normal((49, 7)), rng.standard_normal((7, 3))
    data = local.encode(X, np.zeros((49, 3)), code=name)
    close(data.matvec(W), X @ W)
    close(data.rmatvec(X @ W), X.T @ (X @ W))
    close(data.gradient(W), X.T @ (X @ W))

    Z = X + 1j * rng.standard_normal(X.shape)
    close(sgc.coded_matvec(Z, W, code=name, session=local), Z @ W)
    close(sgc.coded_gradient(Z, np.ones(49), W[:, 0], code=name, session=local), Z.conj().T @ (Z @ W[:, 0] - 1))
    close(data.matvec(W[:, 0] * 1j), X @ W[:, 0] * 1j)

    single = local.encode(X, code=name, dtype=np.float32).matvec(W)
    np.testing.assert_allclose(single, X @ W, atol=2e-4 * np.linalg.norm(X @ W))

    whole = rng.integers(-9, 9, (33, 5))
    close(sgc.coded_matvec(np.asfortranarray(whole), np.arange(5), code=name, session=local), whole @ np.arange(5.0))
    close(sgc.coded_matvec(X[:2], W, code=name, session=local), X[:2] @ W)


@pytest.mark.parametrize("name", NAMES)
def test_sparse_data(local, name):
    """Every code takes it where the growth is accepted, but those whose blocks cannot be sparse."""
    X = sp.random_array((203, 40), density=0.02, rng=np.random.default_rng(4), format="csr")
    w = np.linspace(-1, 1, 40)
    code = get(name)
    if code.needs_whole_rows:
        with pytest.raises(sgc.InputError, match=f"{name}.*sparse"):
            local.encode(X, code=name, allow_fill=True)
        return
    grows = max(projected_fill(X, code, axis=axis) for axis in (0, 1)) > FILL_TARGET
    with pytest.warns(SparseFillWarning) if grows else nullcontext():
        data = local.encode(X, np.zeros(203), code=name, allow_fill=True)
        close(data.matvec(w), X @ w)
        close(data.gradient(w), X.T @ (X @ w))


@pytest.mark.filterwarnings("ignore::serverless_gc.encode.SparseFillWarning")
@pytest.mark.parametrize(("name", "growth"), [("lt", 20), ("product", 5)])
def test_sparse_blocks_stay_sparse(local, name, growth):
    """Sums of few blocks: these codes need no permission."""
    X = sp.random_array((2000, 400), density=0.001, rng=np.random.default_rng(5), format="csr")
    data = local.encode(X, code=name)
    assert X.nnz < data.stored_nnz < growth * X.nnz
    close(data.matvec(np.arange(400.0)), X @ np.arange(400.0))


def test_equal_coefficients_of_short_dot_are_not_equal_messages():
    """Here the blocks enter every message alike, and only the fillers differ."""
    code = ShortDotCode(3, 1, threshold=2, matrix=[[1, 1], [1, 2], [1, 3]])
    X = np.arange(1.0, 13.0).reshape(2, 6)
    made = dict(encode_rows(X, code))
    for i in range(3):
        np.testing.assert_allclose(made[i], code.encode(X[None])[i][:, code.support.columns(i, 6)])
    close(sgc.coded_matvec(X, np.ones(6), code=code), X.sum(axis=1))
    close(sgc.coded_matvec(np.asfortranarray(X), np.ones(6), code=code), X.sum(axis=1))


def test_fillers_of_short_dot_count_against_overflow():
    code = get("short-dot", n_workers=8, k=2)
    signs = [np.array([[[1.0]], [[sign]]]) * np.ones((2, 1, 8)) for sign in (1.0, -1.0)]
    most = max(np.abs(code.encode(blocks)).max() for blocks in signs)
    assert code.growth == pytest.approx(most)
    with pytest.raises(sgc.InputError, match="more than float32 can hold"):
        next(encode_rows(np.full((2, 8), 3.4e38 / code.growth * 1.1), code, dtype=np.float32))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("order", ["C", "F"])
def test_short_dot_in_strips(axis, order, monkeypatch):
    """Cut along rows only: the columns of a strip are all there, and then those that a message needs are kept."""
    monkeypatch.setattr("serverless_gc.encode.blocks._STRIP_BYTES", 2**10)
    monkeypatch.setattr("serverless_gc.encode.blocks._STRIP_LEAST", 1)
    code = get("short-dot", n_workers=6, k=2)
    X = np.random.default_rng(0).standard_normal((41, 23))
    blocks = np.zeros((2, 21, 23)) if axis == 0 else np.zeros((2, 12, 41))
    rows = X if axis == 0 else X.T
    for j, part in enumerate(np.split(rows, [blocks.shape[1]])):
        blocks[j, : len(part)] = part
    expected = code.encode(blocks)
    for i, block in encode_rows(np.asarray(X, order=order), code, axis=axis):
        kept = expected[i][:, code.support.columns(i, rows.shape[1])]
        np.testing.assert_allclose(block, kept, atol=1e-12 * np.abs(expected).max())


class NeverDense(LTCode):
    """At 10,000 blocks the dense generator would take 1.2 GB."""

    def _build_generator(self):
        raise AssertionError("the dense generator was asked for")


def test_ten_thousand_blocks_are_encoded_from_the_sparse_equations():
    X = np.random.default_rng(0).standard_normal((20_000, 5))
    # How far a set that just suffices amplifies rounding, up to 1e-8 here, is a matter of who was fast: take them all.
    with sgc.Session("local", policy=lambda _: sgc.policies.WaitAll()) as session:
        data = session.encode(X, code=NeverDense(16, 10_000))
        close(data.matvec(np.ones(5)), X.sum(axis=1))
    thin = sp.random_array((10_000, 300), density=1e-4, rng=np.random.default_rng(1), format="csr")
    made = dict(encode_rows(thin, code := NeverDense(16, 10_000)))
    for i in range(0, code.n_messages, 1500):
        np.testing.assert_allclose(made[i].data.sum(), thin[list(code.sources(i))].sum())


@pytest.mark.parametrize("name", [info.name for info in available() if info.kind == "matmul"])
def test_codes_of_other_things_are_refused_by_name(local, name):
    with pytest.raises(sgc.InputError, match=f"{name}.* code"):
        local.encode(np.eye(4), code=name)
