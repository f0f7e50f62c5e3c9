"""``coded_matmul`` equals NumPy: every code, stragglers, S3, processes and simulated time; nothing is left behind."""

import asyncio
import dataclasses

import matmul_cases as cases
import numpy as np
import pytest
from gradient_cases import layouts

import serverless_gc as sgc
from serverless_gc import background
from serverless_gc.codes import get
from serverless_gc.limits import DEFAULT_LIMITS

SLOW = sgc.inject.Stragglers(fraction=0.15, slowdown=4, seed=1, base=0.005)
SESSIONS = {
    "local": {},
    "local-stragglers": {"inject": SLOW},
    "aws": {},
    "aws-stragglers": {"inject": SLOW},
    "processes": {},
    "simulated": {"inject": SLOW, "delay": sgc.stragglers.Exponential(1.0)},
}


@pytest.fixture(scope="module", autouse=True)
def activated(running_aws):
    with running_aws.activated():
        yield


@pytest.fixture(scope="module", params=sorted(SESSIONS))
def session(request):
    with sgc.Session(request.param.partition("-")[0], **SESSIONS[request.param]) as session:
        yield session
        # Workers that lost the race are done once every slot has been served again.
        session.encode(np.eye(12), code="uncoded", n_workers=12).matvec(np.ones(12))


@pytest.fixture(scope="module")
def local():
    with sgc.Session("local") as session:
        yield session


def close(C, A, B, accuracy=1e-10):
    exact = np.asarray(A) @ np.asarray(B)
    assert C.shape == exact.shape
    assert C.flags.writeable
    assert C.flags.c_contiguous
    assert np.linalg.norm(C - exact) <= accuracy * np.linalg.norm(exact)


@pytest.mark.parametrize("name", sorted(cases.MATMUL))
def test_equals_numpy(session, name):
    rng = np.random.default_rng(len(name))
    A, B = rng.normal(size=(11, 13)), rng.normal(size=(13, 7))
    C, report = sgc.coded_matmul(A, B, name, session=session, with_report=True, **cases.MATMUL[name])
    close(C, A, B)
    assert C.dtype == np.float64
    assert report.balanced
    assert report.failed == 0
    assert (report.code, report.rounds) == (name, 1)
    assert report.bytes_up > A.nbytes + B.nbytes
    assert report.encode_seconds > 0


@pytest.mark.parametrize("name", sorted(cases.MATMUL))
def test_default_sizes_and_shapes_that_do_not_divide(local, name):
    rng = np.random.default_rng(2)
    for m, inner, c in ((20, 30, 25), (1, 40, 1), (5, 1, 9), (3, 2, 2)):
        A, B = rng.normal(size=(m, inner)), rng.normal(size=(inner, c))
        close(sgc.coded_matmul(A, B, name, session=local), A, B)


MATRICES = {name: X for name, X in layouts() if name not in {"csr", "csc"}}


@pytest.mark.parametrize("layout", MATRICES)
def test_layouts_and_dtypes(local, layout):
    A = np.asarray(MATRICES[layout])
    wide = A.astype(complex if A.dtype.kind == "c" else float)
    B = np.random.default_rng(3).normal(size=(6, 10))
    close(sgc.coded_matmul(MATRICES[layout], B, session=local, n_workers=6, p=2, q=2), wide, B)
    close(sgc.coded_matmul(B.T, wide.T, session=local, n_workers=6, p=2, q=2), B.T, wide.T)
    C = sgc.coded_matmul(MATRICES[layout], B, "polynomial-complex", session=local, n_workers=6, p=2, q=2)
    close(C, wide, B)
    assert C.dtype == (complex if A.dtype.kind == "c" else float)


def test_products_of_complex_matrices_are_not_conjugated(local):
    rng = np.random.default_rng(4)
    A, B = (rng.normal(size=(9, 9)) + 1j * rng.normal(size=(9, 9)) for _ in range(2))
    for name, sizes in cases.MATMUL.items():
        close(sgc.coded_matmul(A, B, name, session=local, **sizes), A, B)


def test_results_by_reference():
    rng = np.random.default_rng(5)
    A, B = rng.normal(size=(80, 20)), rng.normal(size=(20, 90))
    limits = dataclasses.replace(DEFAULT_LIMITS, reply_bytes=24_000)
    with sgc.Session("aws", limits=limits) as s:
        C, report = sgc.coded_matmul(A, B, session=s, n_workers=6, p=2, q=2, with_report=True)
    close(C, A, B)
    assert report.by_reference >= 4


def test_stragglers_are_not_waited_for():
    rng = np.random.default_rng(6)
    A, B = rng.normal(size=(12, 5)), rng.normal(size=(5, 12))
    slow = sgc.inject.Stragglers(fraction=0.2, slowdown=50, seed=3)
    with sgc.Session("simulated", delay=sgc.stragglers.Constant(1.0), inject=slow) as s:
        C, report = sgc.coded_matmul(A, B, session=s, n_workers=20, p=3, q=3, with_report=True)
    close(C, A, B)
    assert report.elapsed < 10
    assert report.voided > 0


def test_the_guard_waits_for_accuracy():
    rng = np.random.default_rng(8)
    A, B = rng.normal(size=(8, 4)), rng.normal(size=(4, 8))
    waited = []
    with sgc.Session("simulated", delay=sgc.stragglers.Exponential(1.0), seed=3) as s:
        for _ in range(12):
            C, report = sgc.coded_matmul(
                A, B, "entangled", session=s, n_workers=50, p=2, q=2, inner=2, with_report=True
            )
            close(C, A, B)
            waited.append(report.used - 9)
    assert 0 in waited, "accurate at once: nobody waits"
    assert max(waited) > 0


def test_a_wrong_worker_is_named_and_left_out():
    rng = np.random.default_rng(7)
    A, B = rng.normal(size=(8, 6)), rng.normal(size=(6, 8))
    for name, sizes in cases.MATMUL.items():
        if name == "polar-matmul":  # at this size no result beyond the source blocks is compared
            continue
        everything = lambda code: sgc.UntilDecodable(code, margin=99)  # noqa: E731
        with sgc.Session(policy=everything, inject=sgc.inject.Faults(wrong=[1])) as s:
            C, report = sgc.coded_matmul(A, B, name, session=s, with_report=True, **sizes)
        close(C, A, B, 1e-9)
        assert any("worker 1 contradicts" in note for note in report.notes), name


def test_nothing_is_left_in_the_bucket(list_bucket):
    A, B = np.eye(8), np.arange(64.0).reshape(8, 8)
    with sgc.Session("aws", inject=SLOW) as s:
        for _ in range(2):
            close(sgc.coded_matmul(A, B, session=s, n_workers=9, p=2, q=3), A, B)

        async def settled():
            resources = await s.resources()
            await resources.settle()
            return resources.run

        prefix = f"sgc/runs/{background.run(settled())}/"
        assert [key for key in list_bucket(prefix) if "/matmul/" in key] == []
        s.encode(np.eye(9), code="uncoded", n_workers=9).matvec(np.ones(9))
    assert list_bucket(prefix) == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: sgc.coded_matmul(np.ones((3, 4)), np.ones((3, 4)), session=s), ["4 columns", "3 rows"]),
        (lambda s: sgc.coded_matmul(np.ones(4), np.ones((4, 3)), session=s), ["A must be a matrix"]),
        (lambda s: sgc.coded_matmul(np.ones((3, 4)), np.ones(4), session=s), ["B must be a matrix"]),
        (lambda s: sgc.coded_matmul(np.ones((0, 4)), np.ones((4, 3)), session=s), ["A must have"]),
        (lambda s: sgc.coded_matmul([["a"]], np.ones((1, 3)), session=s), ["A must be numeric"]),
        (lambda s: sgc.coded_matmul(np.ones((2, 2)), [[1, np.nan], [0, 0]], session=s), ["B", "row 0"]),
        (lambda s: sgc.coded_matmul(dict(layouts())["csr"], np.ones((6, 2)), session=s), ["A is sparse", "toarray"]),
        (lambda s: sgc.coded_matmul(np.eye(3), np.eye(3), "mds", session=s), ["'mds'", "data code", "khatri-rao"]),
        (lambda s: sgc.coded_matmul(np.eye(3), np.eye(3), "khatri", session=s), ["did you mean 'khatri-rao'"]),
        (lambda s: sgc.coded_matmul(np.eye(3), np.eye(3), n_workers=3, p=2, q=2, session=s), ["n_workers", "4"]),
        (lambda s: sgc.coded_matmul(np.eye(3), np.eye(3), "matdot", p=2, session=s), ["'p'", "points"]),
        (
            lambda s: sgc.coded_matmul(np.eye(3), np.eye(3), get("khatri-rao"), p=2, session=s),
            ["code object", "p go with"],
        ),
        (lambda s: sgc.coded_matmul(np.eye(3), np.eye(3), session=s, deadline=-1), ["deadline", "-1"]),
    ],
)
def test_refusals_store_nothing(call, words):
    with sgc.Session("local") as s:
        with pytest.raises(sgc.InputError) as caught:
            call(s)
        for word in words:
            assert word in str(caught.value)

        async def stored():
            resources = await s.resources()
            await resources.settle()
            return [info.key async for info in resources.store.list("")]

        assert background.run(stored()) == []


def test_blocks_beyond_the_largest_object_are_refused():
    limits = dataclasses.replace(DEFAULT_LIMITS, object_bytes=1000)
    with sgc.Session("local", limits=limits) as s, pytest.raises(sgc.InputError, match="block of B is 3200 bytes"):
        sgc.coded_matmul(np.ones((4, 20)), np.ones((20, 40)), session=s, n_workers=6, p=2, q=2)


async def test_the_async_twin(local):
    A, B = np.arange(12.0).reshape(4, 3), np.eye(3)
    results = await asyncio.gather(*(sgc.coded_matmul_async(A, i * B, session=local) for i in range(1, 4)))
    for i, C in enumerate(results, 1):
        close(C, A, i * B)


def test_the_current_session_and_the_default_one():
    A = np.eye(3)
    with sgc.Session("local") as s:
        _, report = sgc.coded_matmul(A, A, code="ortho-matdot", k=2, with_report=True)
        assert report.k == 2
        assert s.closed is False
    close(sgc.coded_matmul(A, A), A, A)


def test_too_few_results_name_what_is_missing():
    with (
        sgc.Session("local", inject=sgc.inject.Faults(fail=[0, 1, 2]), max_attempts=1) as s,
        pytest.raises(sgc.NotDecodableError, match="blocks cannot be reconstructed"),
    ):
        sgc.coded_matmul(np.eye(4), np.eye(4), session=s, n_workers=6, p=2, q=2)
