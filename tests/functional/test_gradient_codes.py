"""Gradients by gradient codes equal NumPy's: every loss and function, layout and number of rows, whoever straggles."""

import gradient_codes
import numpy as np
import pytest
import scipy.sparse as sp
from gradient_cases import LOSSES, close, layouts, problem
from hypothesis import given, settings
from hypothesis import strategies as st

import serverless_gc as sgc
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.worker import losses
from serverless_gc.worker.losses import Loss

CODES = {**gradient_codes.EXACT, "folded": gradient_codes.folded}


@pytest.fixture(scope="module")
def local():
    with sgc.Session("local") as session:
        yield session


@pytest.fixture(scope="module")
def simulated():
    with sgc.Session("simulated", inject=sgc.inject.Stragglers(fraction=0.2, slowdown=10, seed=3)) as session:
        yield session


@pytest.mark.parametrize("backend", ["local", "simulated"])
@pytest.mark.parametrize("name", CODES)
def test_equals_numpy(name, backend, request):
    session, code = request.getfixturevalue(backend), CODES[name]()
    for loss in LOSSES:
        for n in (1, 7, 40):
            X, y, w, expected = problem(loss, n)
            data = session.encode(X, y, code=code)
            value, gradient, report = data.value_and_gradient(w, loss=loss, with_report=True)
            close(gradient, expected)
            assert value == pytest.approx(losses.get(loss).value(X @ w, y), rel=1e-10)
            assert report.balanced
            assert report.error <= 1e-12 * code.k
            assert report.notes == ()
        close(sgc.coded_gradient(X, y, w, code=code, loss=loss, session=session), expected)


def matrices():
    """Any encoding matrix whose rows span the all-ones row, and any placement of its messages."""

    def build(seed, k, n_messages, n_workers, complex_):
        rng = np.random.default_rng(seed)
        B = rng.standard_normal((n_messages, k)) * (rng.random((n_messages, k)) < 0.6)
        if complex_:
            B = B + 1j * rng.standard_normal(B.shape) * (B != 0)
        owners = np.r_[np.arange(n_workers), rng.integers(0, n_workers, n_messages + 1)][: n_messages + 1]
        placement = [np.flatnonzero(owners == worker).tolist() for worker in range(n_workers)]
        return LinearGradientCode(np.vstack([B, 1 - B.sum(axis=0)]), placement=placement)

    sizes = st.tuples(st.integers(1, 6), st.integers(1, 6)).map(sorted)
    return st.tuples(st.integers(0, 10_000), st.integers(1, 9), sizes, st.booleans()).map(
        lambda t: build(t[0], t[1], t[2][1], t[2][0], t[3])
    )


@given(code=matrices(), n=st.integers(1, 12), p=st.integers(1, 4), weighted=st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_placement_and_coefficients_that_count_everything_once_give_the_gradient(local, code, n, p, weighted):
    rng = np.random.default_rng(n)
    X, y, w = rng.standard_normal((n, p)), rng.standard_normal(n), rng.standard_normal(p)
    s = rng.random(n) if weighted else None
    data = local.encode(X, y, code=code)
    value, gradient, report = data.value_and_gradient(w, sample_weight=s, with_report=True)
    r = (X @ w - y) * (1 if s is None else s)
    scale = np.abs(X).T @ np.abs(r) + np.abs(gradient) + 1
    growth = 1 + report.certificate.amplification
    np.testing.assert_array_less(np.abs(gradient - X.T @ r), 1e-11 * scale * growth)
    assert value == pytest.approx(0.5 * r @ (X @ w - y), rel=1e-10 * growth, abs=1e-10 * growth)
    assert report.balanced
    assert report.issued == code.n_workers


@pytest.mark.parametrize("X", [pytest.param(X, id=name) for name, X in layouts()])
def test_layouts_and_dtypes(local, X):
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    dense = dense.astype(complex if dense.dtype.kind == "c" else float)
    y, w = np.linspace(-1, 1, 30), np.linspace(1, 2, 6)
    data = local.encode(X, y, code=gradient_codes.frc())
    close(data.gradient(w), dense.conj().T @ (dense @ w - y))
    assert data.stored_nnz == (X.nnz if sp.issparse(X) else X.size if hasattr(X, "size") else 180)


def test_memmap_and_frame(local, tmp_path):
    import pandas as pd

    X, y, w, expected = problem("squared", 33)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    close(sgc.coded_gradient(mapped, y, w, code=gradient_codes.frc(), session=local), expected)
    frame = pd.DataFrame(X, columns=list("abcde"))
    close(sgc.coded_gradient(frame, pd.Series(y), w, code=gradient_codes.cyclic(), session=local), expected)


def test_multi_output_weights_l2_and_mean(local):
    rng = np.random.default_rng(1)
    X, y, w, s = rng.standard_normal((21, 4)), rng.standard_normal((21, 3)), rng.standard_normal((4, 3)), rng.random(21)
    r = X @ w - y

    def mine(X, y, w, weights):
        r = X @ w - y
        return 0.5 * (weights[:, None] * r**2).sum(), X.T @ (weights[:, None] * r)

    for loss in ("squared", mine):
        data = local.encode(X, y, code=gradient_codes.cyclic())
        value, g = data.value_and_gradient(w, loss=loss, sample_weight=s, l2=0.3, reduction="mean")
        close(g, X.T @ (s[:, None] * r) / 21 + 0.3 * w)
        assert value == pytest.approx(0.5 * (s[:, None] * r**2).sum() / 21 + 0.15 * (w**2).sum(), rel=1e-12)


@pytest.mark.parametrize("make", [gradient_codes.cyclic, gradient_codes.roots_of_unity])
def test_single_precision_halves_what_is_stored_and_sent(local, make):
    X, y, w, expected = problem("squared", 400)
    full, report = local.encode(X, y, code=make()).gradient(w, with_report=True)
    data = local.encode(X, y, code=make(), dtype=np.float32)
    half, single = data.gradient(w, with_report=True)
    close(full, expected)
    assert half.dtype == np.float64
    assert 1e-12 < np.linalg.norm(half - expected) / np.linalg.norm(expected) < 1e-4
    item = data.code.generator.itemsize
    assert single.bytes_down in [n * 5 * item // 2 for n in range(4, 7)]  # a voided result may land all the same
    assert report.bytes_down in [n * 5 * item for n in range(4, 7)]
    assert single.certificate.predicted_error > 1e-8


# -- functions -----------------------------------------------------------------------------------------


class Cubic(Loss):
    """A loss that no worker knows by name."""

    name = "cubic"

    def _terms(self, z, y):
        return np.abs(z - y) ** 3 / 3

    def _slope(self, z, y):
        return (z - y) * np.abs(z - y)


def cubic(X, y, w):
    r = X @ w - y
    return X.T @ (r * np.abs(r))


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, X, y, w):
        return self.factor * cubic(X, y, w)


@pytest.mark.parametrize(
    "loss",
    [cubic, Cubic(), Scaled(1.0), Scaled(np.float64(1.0)).__call__],
    ids=["function", "loss", "object", "method"],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_functions_objects_methods_and_losses_of_ones_own(local, loss, sparse):
    X, y, w, _ = problem("squared", 30)
    given = sp.csr_array(np.where(np.abs(X) > 0.5, X, 0)) if sparse else X
    X = given.toarray() if sparse else X
    for make in (gradient_codes.frc, gradient_codes.two_each, gradient_codes.folded):
        close(sgc.coded_gradient(given, y, w, code=make(), loss=loss, session=local), cubic(X, y, w))


def test_a_flat_parameter_vector_of_any_shape_and_no_labels(local):
    """Means of three components: what is optimized has nothing to do with the columns."""
    rng = np.random.default_rng(2)
    X, centres = rng.standard_normal((50, 2)), rng.standard_normal((3, 2))

    def nearest(X, y, flat):
        assert y is None
        gap = flat.reshape(3, 2)[None] - X[:, None]
        mine = (gap**2).sum(axis=2).argmin(axis=1)
        gradient = np.zeros((3, 2))
        np.add.at(gradient, mine, gap[np.arange(len(X)), mine])
        return gradient.reshape(-1)

    data = local.encode(X, code=gradient_codes.cyclic())
    close(data.gradient(centres.reshape(-1), loss=nearest), nearest(X, None, centres.reshape(-1)))
    with pytest.raises(sgc.InputError, match="encoded without y"):
        data.gradient(np.ones(2))


def broken(how):
    def loss(X, y, w):
        assert len(X) == len(y)
        if how == "raises" and (X[:, 0] == 20).any():
            raise LookupError("row 20 is not in the table")
        if how == "exits":
            raise SystemExit(3)
        if how == "writes":
            w[0] = 1
        return {"shape": w[:-1], "text": "abc", "nan": w * np.nan}.get(how, w)

    return loss


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            "raises",
            r"LookupError: row 20 is not in the table, (first )?on partition 3 \(rows 20\.\.25\) for message [1235]",
        ),
        ("exits", r"SystemExit: 3, first on partition"),
        ("shape", r"gradient of shape \(4,\), w has shape \(5,\)"),
        ("text", r"gradient of dtype <U3, numbers are expected"),
        ("nan", r"gradient that holds NaN or Inf; on partition"),
        ("writes", r"read-only"),
    ],
)
def test_a_broken_function_is_named_with_its_partition_and_not_tried_again(local, how, words):
    X, y, w, _ = problem("squared", 40)
    X[:, 0] = np.arange(40)
    data = local.encode(X, y, code=gradient_codes.cyclic(6, 2, seed=1))
    with pytest.raises(sgc.NotDecodableError, match=words) as caught:
        data.gradient(w, loss=broken(how))
    assert "attempts)" not in str(caught.value)
    assert any("Traceback" in note for note in caught.value.__notes__)
    close(data.gradient(w), X.T @ (X @ w - y))


def test_a_function_that_fails_in_few_workers_is_a_straggler(tmp_path):
    """Partition 0 is held by two workers; in one of them, whichever is first, the function fails."""
    X, y, w, expected = problem("squared", 40)
    first, mark = X[0, 0], tmp_path / "failed"

    def flaky(X, y, w):
        if X[0, 0] == first:
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                raise OSError("once")
        return X.T @ (X @ w - y)

    with sgc.Session(policy=lambda code: sgc.UntilDecodable(code, margin=6)) as s:  # whatever can come is waited for
        gradient, report = s.encode(X, y, code=gradient_codes.frc()).gradient(w, loss=flaky, with_report=True)
    close(gradient, expected)
    assert report.failures == {"function": 1}
    assert report.reasons == {"the loss failed": 1}
    assert report.balanced


def test_the_value_of_a_function_is_asked_for_only_when_wanted(local):
    X, y, w, _ = problem("squared", 30)
    data = local.encode(X, y, code=gradient_codes.frc())
    close(data.gradient(w, loss=cubic), cubic(X, y, w))
    with pytest.raises(sgc.NotDecodableError, match=r"let it return the pair \(value, gradient\)"):
        data.value_and_gradient(w, loss=cubic)


# -- backends ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("backend", ["aws", "processes"])
def test_other_backends(backend, request):
    before = set(request.getfixturevalue("list_bucket")()) if backend == "aws" else set()
    with sgc.Session(backend) as s:
        for name, make in CODES.items():
            X, y, w, expected = problem("logistic", 23)
            close(sgc.coded_gradient(X, y, w, code=make(), loss="logistic", session=s), expected)
            given = sp.csr_array(X) if name == "frc" else X
            data = s.encode(given, y, code=make())
            value, gradient = data.value_and_gradient(w, loss=lambda X, y, w: (float(y.sum()), cubic(X, y, w)))
            close(gradient, cubic(X, y, w))
            assert value == pytest.approx(y.sum())
    if backend == "aws":
        # A function that outlives the session may store its result behind the clean-up.
        left = set(request.getfixturevalue("list_bucket")()) - before
        assert not {key for key in left if "/round/" not in key}


@pytest.mark.usefixtures("aws")
def test_presigned_workers_read_the_function_too():
    X, y, w, _ = problem("squared", 23)
    with sgc.Session("aws", presigned=True) as s:
        close(sgc.coded_gradient(X, y, w, code=gradient_codes.frc(), loss=cubic, session=s), cubic(X, y, w))


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w": np.ones(4)}, "w must have shape"),
        ({"y": np.full(10, 2.0), "loss": "logistic"}, "label"),
        ({"loss": "cubic"}, "cubic"),
        ({"loss": 3}, "loss must be one of"),
        ({"loss": lambda w: w}, r"can be called as loss\(X_part, y_part, w\)"),
        ({"loss": cubic, "sample_weight": np.ones(10)}, r"loss\(X_part, y_part, w, sample_weight\)"),
        ({"loss": lambda *a: a, "sample_weight": np.full(10, -1.0)}, "at least 0, got -1.0 in row 0"),
        ({"loss": lambda *a: a, "sample_weight": np.ones(9)}, "10 numbers, one a row"),
        ({"sample_weight": np.full(10, -1.0)}, "sample_weight"),
        ({"loss": cubic, "w": np.ones(0)}, "w must be a non-empty array"),
        ({"loss": cubic, "w": np.array([1.0, np.nan])}, "w holds NaN or Inf"),
        ({"reduction": "median"}, "reduction"),
        ({"l2": -1.0}, "l2"),
        ({"max_error": -1.0}, "max_error"),
        ({"max_error": np.nan}, "max_error"),
        ({"wait": 0}, "wait"),
        ({"wait": 7}, "wait must be at most the number of workers, 6"),
        ({"on_undecodable": "guess"}, "on_undecodable"),
        ({"deadline": -1.0}, "deadline"),
        ({"X": np.ones((10, 5)) * 1j, "code": gradient_codes.roots_of_unity()}, "complex coefficients"),
        ({"X": np.ones((10, 5)) * 1j, "loss": "logistic"}, "real z"),
        ({"code": "mds", "loss": cubic}, "needs a gradient code"),
        ({"code": "mds", "max_error": 0.1}, "does not go with"),
        ({"code": "mds", "on_undecodable": "approximate"}, "is for gradient codes"),
        ({"code": gradient_codes.frc(), "n_workers": 6}, "brings its own parameters"),
    ],
)
def test_bad_input_is_named_before_anything_runs(local, change, words):
    X, y, w, _ = problem("squared", 10)
    arguments = {"X": X, "y": np.round(np.abs(y)) % 2, "w": w, "code": gradient_codes.frc(), "session": local, **change}
    with pytest.raises(sgc.InputError, match=words):
        sgc.coded_gradient(**arguments)


def test_products_need_a_data_code(local):
    X, y, w, _ = problem("squared", 10)
    with pytest.raises(sgc.InputError, match="gives gradients and no products"):
        sgc.coded_matvec(X, w, code=gradient_codes.frc(), session=local)
    data = local.encode(X, y, code=gradient_codes.frc())
    for product in (data.matvec, data.rmatvec):
        with pytest.raises(sgc.InputError, match="needs a data code"):
            product(w)
