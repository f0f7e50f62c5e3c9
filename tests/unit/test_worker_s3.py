"""The worker's own S3 client, against a server that answers what S3 answers on its bad days."""

from __future__ import annotations

import random
import socket

import numpy as np
import pytest

from serverless_gc.testing.http_double import http_double, response, s3_error
from serverless_gc.wire.sigv4 import Credentials
from serverless_gc.worker.blobs import BlobError, BlobNotFound
from serverless_gc.worker.opening import open_blobs
from serverless_gc.worker.retry import Backoff, RetryingBlobs
from serverless_gc.worker.s3 import S3Blobs, open_s3


def blobs_at(server, **options):
    options = {
        "region": "eu-west-1",
        "endpoint": server.endpoint,
        "credentials": lambda: Credentials("A", "s"),
        **options,
    }
    return S3Blobs("bucket", "runs/1", **options)


def retrying(blobs, attempts=6):
    waits = []
    return RetryingBlobs(blobs, Backoff(attempts=attempts, base=1.0, cap=4.0), waits.append, random.Random(0)), waits


def test_one_connection_serves_many_requests():
    body = np.random.default_rng(0).bytes(3_000_000)

    def answer(asked, _):
        return response(200, body if asked.method == "GET" else b"")

    with http_double(answer) as server:
        blobs = blobs_at(server)
        for _ in range(3):
            assert bytes(blobs.get("a b/ü")) == body
            assert blobs.put("k", [b"ab", memoryview(b"cd"), b""], if_absent=True) is True
        assert server.connections == 1
        get, put = server.asked[:2]
        assert get.path == "/bucket/runs/1/a%20b/%C3%BC"
        assert (put.body, put.headers["if-none-match"], put.headers["content-length"]) == (b"abcd", "*", "4")
        assert put.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert "Credential=A/" in put.headers["authorization"]
        blobs.close()


def test_a_part_of_an_object_is_asked_for_by_its_range():
    body = bytes(range(100))

    def answer(asked, number):
        if number == 1:
            return s3_error(503, "SlowDown")
        first, last = map(int, asked.headers["range"].removeprefix("bytes=").split("-"))
        return response(206, body[first : last + 1])

    with http_double(answer) as server:
        blobs, _ = retrying(blobs_at(server))
        assert bytes(blobs.get_range("k", 10, 20)) == body[10:20]
        assert bytes(blobs.get_range("k", 99, 100)) == body[99:]
        assert blobs.counts.slow_downs == 1
    for refusal, kind in ((s3_error(416, "InvalidRange"), "unavailable"), (s3_error(404, "NoSuchKey"), "missing")):
        with http_double(lambda *_, refusal=refusal: refusal) as server:
            with pytest.raises(BlobError, match="to GET s3://bucket/runs/1/k") as caught:
                blobs_at(server).get_range("k", 200, 300)
            assert (caught.value.kind, caught.value.retryable) == (kind, False)
    with http_double(lambda *_: response(200, body)) as server, pytest.raises(BlobError, match="answered 200"):
        blobs_at(server).get_range("k", 10, 20)  # all of it is not what was asked for


def test_a_connection_that_the_server_closed_while_idle_is_replaced():
    def answer(_, number):
        return b"" if number == 2 else response(200, b"x")

    with http_double(answer) as server:
        blobs = blobs_at(server)
        assert bytes(blobs.get("k")) == b"x"
        assert bytes(blobs.get("k")) == b"x"  # the second request fails on the kept connection, the third serves
        assert (len(server.asked), server.connections) == (3, 2)


def test_slow_down_is_repeated_with_jitter_and_counted():
    """A21, the worker's side."""

    def answer(_, number):
        return s3_error(503, "SlowDown", "Please reduce your request rate.") if number <= 3 else response(200, b"x")

    with http_double(answer) as server:
        blobs, waits = retrying(blobs_at(server))
        assert bytes(blobs.get("k")) == b"x"
        assert (blobs.counts.retries, blobs.counts.slow_downs) == (3, 3)
        assert len(set(waits)) == 3
        assert all(0 <= w <= top for w, top in zip(waits, (1.0, 2.0, 4.0), strict=True))
        assert server.connections == 1


def test_repeats_are_bounded():
    with http_double(lambda *_: s3_error(503, "SlowDown")) as server:
        blobs, waits = retrying(blobs_at(server), attempts=4)
        with pytest.raises(BlobError, match=r"503 SlowDown to PUT s3://bucket/runs/1/k") as caught:
            blobs.put("k", b"1")
        assert (caught.value.kind, caught.value.status, len(server.asked), len(waits)) == ("unavailable", 503, 4, 3)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"", id="dropped"),
        pytest.param(response(200, b"1234", length=8, headers="Connection: close\r\n"), id="truncated"),
        pytest.param(b"nonsense\r\n\r\n", id="not http"),
        pytest.param(s3_error(500, "InternalError"), id="500"),
        pytest.param(s3_error(400, "RequestTimeout"), id="request timeout"),
        pytest.param(response(502, b"<html>"), id="502"),
    ],
)
def test_passing_troubles_are_repeated(bad):
    with http_double(lambda _, number: bad if number == 1 else response(200, b"12345678")) as server:
        blobs, _ = retrying(blobs_at(server))
        assert bytes(blobs.get("k")) == b"12345678"
        assert blobs.counts.retries == 1
        assert blobs.counts.slow_downs == 0


def test_silence_is_given_up_and_repeated():
    with http_double(
        lambda _, number: response(200, b"", length=4) if number == 1 else response(200, b"okay")
    ) as server:
        blobs, _ = retrying(blobs_at(server, read_timeout=0.1))
        assert bytes(blobs.get("k")) == b"okay"
        assert blobs.counts.retries == 1


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (s3_error(403, "AccessDenied"), "denied", "403 AccessDenied to GET s3://bucket/runs/1/k: no.*ListBucket"),
        (s3_error(403, "SignatureDoesNotMatch"), "denied", "SignatureDoesNotMatch"),
        (s3_error(400, "ExpiredToken"), "denied", "ExpiredToken"),
        (s3_error(404, "NoSuchBucket"), "missing", "bucket/runs/1/k: no; there is no such bucket"),
        (s3_error(301, "PermanentRedirect", headers="x-amz-bucket-region: us-west-2\r\n"), "denied", "in us-west-2"),
    ],
)
def test_what_will_not_pass_is_not_repeated_and_says_what_is_wrong(raw, kind, words):
    with http_double(lambda *_: raw) as server:
        blobs, waits = retrying(blobs_at(server))
        with pytest.raises(BlobError, match=words) as caught:
            blobs.get("k")
        assert (caught.value.kind, waits) == (kind, [])


def test_missing_objects():
    with http_double(lambda *_: s3_error(404, "NoSuchKey")) as server:
        blobs = blobs_at(server)
        with pytest.raises(BlobNotFound, match="NoSuchKey"):
            blobs.get("k")
    with http_double(lambda *_: b"HTTP/1.1 404 Not Found\r\nContent-Length: 99\r\n\r\n") as server:
        blobs = blobs_at(server)
        assert [blobs.exists("k"), blobs.exists("k")] == [False, False]
        assert server.connections == 1  # a HEAD has no body, whatever its length says


@pytest.mark.parametrize(("status", "code"), [(412, "PreconditionFailed"), (409, "ConditionalRequestConflict")])
def test_write_once(status, code):
    with http_double(lambda *_: s3_error(status, code)) as server:
        assert blobs_at(server).put("k", b"1", if_absent=True) is False
        with pytest.raises(BlobError, match=code):
            blobs_at(server).put("k", b"1")


def test_no_connection_names_the_vpc_endpoint(monkeypatch):
    def never(*_, **__):
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", never)
    blobs, waits = retrying(S3Blobs("b", region="eu-west-1", credentials=lambda: Credentials("A", "s")))
    with pytest.raises(BlobError, match=r"b\.s3\.eu-west-1\.amazonaws\.com within 5 s; .*VPC.*gateway endpoint"):
        blobs.get("k")
    assert waits == []


def test_refused_connections_are_repeated():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    blobs, waits = retrying(
        S3Blobs("b", region="x", endpoint=f"http://127.0.0.1:{port}", credentials=lambda: Credentials("A", "s"))
    )
    with pytest.raises(BlobError, match="ConnectionRefusedError"):
        blobs.exists("k")
    assert len(waits) == 5


@pytest.mark.parametrize(
    ("url", "environment", "place"),
    [
        ("s3://b/p/q?region=eu-west-1", {}, ("https", "b.s3.eu-west-1.amazonaws.com", "/p/q/")),
        ("s3://b", {"AWS_REGION": "cn-north-1"}, ("https", "b.s3.cn-north-1.amazonaws.com.cn", "/")),
        ("s3://my.b/p", {}, ("https", "s3.us-east-1.amazonaws.com", "/my.b/p/")),
        ("s3://b/p", {"AWS_ENDPOINT_URL": "http://h:80"}, ("http", "h", "/b/p/")),
        ("s3://b/p", {"AWS_ENDPOINT_URL": "x", "AWS_ENDPOINT_URL_S3": "http://h:1/s3/"}, ("http", "h:1", "/s3/b/p/")),
        ("s3://b/p?endpoint=http%3A%2F%2Fi%3A2", {"AWS_ENDPOINT_URL_S3": "x"}, ("http", "i:2", "/b/p/")),
        ("s3://b/a%20b?endpoint=https://h:443", {}, ("https", "h", "/b/a b/")),
    ],
)
def test_where_a_url_leads(url, environment, place, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    blobs = open_blobs(url)
    assert isinstance(blobs, S3Blobs)
    assert (blobs._scheme, blobs._host, blobs._base + blobs._prefix) == place
    assert open_blobs(url) is blobs  # and with it its open connections


def test_endpoints_carry_no_secrets():
    with pytest.raises(ValueError, match="without user and password"):
        open_s3("b", endpoint="http://user:pw@h")


def test_urls_that_no_worker_opens():
    for url in ("memory://1", "s3://", "http://x/y"):
        with pytest.raises(ValueError, match="cannot open the store"):
            open_blobs(url)


def test_no_credentials(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(PermissionError, match="AWS_ACCESS_KEY_ID"):
        S3Blobs("b", region="x", endpoint="http://127.0.0.1:9").get("k")
