"""The S3 store's errors, retries and batches, on moto and on a server that answers what S3 answers on bad days."""

from __future__ import annotations

import asyncio
import json
import random

import boto3
import pytest

from serverless_gc.errors import ConfigError, InputError, LimitError, ObjectNotFound, StoreError
from serverless_gc.limits import Limits
from serverless_gc.store import Retrier, S3Store, StoreRetry
from serverless_gc.testing.http_double import http_double, response, s3_error

pytestmark = pytest.mark.usefixtures("aws_environment")


@pytest.fixture(params=["http", "sdk"])
def store_at(request):
    """Make a store at a server, with its waits recorded, over each transport."""

    def make(server, waits=None, **options):
        place = {"region": "eu-west-1", "endpoint": server.endpoint, "transport": request.param}
        store = S3Store("bucket", "runs", **place, **options)
        policy = options.get("retry", StoreRetry(attempts=5))

        async def sleep(seconds):
            (waits if waits is not None else []).append(seconds)

        store._retrier = Retrier(policy, rng=random.Random(0), sleep=sleep)
        return store

    return make


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (s3_error(404, "NoSuchKey"), ObjectNotFound, "'bucket', key 'k': no such object"),
        (s3_error(404, "NoSuchBucket"), ConfigError, r"no such bucket.*aws s3 mb s3://bucket"),
        (s3_error(403, "AccessDenied"), ConfigError, r"bucket 'bucket'.*not allowed.*s3:ListBucket"),
        (s3_error(400, "ExpiredToken"), ConfigError, "expired.*aws sso login"),
        (s3_error(403, "InvalidAccessKeyId"), ConfigError, "does not accept.*aws sts get-caller-identity"),
        (s3_error(403, "SignatureDoesNotMatch"), ConfigError, "does not accept"),
        (s3_error(400, "InvalidArgument", "odd"), StoreError, "400 InvalidArgument.*odd"),
    ],
)
async def test_answers_become_errors_that_say_what_to_do(store_at, raw, kind, words):
    with http_double(lambda *_: raw) as server:
        store = store_at(server)
        with pytest.raises(kind, match=words):
            await store.get("k")
        assert len(server.asked) == 1  # none of these is worth a repeat
        await store.close()


async def test_a_bucket_elsewhere_is_named(store_at):
    def answer(*_):
        return s3_error(301, "PermanentRedirect", headers="x-amz-bucket-region: us-west-2\r\n")

    with http_double(answer) as server:
        store = store_at(server)
        with pytest.raises(ConfigError, match=r"in us-west-2.*get-bucket-location"):
            await store.get("k")
        await store.close()


async def test_slow_down_is_repeated_by_us_and_not_by_botocore(store_at):
    waits = []
    with http_double(lambda _, n: s3_error(503, "SlowDown") if n <= 3 else response(200, b"x")) as server:
        store = store_at(server, waits)
        assert await store.get("k") == b"x"
        assert (store.stats.retries, store.stats.slow_downs, len(server.asked), len(waits)) == (3, 3, 4, 3)
        assert len(set(waits)) == 3
        await store.close()


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(response(200, b"12", length=9, headers="Connection: close\r\n"), id="truncated"),
        pytest.param(s3_error(500, "InternalError"), id="500"),
    ],
)
async def test_passing_troubles_are_repeated(store_at, bad):
    with http_double(lambda _, n: bad if n == 1 else response(200, b"whole")) as server:
        store = store_at(server)
        assert await store.get("k") == b"whole"
        assert (store.stats.retries, store.stats.slow_downs) == (1, 0)
        await store.close()


async def test_dropped_connections_are_repeated(store_at):
    with http_double(lambda _, n: b"" if n <= 4 else response(200, b"whole")) as server:
        store = store_at(server)
        assert await store.get("k") == b"whole"
        assert store.stats.retries == 2  # aiohttp sends a GET once more by itself
        await store.close()


async def test_repeats_end(store_at):
    with http_double(lambda *_: s3_error(503, "SlowDown")) as server:
        store = store_at(server)
        with pytest.raises(StoreError, match="503 SlowDown to PutObject in bucket 'bucket', key 'k'") as caught:
            await store.put("k", b"x")
        assert (caught.value.retryable, caught.value.status, len(server.asked)) == (True, 503, 5)
        await store.close()


async def test_no_server_and_no_credentials(store_at, monkeypatch):
    with http_double(lambda *_: b"") as server:
        pass
    store = store_at(server)
    with pytest.raises(StoreError, match=r"EndpointConnectionError|ClientConnectorError") as caught:
        await store.get("k")
    assert caught.value.retryable
    await store.close()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    store = store_at(server)
    with pytest.raises(ConfigError, match=r"no AWS credentials found.*aws configure"):
        await store.get("k")
    await store.close()


async def test_write_once_answers(store_at):
    for status, code in ((412, "PreconditionFailed"), (409, "ConditionalRequestConflict")):
        with http_double(lambda *_, s=status, c=code: s3_error(s, c)) as server:
            store = store_at(server)
            assert await store.put("k", b"x", if_absent=True) is False
            assert server.asked[0].headers["if-none-match"] == "*"
            await store.close()


async def test_bodies_are_neither_hashed_nor_trailed_by_checksums(store_at):
    with http_double(lambda *_: response(200)) as server:
        store = store_at(server)
        assert await store.put("k", [b"ab", memoryview(b"cd")]) is True
        (asked,) = server.asked
        assert asked.body == b"abcd"
        assert asked.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert not any(name.startswith("x-amz-checksum") for name in asked.headers)
        await store.close()


async def test_requests_wait_before_they_are_signed(store_at):
    """A request that queues in the client's pool would carry an old signature."""
    with http_double(lambda *_: response(200, b"x")) as server:
        store = store_at(server, concurrency=3)
        await asyncio.gather(*(store.get(f"k{i}") for i in range(30)))
        assert server.connections <= 3
        await store.close()


async def test_objects_above_the_limit_are_refused_before_the_network(store_at):
    with http_double(lambda *_: response(200)) as server:
        store = store_at(server, limits=Limits(object_bytes=10))
        assert await store.put("k", b"x" * 10)
        with pytest.raises(LimitError, match="has 11 bytes, S3 takes 10"):
            await store.put("k", b"x" * 11)
        assert len(server.asked) == 1
        await store.close()


async def test_another_loop_is_told_apart(store_at):
    with http_double(lambda *_: response(200, b"x")) as server:
        store = store_at(server)
        await store.get("k")
        with pytest.raises(StoreError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, store.get("k"))
        await store.close()
        assert await asyncio.to_thread(asyncio.run, closing(store)) == b"x"


async def closing(store):
    try:
        return await store.get("k")
    finally:
        await store.close()


def deletion(errors=()):
    items = "".join(f"<Error><Key>runs/{k}</Key><Code>{c}</Code><Message>m</Message></Error>" for k, c in errors)
    return response(200, f"<DeleteResult>{items}</DeleteResult>".encode())


async def test_keys_that_s3_was_too_busy_for_are_tried_again(store_at):
    answers = {1: deletion([("a", "SlowDown"), ("b", "AccessDenied"), ("c", "InternalError")]), 2: deletion()}
    with http_double(lambda _, n: answers[n]) as server:
        store = store_at(server)
        assert await store.delete(["a", "b", "c", "d"]) == {"b": "AccessDenied: m"}
        first, second = (asked.body.decode() for asked in server.asked)
        assert first.count("<Key>") == 4
        assert ("runs/a" in second, "runs/b" in second, "runs/c" in second, second.count("<Key>")) == (
            True, False, True, 2,
        )  # fmt: skip
        await store.close()


async def test_keys_that_s3_stays_too_busy_for_are_reported(store_at):
    with http_double(lambda *_: deletion([("a", "SlowDown")])) as server:
        store = store_at(server)
        assert await store.delete(["a", "b"]) == {"a": "SlowDown: m"}
        assert len(server.asked) == 5
        assert store.stats.slow_downs == 5
        await store.close()
    with http_double(lambda *_: s3_error(503, "SlowDown")) as server:
        store = store_at(server)
        with pytest.raises(StoreError, match="503"):
            await store.delete(["a"])
        await store.close()


async def test_2300_objects_are_gone_in_three_batches_and_three_are_reported(s3_bucket):
    """A20. moto has no way to deny single keys but the bucket's policy, which it evaluates key by key."""
    endpoint, bucket = s3_bucket
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    store = S3Store(bucket, "scratch", region="us-east-1", endpoint=endpoint, concurrency=16)
    keys = [f"run-1/{i:05d}" for i in range(2300)]
    await asyncio.gather(*(store.put(key, b"") for key in keys))
    await store.put("run-10/kept", b"")
    denied = [keys[5], keys[1500], keys[2299]]
    client.put_bucket_policy(
        Bucket=bucket,
        Policy=json.dumps({
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Deny",
                    "Principal": "*",
                    "Action": "s3:DeleteObject",
                    "Resource": [f"arn:aws:s3:::{bucket}/scratch/{key}" for key in denied],
                }
            ],
        }),
    )  # fmt: skip
    client.close()
    batches = []
    inner = (await store._connected().opened()).client
    inner.meta.events.register("before-call.s3.DeleteObjects", lambda **_: batches.append(1))
    failed = await store.delete([info.key async for info in store.list("run-1/")])
    assert sorted(failed) == denied
    assert all("AccessDenied" in reason for reason in failed.values())
    assert len(batches) == 3
    assert [info.key async for info in store.list()] == [*denied, "run-10/kept"]
    await store.close()


async def test_bad_keys_do_not_reach_the_network(store_at):
    with http_double(lambda *_: response(200)) as server:
        store = store_at(server)
        for request in (store.get("/k"), store.put("a//b", b""), store.head(""), store.delete(["ok", "../k"])):
            with pytest.raises(InputError, match="key"):
                await request
        assert server.asked == []
        await store.close()


@pytest.mark.usefixtures("aws_environment")
async def test_region_comes_from_the_variables_that_other_tools_read(monkeypatch):
    assert S3Store("b").url == "s3://b/?region=us-east-1"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert S3Store("b").url == "s3://b/"
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with http_double(lambda *_: response(200)) as server:
        store = S3Store("b", endpoint=server.endpoint)
        await store.put("k", b"")
        await store.close()
    assert store.url.startswith("s3://b/?region=eu-west-1&")
    assert "/eu-west-1/s3/aws4_request" in server.asked[0].headers["authorization"]


async def test_connections_are_used_again(store_at):
    """Whether an answer is small, received where it lies, or an error."""
    bodies = {"small": b"x", "large": bytes(3_000_000)}

    def answer(asked, _):
        body = bodies.get(asked.path.rpartition("/")[2])
        return s3_error(404, "NoSuchKey") if body is None else response(200, b"" if asked.method == "PUT" else body)

    with http_double(answer) as server:
        store = store_at(server)
        for _ in range(3):
            for key, body in bodies.items():
                assert bytes(await store.get(key)) == body
                await store.put(key, body)
            with pytest.raises(ObjectNotFound):
                await store.get("absent")
        assert server.connections == 1
        await store.close()
