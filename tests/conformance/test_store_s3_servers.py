"""The S3 store on servers other than moto: the one suite, and what moto does not check.

Each runs where it is installed: radosgw by ``apt-get install radosgw ceph-mon ceph-osd ceph-common``, ministack by
``pip install ministack``.
"""

import asyncio
import dataclasses
import logging
import time
import uuid

import boto3
import numpy as np
import pytest
from s3_servers import RADOS_USER, ministack, ministack_program, missing_for_radosgw, radosgw

import serverless_gc as sgc
from serverless_gc.errors import ConfigError
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.store import S3Store, Store
from serverless_gc.testing.lambda_endpoint import LambdaEndpoint
from serverless_gc.testing.store_suite import StoreSuite
from serverless_gc.wire.sigv4 import Signer
from serverless_gc.worker.blobs import BlobError
from serverless_gc.worker.opening import open_blobs
from serverless_gc.worker.presigned import PresignedBlobs
from serverless_gc.worker.s3 import S3Blobs

pytestmark = pytest.mark.slow
MIB = 2**20


@pytest.fixture(scope="module")
def radosgw_endpoint(tmp_path_factory):
    if missing := missing_for_radosgw():
        pytest.skip(f"radosgw is not installed: no {missing}")
    with radosgw(tmp_path_factory.mktemp("radosgw")) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def ministack_endpoint(tmp_path_factory):
    if ministack_program() is None:
        pytest.skip("ministack is not installed")
    with ministack(tmp_path_factory.mktemp("ministack")) as endpoint:
        yield endpoint


@pytest.fixture
def new_bucket(monkeypatch, aws_environment):
    """Make a bucket on a server, as the user of this environment from then on."""

    def make(endpoint, **user):
        for name, value in {**aws_environment, **user}.items():
            monkeypatch.setenv(name, value)
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        client = boto3.session.Session().client("s3", endpoint_url=endpoint, region_name="us-east-1")
        client.create_bucket(Bucket=name)
        client.close()
        return name

    return make


class OnServer(StoreSuite):
    many = 1001
    big = 8 * MIB
    transport = "http"

    def make_store(self) -> Store:
        return S3Store(
            self.bucket,
            "runs/a prefix",
            region="us-east-1",
            endpoint=self.endpoint,
            concurrency=16,
            transport=self.transport,
        )


class TestRadosgw(OnServer):
    @pytest.fixture(autouse=True)
    def _bucket(self, radosgw_endpoint, new_bucket):
        self.endpoint, self.bucket = radosgw_endpoint, new_bucket(radosgw_endpoint, **RADOS_USER)


class TestRadosgwOverSdk(TestRadosgw):
    transport = "sdk"


class TestMinistack(OnServer):
    @pytest.fixture(autouse=True)
    def _bucket(self, ministack_endpoint, new_bucket):
        self.endpoint, self.bucket = ministack_endpoint, new_bucket(ministack_endpoint)


class TestMinistackOverSdk(TestMinistack):
    transport = "sdk"


# --- what radosgw alone checks -----------------------------------------------------------------------------------


@pytest.fixture
def rados_store(radosgw_endpoint, new_bucket):
    def make(**options):
        place = {"region": "us-east-1", "endpoint": radosgw_endpoint, **options}
        return S3Store(bucket, "runs/1", **place)

    bucket = new_bucket(radosgw_endpoint, **RADOS_USER)
    return make


@pytest.mark.parametrize("transport", ["http", "sdk"])
async def test_a_wrong_secret_is_refused(rados_store, monkeypatch, transport):
    store = rados_store(transport=transport)
    await store.put("k", b"content")
    await store.close()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guessed")
    store = rados_store(transport=transport)
    with pytest.raises(ConfigError, match=r"SignatureDoesNotMatch.*does not accept"):
        await store.get("k")
    await store.close()
    with pytest.raises(BlobError, match="SignatureDoesNotMatch") as caught:
        open_blobs(store.url).get("k")
    assert caught.value.kind == "denied"


async def test_the_workers_signatures_hold(rados_store):
    """Odd keys, long bodies, conditions: all that a worker signs by itself."""
    store = rados_store()
    blobs = open_blobs(store.url)
    assert isinstance(blobs, S3Blobs)
    key, body = "a b+c&d=e?f#g%20h/ünï~(1)*'", [b"x" * MIB, b"", memoryview(b"y")]

    def work():
        assert blobs.exists(key) is False
        assert blobs.put(key, body, if_absent=True) is True
        assert blobs.put(key, body, if_absent=True) is False
        assert blobs.exists(key) is True
        assert bytes(blobs.get(key)) == b"x" * MIB + b"y"
        assert bytes(blobs.get_range(key, MIB - 2, MIB + 1)) == b"xxy"

    await asyncio.to_thread(work)
    assert bytes(await store.get(key)) == b"x" * MIB + b"y"
    await store.close()


@pytest.mark.parametrize("transport", ["http", "sdk"])
async def test_large_objects(rados_store, transport):
    store = rados_store(transport=transport, limits=Limits(multipart_bytes=6 * MIB, part_bytes=5 * MIB))
    body = bytes(range(256)) * (12 * MIB // 256 + 1)
    assert await store.put("k", [body[:MIB], memoryview(body)[MIB:]]) is True
    assert bytes(await store.get("k")) == body
    assert await store.put("k", body, if_absent=True) is False
    assert await store.put("new", body, if_absent=True) is True
    await store.close()


async def urls_of(store, *requests, expires=60):
    made = await store.presign(requests, expires=expires)
    return {f"{method} {key}": url for (method, key), url in zip(requests, made, strict=True)}


async def test_presigned_urls_open_what_they_name_and_nothing_else(rados_store, monkeypatch):
    store = rados_store()
    await store.put("block ü", b"content")
    await store.put("secret", b"hidden")
    urls = await urls_of(store, ("GET", "block ü"), ("HEAD", "cancel"), ("PUT", "result"), ("GET", "result"))
    for name in RADOS_USER:
        monkeypatch.delenv(name)
    blobs = PresignedBlobs(urls)

    def work():
        assert bytes(blobs.get("block ü")) == b"content"
        assert bytes(blobs.get_range("block ü", 3, 5)) == b"te"
        assert blobs.exists("cancel") is False
        assert blobs.put("result", [b"a", b"b"], if_absent=True) is True
        assert blobs.put("result", b"other", if_absent=True) is False
        assert bytes(blobs.get("result")) == b"ab"
        # The condition is signed: whoever holds the URL cannot overwrite.
        with pytest.raises(BlobError) as caught:
            blobs.put("result", b"overwritten")
        assert caught.value.status == 403
        # Nor read another object, or write with a URL for reading.
        moved = PresignedBlobs({"GET secret": urls["GET block ü"].replace("block%20%C3%BC", "secret")})
        with pytest.raises(BlobError) as caught:
            moved.get("secret")
        assert caught.value.status == 403
        turned = PresignedBlobs({"PUT block ü": urls["GET block ü"]})
        with pytest.raises(BlobError) as caught:
            turned.put("block ü", b"overwritten")
        assert caught.value.status == 403

    await asyncio.to_thread(work)
    await store.close()


@pytest.fixture
def signed_long_ago(monkeypatch):
    """Let the next presigned URLs have been signed an hour ago: as many as the test says."""
    now = Signer.presign
    left = {"n": 0}

    def presign(self, *args, **kwargs):
        left["n"] -= 1
        return now(self, *args, **kwargs, now=time.time() - 3600 if left["n"] >= 0 else None)

    monkeypatch.setattr(Signer, "presign", presign)
    return left


async def test_presigned_urls_expire(rados_store, signed_long_ago):
    store = rados_store()
    await store.put("k", b"content")
    signed_long_ago["n"] = 3
    urls = await urls_of(store, ("GET", "k"), ("HEAD", "k"), ("PUT", "new"))
    blobs = PresignedBlobs(urls)
    for request in (lambda: blobs.get("k"), lambda: blobs.exists("k"), lambda: blobs.put("new", b"", if_absent=True)):
        with pytest.raises(BlobError, match="its URL has expired") as caught:
            await asyncio.to_thread(request)
        assert (caught.value.kind, caught.value.retryable) == ("unavailable", False)  # the next attempt brings another
        assert "Signature" not in str(caught.value)
    assert await store.head("new") is None
    await store.close()


@pytest.fixture
def rados_session(radosgw_endpoint, new_bucket, monkeypatch):
    """Sessions whose store is radosgw, and whose function has no credentials at all."""
    bucket = new_bucket(radosgw_endpoint, **RADOS_USER)
    without = {**dict.fromkeys(RADOS_USER, ""), "AWS_ENDPOINT_URL_S3": radosgw_endpoint}
    with LambdaEndpoint(("f",), environment=without) as function:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", radosgw_endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", function.url)
        yield lambda **options: sgc.Session("aws", bucket=bucket, function="f", region="us-east-1", **options)


def test_a_function_without_rights_computes_by_urls(rados_session, signed_long_ago, caplog):
    rng = np.random.default_rng(0)
    A, x = rng.standard_normal((40, 30)), rng.standard_normal((30, 200))
    caplog.set_level(logging.DEBUG)
    limits = dataclasses.replace(DEFAULT_LIMITS, reply_bytes=30_000)  # operand and results go through the store
    with rados_session(presigned=True, limits=limits) as s:
        data = s.encode(A, code="mds", n_workers=6, k=4)
        z, report = data.matvec(x, with_report=True)
        np.testing.assert_allclose(z, A @ x, rtol=1e-9)
        assert report.by_reference >= 4
        assert report.failed == 0
        signed_long_ago["n"] = 3  # the first task's: it fails, and its next attempt brings good ones
        z, report = data.matvec(x[:, 0], with_report=True)
        np.testing.assert_allclose(z, A @ x[:, 0], rtol=1e-9)
        said = str(report) + str(report.to_dict()) + caplog.text
        assert "X-Amz-Signature" not in said


def test_without_urls_it_cannot(rados_session):
    with rados_session() as s, pytest.raises(sgc.ConfigError, match="no AWS credentials"):
        s.encode(np.eye(6), code="mds", n_workers=6, k=4).matvec(np.ones(6))
