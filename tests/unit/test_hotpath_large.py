"""Large objects: in parts and by ranges, whole or not at all, written once."""

import asyncio
import re

import boto3
import numpy as np
import pytest

from serverless_gc.errors import InputError, StoreError
from serverless_gc.limits import Limits
from serverless_gc.store import Retrier, S3Store, StoreRetry
from serverless_gc.store.s3_large import slices
from serverless_gc.testing.http_double import http_double, response, s3_error

pytestmark = pytest.mark.usefixtures("aws_environment")

MIB = 2**20
SMALL = Limits(multipart_bytes=6 * MIB, part_bytes=5 * MIB)  # S3 takes parts from 5 MiB on
TINY = Limits(multipart_bytes=10, part_bytes=4)


@pytest.fixture(params=["http", "sdk"])
def transport(request):
    return request.param


@pytest.fixture
def store_at(transport):
    def make(endpoint, bucket="bucket", limits=TINY):
        place = {"region": "us-east-1", "endpoint": endpoint, "transport": transport, "concurrency": 8}
        store = S3Store(bucket, "p", limits=limits, **place)

        async def at_once(_seconds):
            await asyncio.sleep(0)

        store._retrier = Retrier(StoreRetry(attempts=3), sleep=at_once)
        return store

    return make


def unfinished(endpoint, bucket):
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    try:
        return client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    finally:
        client.close()


@pytest.mark.parametrize("size", [5 * MIB, 6 * MIB, 6 * MIB + 1, 10 * MIB, 12 * MIB + 7])
async def test_what_is_put_in_parts_is_read_by_ranges(s3_bucket, store_at, size):
    store = store_at(*s3_bucket, limits=SMALL)
    body = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    cut = size // 3
    assert await store.put("k", [body[:cut].data, b"", bytearray(body[cut : cut + 10]), body[cut + 10 :].data])
    assert bytes(await store.get("k")) == body.tobytes()
    assert await store.put("k", b"other", if_absent=True) is False
    head = await store.head("k")
    assert head is not None
    assert head.size == size
    assert unfinished(*s3_bucket) == []
    await store.close()


async def test_large_objects_are_written_once(s3_bucket, store_at):
    """One writer after the other; moto does not know the condition on a completion, see below for one that does."""
    store = store_at(*s3_bucket, limits=SMALL)
    bodies = [bytes([i]) * (7 * MIB) for i in range(2)]
    assert [await store.put("k", body, if_absent=True) for body in bodies] == [True, False]
    assert bytes(await store.get("k")) == bodies[0]
    assert unfinished(*s3_bucket) == []
    await store.close()


# --- a server that answers what a test says ----------------------------------------------------------------------

BODY = bytes(range(30))
MADE = response(200, b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>")
DONE = response(200, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")


class Service:
    """S3 for one object: ranges, and an upload whose steps a test may replace."""

    def __init__(self, **replaced):
        self.replaced, self.parts, self.steps = replaced, {}, []

    def __call__(self, asked, _):
        step = self.step(asked)
        self.steps.append(step)
        answer = self.replaced.get(step)
        if callable(answer):
            answer = answer(asked, self.steps.count(step))
        return answer or getattr(self, step)(asked)

    def step(self, asked):
        if asked.method == "POST":
            return "create" if "uploads" in asked.path.partition("?")[2].split("&") else "complete"
        return {"PUT": "part", "HEAD": "describe", "DELETE": "abort", "GET": "read"}[asked.method]

    def create(self, _):
        return MADE

    def part(self, asked):
        number = int(re.search(r"partNumber=(\d+)", asked.path).group(1))
        self.parts[number] = asked.body
        return response(200, headers=f'ETag: "t{number}"\r\n')

    def complete(self, _):
        return DONE

    def abort(self, _):
        return response(204)

    def describe(self, _):
        return response(404)

    def read(self, asked):
        extent = asked.headers.get("range")
        if extent is None:
            return response(200, BODY, headers='ETag: "t"\r\n')
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", extent).groups())
        headers = f'ETag: "t"\r\nContent-Range: bytes {first}-{last}/{len(BODY)}\r\n'
        return response(206, BODY[first : last + 1], headers=headers)


async def put(store_at, service, **options):
    with http_double(service) as server:
        store = store_at(server.endpoint)
        try:
            return await store.put("k", [b"0123", b"456789abcdef"], **options)
        finally:
            await store.close()


async def get(store_at, service):
    with http_double(service) as server:
        store = store_at(server.endpoint)
        try:
            return bytes(await store.get("k"))
        finally:
            await store.close()


async def test_parts_are_views_of_the_buffers(store_at):
    service = Service()
    assert await put(store_at, service) is True
    assert service.parts == {1: b"0123", 2: b"4567", 3: b"89ab", 4: b"cdef"}
    assert service.steps == ["create", "part", "part", "part", "part", "complete"]


async def test_busy_answers_to_single_parts_are_repeated_alone(store_at):
    service = Service(part=lambda _, n: s3_error(503, "SlowDown") if n <= 2 else None)
    assert await put(store_at, service) is True
    assert service.steps.count("part") == 6
    assert service.steps.count("create") == service.steps.count("complete") == 1


async def test_a_failed_upload_leaves_no_parts(store_at):
    service = Service(part=lambda *_: s3_error(400, "InvalidArgument", "odd"))
    with pytest.raises(StoreError, match=r"UploadPart.*odd"):
        await put(store_at, service)
    assert "abort" in service.steps  # behind it a part that was on its way may still arrive


async def test_if_parts_cannot_be_removed_the_log_says_so(store_at, caplog):
    service = Service(complete=s3_error(400, "InvalidPart"), abort=s3_error(500, "InternalError"))
    with pytest.raises(StoreError, match="InvalidPart"):
        await put(store_at, service)
    assert "lifecycle" in caplog.text


@pytest.mark.parametrize(("status", "code"), [(412, "PreconditionFailed"), (409, "ConditionalRequestConflict")])
async def test_another_writer_was_first(store_at, status, code):
    service = Service(complete=s3_error(status, code))
    assert await put(store_at, service, if_absent=True) is False
    assert service.steps[0] == "describe"
    assert service.steps[-2:] == ["complete", "abort"]


async def test_where_there_is_an_object_nothing_is_uploaded(store_at):
    service = Service(describe=response(200, length=5))
    assert await put(store_at, service, if_absent=True) is False
    assert service.steps == ["describe"]


async def test_the_condition_goes_with_the_completion(store_at):
    with http_double(Service()) as server:
        store = store_at(server.endpoint)
        assert await store.put("k", b"0123456789ab", if_absent=True) is True
        assert await store.put("k", b"0123456789ab") is True
        await store.close()
        conditions = [
            a.headers.get("if-none-match") for a in server.asked if "uploadId" in a.path and a.method == "POST"
        ]
    assert conditions == ["*", None]


@pytest.mark.parametrize(("there", "once", "result"), [(True, False, True), (True, True, False), (False, False, None)])
async def test_an_answer_to_the_completion_that_got_lost(store_at, there, once, result):
    """The repeat finds no such upload; the object says whether the first one got through."""
    service = Service(
        complete=lambda _, n: s3_error(500, "InternalError") if n == 1 else s3_error(404, "NoSuchUpload"),
        describe=lambda _, n: response(200, length=16) if there and not (once and n == 1) else response(404),
    )
    if result is None:
        with pytest.raises(StoreError, match="NoSuchUpload"):
            await put(store_at, service)
    else:
        assert await put(store_at, service, if_absent=once) is result


async def test_large_objects_are_read_by_ranges(store_at):
    service = Service()
    assert await get(store_at, service) == BODY
    assert service.steps == ["read"] * (1 + -(-(len(BODY) - 4) // 4))


async def test_single_ranges_are_repeated_alone(store_at):
    busy = s3_error(503, "SlowDown")
    service = Service(read=lambda asked, n: busy if "range" in asked.headers and n in {3, 5} else None)
    assert await get(store_at, service) == BODY
    assert service.steps.count("read") == 8 + 2


async def test_an_object_that_changes_while_it_is_read_is_refused(store_at):
    changed = response(206, b"xxxx", headers='ETag: "another"\r\nContent-Range: bytes 8-11/30\r\n')
    service = Service(read=lambda asked, _: changed if asked.headers.get("range") == "bytes=8-11" else None)
    with pytest.raises(StoreError, match="replaced while it was read") as caught:
        await get(store_at, service)
    assert caught.value.retryable


async def test_a_range_that_comes_short_is_repeated(store_at):
    def short(asked, n):
        return response(206, b"xx", headers='ETag: "t"\r\n') if asked.headers.get("range") and n == 2 else None

    assert await get(store_at, Service(read=short)) == BODY


def test_pieces():
    assert [[bytes(v) for v in piece] for piece in slices([b"", b"abcdefgh"], 4)] == [[b"abcd"], [b"efgh"]]
    assert list(slices([], 4)) == []


@pytest.mark.parametrize("name", ["multipart_bytes", "part_bytes", "upload_parts"])
def test_limits_are_positive(name):
    with pytest.raises(InputError, match=name):
        Limits(**{name: 0})
