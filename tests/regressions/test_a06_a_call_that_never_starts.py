"""A6: what is missing or refused is said at once, by name and with the next command; nothing goes on trying.

At once: before the deadline, since the error is another one than that it has passed, and without asking again.
"""

import logging

import pytest

import serverless_gc as sgc
from serverless_gc import background
from serverless_gc.testing.http_double import http_double, s3_error
from serverless_gc.testing.lambda_endpoint import error_step


@pytest.fixture(autouse=True)
def quietly(caplog):
    with caplog.at_level(logging.WARNING):
        yield
    assert not [record for record in caplog.records if record.exc_info]


def failure(problem, **options):
    with pytest.raises(sgc.ConfigError) as caught, sgc.Session("aws", **options) as s:
        s.encode(problem.X, problem.y, code="mds", n_workers=64, k=48).gradient(problem.w)
    return caught.value


def test_no_such_function(problem, account):
    before = account.counts().requests
    error = failure(problem, function="nobody")
    assert "function nobody in us-east-1" in str(error)
    assert "ResourceNotFoundException" in str(error)
    assert "serverless-gc deploy" in str(error)
    assert account.counts().requests == before


def test_no_such_bucket(problem, account):
    before = account.counts().requests
    error = failure(problem, bucket="no-such-bucket")
    assert "bucket 'no-such-bucket'" in str(error)
    assert "aws s3 mb s3://no-such-bucket" in str(error)
    assert account.counts().requests == before
    # closing met the same, and does not hide the error
    assert any("no-such-bucket" in note for note in error.__notes__)


def test_credentials_that_s3_calls_expired(problem, aws, monkeypatch):
    with http_double(lambda *_: s3_error(400, "ExpiredToken")) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
        error = failure(problem)
        assert len(s3.asked) < 64  # not one request for each block, nor repeats
    assert f"bucket '{aws.bucket}'" in str(error)
    assert "credentials have expired" in str(error)
    assert "aws sso login" in str(error)


def test_credentials_that_lambda_calls_expired(problem, account):
    account.script(error_step(403, "ExpiredTokenException", "The security token is expired", times=0))
    before = account.counts().requests
    error = failure(problem)
    assert f"function {account.function}" in str(error)
    assert "ExpiredTokenException" in str(error)
    assert "aws sso login" in str(error)
    assert account.counts().requests - before <= 64  # nobody was asked twice


def test_credentials_that_expire_between_two_rounds(problem, aws):
    """The very reason is raised, and the session can be used again once they are renewed."""
    with sgc.Session("aws") as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=8, k=6)
        problem.check(data.gradient(problem.w))
        aws.script(error_step(403, "ExpiredTokenException", times=0))
        with pytest.raises(sgc.ConfigError, match="ExpiredTokenException"):
            data.gradient(problem.w)
        aws.script()
        problem.check(data.gradient(problem.w))


@pytest.mark.usefixtures("account")
def test_a_function_that_may_not_read_the_bucket(problem):
    """The workers report it: all of them, so the code's redundancy has no part in the message."""
    with http_double(lambda *_: s3_error(403, "AccessDenied")) as s3, sgc.Session("aws") as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=8, k=6)
        store = background.run(s.resources()).store
        store._endpoint = s3.endpoint  # where the workers are sent; the driver's connection is open already
        with pytest.raises(sgc.ConfigError) as caught:
            data.gradient(problem.w)
    assert "S3 answered 403" in str(caught.value)
    assert "role may not read or write the bucket" in str(caught.value)
    assert "serverless-gc doctor" in str(caught.value)


@pytest.mark.usefixtures("aws")
def test_a_bucket_that_is_not_set_is_asked_for_before_anything_opens(monkeypatch):
    monkeypatch.delenv("SERVERLESS_GC_BUCKET")
    with pytest.raises(sgc.ConfigError, match="needs a bucket: pass bucket=, set SERVERLESS_GC_BUCKET"):
        sgc.Session("aws")
