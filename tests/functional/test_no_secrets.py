"""No credential leaves the driver: not in logs, reports, pickles or objects, and not in what a worker is told."""

import logging
import pickle

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.errors import ConfigError
from serverless_gc.invoke import LambdaInvoker
from serverless_gc.store import S3Store
from serverless_gc.testing.lambda_endpoint import error_step

SECRET, TOKEN = "a-secret-that-nobody-sees/1", "a-token-that-nobody-sees/2"


class Overheard(LambdaInvoker):
    """Lambda, and all that functions are told and answer."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.heard = []

    async def invoke(self, task, payload, *, timeout):
        self.heard.append(bytes(payload))
        answer = await super().invoke(task, payload, timeout=timeout)
        self.heard.append(bytes(answer))
        return answer


@pytest.fixture
def secretive(aws, monkeypatch):
    """An account that takes any credentials, and some of which every trace can be told."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    return aws


@pytest.fixture
def parts(secretive):
    """What a session runs on: its store, and its invoker that is overheard."""
    store = S3Store(secretive.bucket, "sgc", region="us-east-1", endpoint=secretive.s3_url)
    return {"store": store, "invoker": Overheard(secretive.function, region="us-east-1")}


def own_loss(X, y, w):
    return X.T @ (X @ w - y)


@pytest.mark.parametrize("presigned", [False, True])
def test_nothing_that_is_said_or_stored_holds_one(parts, s3_client, secretive, list_bucket, caplog, problem, presigned):
    said = []
    with caplog.at_level(logging.DEBUG, "serverless_gc"), sgc.Session("aws", presigned=presigned, **parts) as s:
        data = s.encode(problem.X, problem.y, code="frc", n_workers=6, stragglers=1)
        g, report = data.gradient(problem.w, loss=own_loss, with_report=True)
        problem.check(g)
        said += [repr(each) for each in (s, data, report, vars(s), parts["store"].url)]
        keys = [key for key in list_bucket() if "/round/" not in key]  # those are being deleted by now
        stored = [s3_client.get_object(Bucket=secretive.bucket, Key=key)["Body"].read() for key in keys]
    assert len(stored) > 6
    assert len(parts["invoker"].heard) > 6
    said += [caplog.text, str(report)]
    everything = "\n".join(said).encode() + pickle.dumps(report) + b"".join(stored)
    told = b"".join(parts["invoker"].heard)
    assert SECRET.encode() not in everything + told
    assert TOKEN.encode() not in everything
    if not presigned:  # a presigned URL has the token in it, and is itself a secret: see SECURITY.md
        assert TOKEN.encode() not in told
    assert b"X-Amz-Signature" not in everything


def test_an_error_holds_none(parts, secretive, caplog):
    secretive.script(error_step(403, "ExpiredTokenException", "The security token included in the request is expired"))
    with caplog.at_level(logging.DEBUG, "serverless_gc"), sgc.Session("aws", presigned=True, **parts) as s:
        data = s.encode(np.eye(8), code="uncoded", n_workers=4)
        with pytest.raises(ConfigError) as refused:
            data.matvec(np.ones(8))
    texts, error = [caplog.text], refused.value
    while error is not None:
        texts += [str(error), repr(error), *getattr(error, "__notes__", [])]
        error = error.__cause__ or error.__context__
    for hidden in (SECRET, TOKEN, "X-Amz-Signature"):
        assert hidden not in "\n".join(texts)
