"""Partial results through the whole runtime: what a slow worker has done counts, and nobody waits for the rest."""

import asyncio

import boto3
import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc import background
from serverless_gc.codes import LinearCode, get
from serverless_gc.stragglers import Constant
from serverless_gc.testing.offline_aws import offline_aws
from serverless_gc.worker import kernels

rng = np.random.default_rng(0)
A, X = rng.normal(size=(85, 5)), rng.normal(size=5)

BACKENDS = ["local", "processes", "aws", "simulated"]
N, R = 6, 4


@pytest.fixture(scope="module")
def lively_aws():
    """S3 and Lambda where workers that sleep on purpose do not keep others from running."""
    with offline_aws(threads=16, activate=False) as aws:
        yield aws


@pytest.fixture(params=BACKENDS)
def backend(request):
    if request.param != "aws":
        yield request.param
        return
    with request.getfixturevalue("lively_aws").activated():
        yield "aws"


def close(z, expected):
    np.testing.assert_allclose(z, expected, rtol=1e-10, atol=1e-11)


def slow(slots, factor=10, base=0.08):
    return sgc.inject.Stragglers(fraction=slots, slowdown=factor, base=base)


def test_products_equal_numpy_and_counts_add_up(backend):
    with sgc.Session(backend, inject=slow({2})) as s:
        data = s.encode(A, code="uc-mmc", n_workers=N, r=R)
        for x in (X, np.outer(X, [1.0, -2.0])):
            z, report = data.matvec(x, with_report=True)
            close(z, A @ x)
            assert report.check().issued == N
            assert report.failed == 0
            assert report.code == "uc-mmc"


def test_first_messages_of_slow_workers_are_used(backend):
    """Blocks 2 and 3 are at workers 2 and 3 only, first in line; what these do afterwards nobody waits for."""
    code = LinearCode(np.eye(4), placement=[(0, 1), (1, 0), (2, 0, 1), (3, 1, 0)])
    with sgc.Session(backend, inject=slow({2, 3}, factor=15)) as s:  # messages of 0.4 s, tasks of 1.2 s
        data = s.encode(A, code=code, publish=1)
        z, report = data.matvec(X, with_report=True)
    close(z, A @ X)
    assert report.check().issued == 4
    assert (report.used, report.voided, report.failed) == (2, 2, 0)
    assert report.partial_messages == 2
    assert "and 2 messages of unfinished tasks" in str(report)
    assert (report.polls > 0) == (backend != "simulated") == ("looks for partial results" in str(report))


def test_without_publish_the_same_workers_are_waited_for():
    code = LinearCode(np.eye(4), placement=[(0, 1), (1, 0), (2, 0, 1), (3, 1, 0)])
    with sgc.Session("simulated", delay=Constant(3.0), inject=slow({2, 3})) as s:
        whole = s.encode(A, code=code).matvec(X, with_report=True)[1]
        parts = s.encode(A, code=code, publish=1).matvec(X, with_report=True)[1]
        pairs = s.encode(A, code=code, publish=2).matvec(X, with_report=True)[1]
    times = [report.decodable[i] for i, report in enumerate((whole, parts, pairs), 1)]
    # The clock goes on from round to round: 30 s, a third of that, two thirds of it.
    assert np.diff([0.0, *times]) == pytest.approx([30.0, 10.0, 20.0])
    assert (whole.partial_messages, parts.partial_messages) == (0, 2)
    assert pairs.partial_messages == 4  # two messages in a part


def test_a_worker_that_dies_has_not_worked_in_vain(monkeypatch):
    """Worker 0 fails at its second message; block 0, its first, is nowhere else."""
    code = LinearCode([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], placement=[(0, 3), (1, 2), (2, 1)])
    blocks = np.concatenate([A, np.zeros((2, 5))]).reshape(3, 29, 5)
    multiply = kernels.multiply

    def fragile(block, operand):
        if np.allclose(block, blocks.sum(axis=0)):
            raise MemoryError("killed")
        return multiply(block, operand)

    monkeypatch.setattr(kernels, "multiply", fragile)
    with sgc.Session("local", max_attempts=1) as s:
        z, report = s.encode(A, code=code, publish=1).matvec(X, with_report=True)
        with pytest.raises(sgc.NotDecodableError, match=r"2 of 3 results arrived.*MemoryError: killed"):
            s.encode(A, code=code).matvec(X)
    close(z, A @ X)
    assert (report.check().issued, report.partial_messages) == (3, 1)
    assert report.used in {1, 2}  # one worker more is enough, and the other may have come as well


def test_a_retry_resumes_and_both_attempts_count(monkeypatch):
    calls = []
    multiply = kernels.multiply

    def fragile(block, operand):
        calls.append(block[0, 0])
        if len(calls) == 3:
            raise MemoryError("killed once")
        return multiply(block, operand)

    monkeypatch.setattr(kernels, "multiply", fragile)
    code = LinearCode(np.eye(4), placement=[(0, 1, 2, 3)])
    with sgc.Session("simulated", max_attempts=2) as s:
        z, report = s.encode(A, code=code, publish=1).matvec(X, with_report=True)
    close(z, A @ X)
    assert (report.check().issued, report.failed, report.used) == (2, 1, 1)
    assert len(calls) == 5  # two were published, the third failed and was repeated


def test_gradients_of_any_loss_take_both_rounds():
    y = (A @ X > 0).astype(float)
    with sgc.Session("local", inject=slow({1})) as s:
        data = s.encode(A, y, code="uc-mmc", n_workers=N, r=3)
        g, report = data.gradient(X, loss="logistic", with_report=True)
    close(g, A.T @ (1 / (1 + np.exp(-(A @ X))) - y))
    assert report.rounds == 2
    assert report.balanced


def test_codes_with_parity_and_several_messages():
    code = LinearCode(get("mds", n_workers=12, k=8).generator, n_workers=4)
    with sgc.Session("local", inject=slow({3}, factor=30)) as s:
        for publish in (1, 2):
            z, report = s.encode(A, code=code, publish=publish).matvec(X, with_report=True)
            np.testing.assert_allclose(z, A @ X, rtol=1e-8, atol=1e-9)
            assert report.check().issued == 4


def test_partial_results_by_presigned_urls(lively_aws):
    """A function that gets its rights with each task publishes all the same."""
    code = LinearCode(np.eye(2), placement=[(0, 1), (1, 0)])
    with lively_aws.activated(), sgc.Session("aws", presigned=True, inject=slow({0, 1}, factor=20)) as s:
        z, report = s.encode(A, code=code, publish=1).matvec(X, with_report=True)
    close(z, A @ X)
    assert (report.check().partial_messages, report.voided) == (2, 2)


async def _listed(res, *, settle):
    if settle:
        await res.settle()
    return [info.key.rpartition("/round/")[2] async for info in res.store.list(f"{res.prefix}/round/")]


def test_nothing_is_left_in_the_store():
    with sgc.Session("local", inject=slow({2}, factor=40, base=0.04)) as s:  # a slow message takes 0.4 s
        res = background.run(s.resources())
        data = s.encode(A, code="uc-mmc", n_workers=N, r=R)
        for _ in range(3):
            close(data.matvec(X), A @ X)
        # A slow worker sees the mark after its message at the latest: by then a plain round of slow workers is over.
        with sgc.Session("local", inject=slow(1.0, factor=20, base=0.04)) as other:
            other.encode(np.eye(N), code="uncoded", n_workers=N).matvec(np.ones(N))
        assert any("00002.0000" in key for key in background.run(_listed(res, settle=True)))
        background.run(res.clear_late())
        assert {key.partition("/")[2] for key in background.run(_listed(res, settle=True))} == {"cancel"}
    assert asyncio.run(_listed(res, settle=False)) == []


def test_nothing_is_left_in_the_bucket(lively_aws):
    client = boto3.client("s3", endpoint_url=lively_aws.s3_url, region_name="us-east-1", **_KEYS)
    with lively_aws.activated():
        with sgc.Session("aws", inject=slow({2}, base=0.04)) as s:
            prefix = f"sgc/runs/{background.run(s.resources()).run}/"
            for _ in range(2):
                close(s.encode(A, code="uc-mmc", n_workers=N, r=R).matvec(X), A @ X)
            assert client.list_objects_v2(Bucket=lively_aws.bucket, Prefix=prefix)["KeyCount"] > N
            s.encode(np.eye(N), code="uncoded", n_workers=N).matvec(np.ones(N))
        assert client.list_objects_v2(Bucket=lively_aws.bucket, Prefix=prefix)["KeyCount"] == 0
    client.close()


_KEYS = {"aws_access_key_id": "offline", "aws_secret_access_key": "offline"}


@pytest.mark.parametrize("publish", [-1, 1.5, True, "1"])
def test_publish_is_checked(publish):
    with sgc.Session("local") as s, pytest.raises(sgc.InputError, match="publish must be"):
        s.encode(A, publish=publish)


def test_codes_for_sums_are_refused_where_blocks_are_wanted():
    with pytest.raises(sgc.InputError, match="'cpgc' is a gradient code, which gives gradients and no products"):
        sgc.coded_matvec(A, X, code="cpgc", n_workers=4)


def test_symbols_of_a_rateless_code_count_as_they_are_done():
    with sgc.Session(inject=sgc.inject.Stragglers(fraction=[0, 1, 2, 3, 4, 5], slowdown=100, base=0.02)) as s:
        data = s.encode(A, code="lt", n_workers=8, k=64, alpha=2.0)
        z, report = data.matvec(X, with_report=True)
    np.testing.assert_allclose(z, A @ X, rtol=1e-9, atol=1e-9)
    assert report.partial_messages > 0
    assert report.voided > 0
    assert report.balanced
