"""URLs in place of rights: what is signed, what a worker does with them, and that nobody sees them."""

import asyncio
import datetime as dt
import time

import boto3
import botocore.auth
import botocore.config
import pytest

from serverless_gc.errors import ConfigError, InputError
from serverless_gc.store import S3Store
from serverless_gc.store.s3_presign import with_urls
from serverless_gc.testing.http_double import http_double, response, s3_error
from serverless_gc.wire import Task
from serverless_gc.wire.sigv4 import Credentials, Signer
from serverless_gc.worker.blobs import BlobError, BlobNotFound
from serverless_gc.worker.entry import run
from serverless_gc.worker.presigned import PresignedBlobs

TASK = Task(
    run="r",
    round=1,
    task_id="t",
    slot=0,
    attempt=0,
    kernel="matvec",
    blocks=("data/0", "data/1"),
    result_key="round/1/0",
    store="s3://bucket/runs",
    operand_key="round/1/operand",
    cancel_key="round/1/cancel",
    alive_key="alive/0000",
)


def url_at(server, method, key, age=0.0):
    headers = {"If-None-Match": "*"} if method == "PUT" else {}
    query = Signer("s3", "us-east-1").presign(
        method, "h", f"/b/{key}", credentials=Credentials("A", "s"), expires=60, headers=headers, now=time.time() - age
    )
    return f"{server.endpoint}/b/{key}?{query}"


def blobs_at(server, *requests, age=0.0):
    return PresignedBlobs({f"{method} {key}": url_at(server, method, key, age) for method, key in requests})


# --- what is signed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["http", "sdk"])
@pytest.mark.parametrize("token", ["", "FwoGZXIvYXdzEXAMPLE//token=="])
@pytest.mark.usefixtures("aws_environment")
async def test_urls_are_those_of_boto3(monkeypatch, token, transport):
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    moment = dt.datetime.now(dt.UTC).replace(microsecond=0)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: moment)
    monkeypatch.setattr("serverless_gc.wire.sigv4._stamp", lambda _: moment.strftime("%Y%m%dT%H%M%SZ"))
    for endpoint in ("http://127.0.0.1:9/s3", None):
        store = S3Store("bucket", "a b/ü", region="eu-west-1", endpoint=endpoint, transport=transport)
        mine = await store.presign([("GET", "k+1"), ("HEAD", "k"), ("PUT", "k")], expires=77)
        await store.close()
        style = "path" if endpoint else "virtual"
        config = botocore.config.Config(
            signature_version="s3v4", s3={"addressing_style": style}, request_checksum_calculation="when_required"
        )
        client = boto3.session.Session().client("s3", region_name="eu-west-1", endpoint_url=endpoint, config=config)
        theirs = [
            client.generate_presigned_url(
                operation, {"Bucket": "bucket", "Key": f"a b/ü/{key}", **more}, ExpiresIn=77
            )
            for operation, key, more in (
                ("get_object", "k+1", {}),
                ("head_object", "k", {}),
                ("put_object", "k", {"IfNoneMatch": "*"}),
            )
        ]  # fmt: skip
        client.close()
        assert mine == theirs


@pytest.mark.usefixtures("aws_environment")
async def test_a_task_gets_the_urls_of_what_it_may_do():
    store = S3Store("bucket", "runs", region="us-east-1", endpoint="http://127.0.0.1:9")
    task = await with_urls(store, TASK, expires=60)
    assert list(task.urls) == [
        "GET data/0", "GET data/1", "GET round/1/operand", "GET round/1/0", "HEAD round/1/cancel", "HEAD alive/0000",
        "PUT round/1/0",
    ]  # fmt: skip
    for name, url in task.urls.items():
        method, _, key = name.partition(" ")
        assert url.startswith(f"http://127.0.0.1:9/bucket/runs/{key}?X-Amz-Algorithm=")
        assert ("if-none-match" in url) == (method == "PUT")
    assert Task.from_bytes(task.to_bytes()).urls == task.urls
    assert "Signature" not in repr(task)
    bare = await with_urls(store, Task("r", 1, "t", 0, 0, "noop", (), "", "s3://b"), expires=60)
    assert bare.urls == {}
    await store.close()


def test_tasks_without_urls_are_what_they_were():
    assert b"urls" not in TASK.to_bytes()
    assert Task.from_bytes(TASK.to_bytes()).urls == {}


@pytest.mark.parametrize("expires", [0, 7 * 86400 + 1])
async def test_what_cannot_be_signed(expires):
    store = S3Store("bucket", region="us-east-1")
    with pytest.raises(InputError, match="expires must be from 1 to 604800"):
        await store.presign([("GET", "k")], expires=expires)
    with pytest.raises(InputError, match="key"):
        await store.presign([("GET", "../k")], expires=1)


@pytest.mark.usefixtures("aws_environment")
async def test_nobody_to_sign(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    store = S3Store("bucket", region="us-east-1")
    with pytest.raises(ConfigError, match="no AWS credentials found"):
        await store.presign([("GET", "k")], expires=1)
    await store.close()


# --- what a worker does with them --------------------------------------------------------------------------------


def test_requests_go_to_the_urls_and_carry_no_signature_of_the_workers():
    def answer(asked, _):
        return response(200, b"content" if asked.method == "GET" else b"")

    with http_double(answer) as server:
        blobs = blobs_at(server, ("GET", "k"), ("HEAD", "k"), ("PUT", "k"))
        assert bytes(blobs.get("k")) == b"content"
        assert blobs.exists("k") is True
        assert blobs.put("k", [b"ab", b"c"], if_absent=True) is True
        get, _, put = server.asked
    assert server.endpoint + get.path == blobs._urls["GET k"]
    assert (put.body, put.headers["if-none-match"]) == (b"abc", "*")
    assert all("authorization" not in asked.headers for asked in server.asked)
    assert server.connections == 1


def test_what_s3_answers():
    def answer(asked, _):
        return {
            "GET": s3_error(404, "NoSuchKey"),
            "HEAD": response(404),
            "PUT": s3_error(412, "PreconditionFailed"),
        }[asked.method]

    with http_double(answer) as server:
        blobs = blobs_at(server, ("GET", "k"), ("HEAD", "k"), ("PUT", "k"))
        with pytest.raises(BlobNotFound, match="NoSuchKey to GET 'k' by its URL"):
            blobs.get("k")
        assert blobs.exists("k") is False
        assert blobs.put("k", b"", if_absent=True) is False


@pytest.mark.parametrize(
    ("raw", "age", "kind", "words"),
    [
        (s3_error(403, "SignatureDoesNotMatch"), 0.0, "denied", "SignatureDoesNotMatch to GET 'k' by its URL"),
        (s3_error(403, "AccessDenied", "no"), 0.0, "denied", "AccessDenied"),
        (s3_error(403, "AccessDenied", "Request has expired"), 0.0, "unavailable", "its URL has expired"),
        (s3_error(403, "AccessDenied", "no"), 120.0, "unavailable", "its URL has expired"),
        (s3_error(400, "ExpiredToken", "no"), 0.0, "unavailable", "the driver's credentials have"),
        (s3_error(503, "SlowDown"), 0.0, "unavailable", "SlowDown"),
        (b"", 0.0, "unavailable", "RemoteDisconnected"),
    ],
)
def test_what_went_wrong_is_told_without_the_url(raw, age, kind, words):
    with http_double(lambda *_: raw) as server:
        blobs = blobs_at(server, ("GET", "k"), age=age)
        with pytest.raises(BlobError, match=words) as caught:
            blobs.get("k")
    assert caught.value.kind == kind
    assert "X-Amz" not in str(caught.value)


def test_a_request_that_the_task_brings_no_url_for():
    with pytest.raises(BlobError, match="brings no URL to PUT 'k'") as caught:
        PresignedBlobs({"GET k": "http://127.0.0.1:9/k"}).put("k", b"")
    assert caught.value.kind == "denied"


def test_a_reply_tells_nothing_of_the_urls():
    with http_double(lambda *_: s3_error(403, "AccessDenied", "no")) as server:
        urls = {f"{m} {k}": url_at(server, m, k) for m, k in (("HEAD", "c"), ("GET", "b"))}
        task = Task("r", 0, "t", 0, 0, "matvec", ("b",), "", "s3://nobody", cancel_key="c", urls=urls)
        reply = run(task.to_bytes())
    assert b"403" in reply
    assert b"X-Amz" not in reply
    assert len(server.asked) == 1


async def test_the_store_of_a_task_with_urls_is_not_opened():
    def never(url):
        raise AssertionError(url)

    with http_double(lambda *_: response(200, b"")) as server:
        task = Task(
            "r", 0, "t", 0, 0, "noop", (), "result", "s3://nobody",
            urls={"PUT result": url_at(server, "PUT", "result")},
        )  # fmt: skip
        reply = await asyncio.to_thread(run, task.to_bytes(), never)
    assert b'"status":"ok"' in reply.replace(b" ", b"")
