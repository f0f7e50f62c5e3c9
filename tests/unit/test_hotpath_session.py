"""What a session makes of the hot path: warming up, and requests that the workers need no right for."""

import dataclasses
import logging

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.errors import InputError
from serverless_gc.limits import DEFAULT_LIMITS
from serverless_gc.testing.lambda_endpoint import LambdaEndpoint


@pytest.mark.usefixtures("aws")
def test_a_session_warms_up_and_its_next_report_says_so():
    with sgc.Session("aws") as s:
        warmth = s.warm(6)
        data = s.encode(np.eye(6), code="mds", n_workers=6, k=4)
        _, first = data.matvec(np.ones(6), with_report=True)
        _, second = data.matvec(np.ones(6), with_report=True)
    assert (warmth.asked, warmth.answered) == (6, 6)
    assert (first.warmed, second.warmed) == (6, 0)
    assert "6 no-op invocations to warm up" in str(first)
    assert first.merge(second).warmed == 6
    assert first.balanced


def test_sessions_without_environments_warm_their_threads():
    with sgc.Session("local") as s:
        assert s.warm(4).answered == 4


@pytest.fixture
def without_rights(running_aws):
    """A function that has no credentials; the driver has."""
    place = {"AWS_ENDPOINT_URL_S3": running_aws.s3_url, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    endpoint = LambdaEndpoint(("rightless",), environment=place)
    with running_aws.activated(), endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_LAMBDA", endpoint.url)
        yield lambda **options: sgc.Session("aws", function="rightless", **options)


def test_a_function_without_rights_works_by_presigned_urls(without_rights, caplog):
    rng = np.random.default_rng(0)
    A, x = rng.standard_normal((40, 30)), rng.standard_normal((30, 200))
    caplog.set_level(logging.DEBUG)
    limits = dataclasses.replace(DEFAULT_LIMITS, reply_bytes=30_000)  # operand and results go through the store
    stragglers = sgc.inject.Stragglers(fraction=0.2, slowdown=4, base=0.005)
    with without_rights(presigned=True, limits=limits, inject=stragglers) as s:
        data = s.encode(A, code="mds", n_workers=6, k=4)
        z, report = data.matvec(x, with_report=True)
    np.testing.assert_allclose(z, A @ x, rtol=1e-9)
    assert report.by_reference >= 4
    assert report.failed == 0
    assert "X-Amz-Signature" not in str(report.to_dict()) + caplog.text


def test_without_urls_it_fails(without_rights):
    with without_rights() as s, pytest.raises(sgc.ConfigError, match="no AWS credentials"):
        s.encode(np.eye(6), code="mds", n_workers=6, k=4).matvec(np.ones(6))


def test_only_some_stores_sign_urls():
    with pytest.raises(InputError, match=r"presigned=True needs a store that can sign URLs.*MemoryStore"):
        sgc.Session("local", presigned=True)
