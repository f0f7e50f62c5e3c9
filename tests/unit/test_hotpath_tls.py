"""The hot path over TLS: whom it trusts, and that connections opened ahead are the ones that are used."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from serverless_gc.errors import InvokeError, StoreError
from serverless_gc.invoke import LambdaInvoker
from serverless_gc.store import S3Store, StoreRetry
from serverless_gc.types import TaskSpec

pytestmark = pytest.mark.usefixtures("aws_environment")

REPLY = b'{"sgc":"AAAA"}'


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate of 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "bundle.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return str(path)


@contextlib.asynccontextmanager
async def tls_server(certificate):
    """Answer every request the same, and count connections."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    seen = {"connections": 0, "requests": 0}

    async def serve(reader, writer):
        seen["connections"] += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(v) for n, _, v in map(_field, head.split(b"\r\n")) if n == b"content-length"), 0)
                await reader.readexactly(length)
                seen["requests"] += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(REPLY), REPLY))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
    finally:
        server.close()


def _field(line):
    name, colon, value = line.partition(b":")
    return name.lower(), colon, value


@pytest.mark.parametrize("transport", ["http", "sdk"])
async def test_a_bundle_of_ones_own_is_trusted(certificate, monkeypatch, transport):
    monkeypatch.setenv("AWS_CA_BUNDLE", certificate)
    async with tls_server(certificate) as (url, seen):
        store = S3Store("bucket", region="us-east-1", endpoint=url, transport=transport)
        assert bytes(await store.get("k")) == REPLY
        await store.close()
        invoker = LambdaInvoker("f", region="us-east-1", endpoint=url, concurrency=6, transport=transport)
        await invoker.open()
        ahead = await invoker.connect(6)
        before = seen["connections"]
        for _ in range(2):
            await asyncio.gather(*(invoker.invoke(TaskSpec(f"t{i}", i, 0), b"x", timeout=30.0) for i in range(6)))
        if transport == "http":
            assert ahead == 6
            assert seen["connections"] == before  # no handshake was left for the invocations
        await invoker.close()
    assert seen["requests"] == 13


@pytest.mark.parametrize("transport", ["http", "sdk"])
async def test_others_are_not(certificate, monkeypatch, transport):
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    async with tls_server(certificate) as (url, seen):
        store = S3Store("bucket", region="us-east-1", endpoint=url, transport=transport, retry=StoreRetry(attempts=3))
        with pytest.raises(StoreError, match=r"(?i)certificate") as caught:
            await store.get("k")
        assert not caught.value.retryable
        await store.close()
        invoker = LambdaInvoker("f", region="us-east-1", endpoint=url, transport=transport)
        await invoker.open()
        assert await invoker.connect(2) == 0
        with pytest.raises(InvokeError, match=r"(?i)certificate") as refused:
            await invoker.invoke(TaskSpec("t", 0, 0), b"x", timeout=30.0)
        assert (refused.value.reason, refused.value.may_have_run) == ("cannot connect", False)
        await invoker.close()
    assert seen["requests"] == 0
