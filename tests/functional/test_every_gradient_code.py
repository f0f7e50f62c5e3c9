"""Every gradient code of the catalog by its name: exact ones equal NumPy, approximate ones err by what they say.

``||g_hat - g|| <= sqrt(error) * ||G||_2`` with ``G`` the matrix of partition gradients, computed here from the rows.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from gradient_cases import close, problem

import serverless_gc as sgc
from serverless_gc.codes import available, get
from serverless_gc.codes.encoded.code import EncodedCode
from serverless_gc.codes.gradient import worst_case
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.registry import code_class
from serverless_gc.stragglers import Constant, GilbertElliott

CLASSES = {info.name: code_class(info.name) for info in available()}
NAMES = [
    info.name
    for info in available()
    if (info.kind == "gradient" or issubclass(CLASSES[info.name], GradientCode))
    and not issubclass(CLASSES[info.name], EncodedCode)  # encoded rows are another problem, of least squares only
]
EXACT = [info.name for info in available() if info.name in NAMES and info.exact]
APPROXIMATE = [name for name in NAMES if name not in EXACT]
SPARES = {"lwpd": (15,), "cpgc": ()}  # workers they can do without, where the code does not say how many


@cache
def made(name):
    return get(name)


@cache
def dropped(name):
    """The worst set of stragglers that the code is made for."""
    code = made(name)
    if name in SPARES:
        return SPARES[name]
    return worst_case(code, code.tolerated if code.exact else code.n_workers - code.awaited).stragglers


def slope(X, y, w):
    """Logistic loss written by hand."""
    z = X @ w
    return X.T @ (1 / (1 + np.exp(-z)) - y)


def partition_gradients(X, y, w, k):
    bounds = [j * len(X) // k for j in range(k + 1)]
    return np.array([slope(X[a:b], y[a:b], w) for a, b in pairwise(bounds)])


def used_messages(code, report):
    slots = {span.slot for span in report.spans if span.fate == "used"}
    return [message for slot in sorted(slots) for message in code.placement(slot)]


def check(name, session, n=40, losses=("logistic", slope), **options):
    """Compute by name, compare with NumPy, and return the last report."""
    X, y, w, expected = problem("logistic", n)
    code = made(name)
    for loss in losses:
        gradient, report = sgc.coded_gradient(
            X, y, w, code=name, loss=loss, session=session, with_report=True, **options
        )
        assert report.check().code == name
        if code.exact and not options:
            close(gradient, expected)
            assert report.error <= 1e-12 * code.k
            assert not [note for note in report.notes if "approximate" in note]
            continue
        decoder = options.get("decoder", "optimal")
        error = code.weights(used_messages(code, report), decoder).error
        assert report.error == pytest.approx(error, rel=1e-9, abs=1e-12)
        G = partition_gradients(X, y, w, code.k)
        bound = np.sqrt(report.error) * np.linalg.norm(G, 2)
        assert np.linalg.norm(gradient - expected) <= bound * (1 + 1e-9) + 1e-10 * np.linalg.norm(expected)
        assert (report.error > 1e-12 * code.k) == any("approximate" in note for note in report.notes)
    return report


@pytest.fixture(scope="module")
def local():
    with sgc.Session("local") as session:
        yield session


@pytest.fixture(scope="module")
def chance():
    with sgc.Session("simulated", inject=sgc.inject.Stragglers(fraction=0.2, slowdown=30, seed=4)) as session:
        yield session


def test_the_catalog_is_all_here():
    assert len(NAMES) >= 20
    assert {"coded-reduce", "lwpd", "clustered", "nested", "ye-abbe", "cpgc", "gc-mmc"} <= set(EXACT)
    assert {"bgc", "graph", "product-gradient", "heterogeneous"} <= set(APPROXIMATE)


@pytest.mark.parametrize("name", NAMES)
def test_local_with_nobody_lost_and_fewer_rows_than_partitions(name, local):
    check(name, local)
    check(name, local, n=7, losses=[slope])
    check(name, local, n=1, losses=[slope])


@pytest.mark.parametrize("name", NAMES)
def test_random_stragglers(name, chance):
    check(name, chance, n=53)


@pytest.mark.parametrize("name", NAMES)
def test_workers_that_are_slow_for_a_few_rounds(name):
    bursts = GilbertElliott(Constant(1.0), Constant(30.0), p=0.1, r=0.4, seed=2)
    with sgc.Session("simulated", delay=bursts) as session:
        for _ in range(4):
            check(name, session, n=33, losses=[slope])


@pytest.mark.parametrize("name", NAMES)
def test_an_adversary_drops_the_worst_workers(name):
    lost = dropped(name)
    faults = sgc.inject.Faults(fail=lost, fail_times=9)
    with sgc.Session(inject=faults, max_attempts=1) as session:
        report = check(name, session)
        assert not {span.slot for span in report.spans if span.fate == "used"} & set(lost)
        check(name, session, n=7, losses=["logistic"])


@pytest.mark.parametrize("name", NAMES)
def test_the_same_workers_are_slow_in_every_round(name):
    """Nobody waits for them: a round takes the second of a prompt worker, or one for each level or message."""
    slow = sgc.inject.Stragglers(fraction=dropped(name), slowdown=1e3, persistent=True)
    with sgc.Session("simulated", delay=Constant(1.0), inject=slow) as session:
        for _ in range(2):
            assert check(name, session, n=33, losses=[slope]).elapsed < 10


@pytest.mark.parametrize("name", APPROXIMATE)
def test_an_adversary_silences_a_third_at_the_deadline(name):
    code = made(name)
    lost = worst_case(code, 1).stragglers + tuple(range(2, 2 + code.n_workers // 3))
    slow = sgc.inject.Stragglers(fraction=lost, slowdown=1e6, persistent=True)
    with sgc.Session("simulated", delay=Constant(1.0), inject=slow) as session:
        options = {"deadline": 10.0, "on_undecodable": "approximate"}
        report = check(name, session, losses=["logistic"], **options)
        assert set(used_messages(code, report)) <= set(range(code.n_messages)) - set(lost)


DECODERS = [
    (name, decoder)
    for name in ["frc", "cyclic", "nested", "coded-reduce", "clustered", *APPROXIMATE]
    for decoder in getattr(CLASSES[name], "methods", ("lstsq", "one-step", "algorithmic"))
]


@pytest.mark.parametrize(("name", "decoder"), DECODERS)
def test_the_decoder_of_choice(name, decoder, local):
    report = check(name, local, losses=["logistic"], decoder=decoder)
    assert report.certificate.method == made(name).weights(used_messages(made(name), report), decoder).method


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"code": "frc", "decoder": "rescaled"}, "decoder must be one that 'frc' has.*got 'rescaled'"),
        ({"code": "bgc", "decoder": 3}, "decoder must be one that 'bgc' has"),
        ({"code": "ye-abbe", "decoder": "one-step"}, "folded messages"),
        ({"code": "mds", "decoder": "one-step"}, "decoder= does not go with 'mds'"),
        ({"code": "lwpd", "decoder": "one-step"}, "'lwpd' gives the exact gradient or none"),
        ({"code": "lwpd", "max_error": 0.1}, "'lwpd' gives the exact gradient or none"),
        ({"code": "lwpd", "on_undecodable": "approximate"}, "'lwpd' gives the exact gradient or none"),
        ({"code": "coded-reduce", "wait": 5}, "children in the tree, 4, got 5"),
    ],
)
def test_what_a_code_does_not_have_is_refused_before_the_round(arguments, words, local):
    X, y, w, _ = problem("logistic", 20)
    with pytest.raises(sgc.InputError, match=words):
        sgc.coded_gradient(X, y, w, loss="logistic", session=local, **arguments)


@pytest.mark.usefixtures("aws")
def test_all_on_s3_and_lambda_in_one_session(list_bucket):
    """The first attempt of worker 0 fails; whatever it stored and whoever combines it, the answer is the same."""
    before = set(list_bucket())
    with sgc.Session("aws", inject=sgc.inject.Faults(fail=[0], fail_times=1)) as session:
        for name in NAMES:
            check(name, session, losses=[slope])
    # A function that outlives the session may store its result behind the clean-up.
    assert not {key for key in set(list_bucket()) - before if "/round/" not in key}


@pytest.mark.usefixtures("aws")
def test_exact_ones_on_s3_and_lambda_without_the_worst_workers():
    for name in EXACT:
        lost = dropped(name)
        with sgc.Session("aws", inject=sgc.inject.Faults(fail=lost, fail_times=9), max_attempts=1) as session:
            report = check(name, session, losses=["logistic"])
            assert not {span.slot for span in report.spans if span.fate == "used"} & set(lost)


@pytest.mark.parametrize("p", [1, 11, 12, 13, 50])
def test_directional_derivatives_of_any_number_of_parameters(p, local):
    """Messages are as long as a block of the parameters, the last of which may be padding."""
    rng = np.random.default_rng(p)
    X, y = rng.standard_normal((30, p)), rng.standard_normal((30, 2))
    w = rng.standard_normal((p, 2))
    data = local.encode(X, y, code="lwpd")
    value, gradient, report = data.value_and_gradient(w, with_report=True)
    close(gradient, X.T @ (X @ w - y))
    assert value == pytest.approx(0.5 * np.sum((X @ w - y) ** 2))
    length = -(-(2 * p + 1) // data.code.k)
    assert report.bytes_down % (8 * length) == 0
    assert report.bytes_down <= 16 * 8 * length
    single = local.encode(X, y, code="lwpd", dtype=np.float32)
    np.testing.assert_allclose(single.gradient(w), gradient, rtol=0, atol=1e-4 * np.linalg.norm(gradient))
    flat = local.encode(X, y, code="lwpd").gradient(
        w.reshape(-1), loss=lambda X, y, v: (X.T @ (X @ v.reshape(-1, 2) - y)).reshape(-1)
    )
    close(flat, gradient.reshape(-1))


def test_directional_derivatives_name_the_blocks_that_are_missing():
    X, y, w, _ = problem("squared", 30)
    with (
        sgc.Session(inject=sgc.inject.Faults(fail=[11], fail_times=9), max_attempts=1) as session,
        pytest.raises(sgc.NotDecodableError, match=r"1 of 12 blocks cannot be reconstructed \(11\)"),
    ):
        session.encode(X, y, code="lwpd").gradient(w)
