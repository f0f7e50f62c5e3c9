"""Both transports put the same requests on the wire, and botocore would have signed them the same."""

import re
from urllib.parse import urlsplit

import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials
import pytest

from serverless_gc.invoke import LambdaInvoker
from serverless_gc.store import S3Store
from serverless_gc.testing.http_double import http_double, response
from serverless_gc.types import TaskSpec

SECRET = "wJalrXUt/EXAMPLE+KEY"
TOKENS = ["", "FwoGZXIvYXdzEXAMPLE//token=="]
# What aiobotocore adds: for its own telemetry and retries, to wait for leave before a body, the body's type.
SDK_ONLY = {"amz-sdk-invocation-id", "amz-sdk-request", "expect"}
OF_THE_CLIENT = {"user-agent", "x-amz-date", "authorization", "accept", "accept-encoding"}


pytestmark = pytest.mark.usefixtures("aws_environment")


@pytest.fixture(params=TOKENS, ids=["long-term", "session"])
def token(request, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    if request.param:
        monkeypatch.setenv("AWS_SESSION_TOKEN", request.param)
    return request.param


def check_signature(server, asked, auth, service, region, token):
    """Sign what was asked again, by botocore, at the time at which it was signed."""
    signed = re.search(r"SignedHeaders=([^,]*),", asked.headers["authorization"]).group(1).split(";")
    headers = {name: asked.headers[name] for name in signed if name != "host"}
    request = botocore.awsrequest.AWSRequest(asked.method, server.endpoint + asked.path, headers=headers)
    request.data = asked.body
    request.context["timestamp"] = asked.headers["x-amz-date"]
    request.context["client_config"] = botocore.config.Config(s3={"payload_signing_enabled": False})
    signer = auth(botocore.credentials.Credentials("AKIDEXAMPLE", SECRET, token or None), service, region)
    string = signer.string_to_sign(request, signer.canonical_request(request))
    assert asked.headers["authorization"].endswith(f"Signature={signer.signature(string, request)}")
    assert asked.headers.get("x-amz-security-token", "") == token
    return set(signed)


def what_matters(asked):
    headers = {n: v for n, v in asked.headers.items() if n not in SDK_ONLY | OF_THE_CLIENT}
    path = urlsplit(asked.path)
    return asked.method, path.path, sorted(path.query.split("&")), headers, asked.body


async def s3_requests(server, transport):
    store = S3Store("bucket", "runs/a b+ü", region="eu-west-1", endpoint=server.endpoint, transport=transport)
    before = len(server.asked)
    await store.get("k~/(1)*'!")
    await store.put("k", [b"ab", memoryview(b"cd")])
    await store.put("empty", b"")
    await store.put("once", b"x" * 3_000_000, if_absent=True)
    opened = await store._connected().opened()
    await opened.transport.read_range("a name", 5, memoryview(bytearray(7)))
    await opened.transport.write_part("a name", "upload+id/=", 12, [b"part"])
    await store.close()
    return server.asked[before:]


async def test_s3(token):
    def answer(asked, _):
        return response(200, b"content" if asked.method == "GET" else b"", headers='ETag: "t"\r\n')

    with http_double(answer) as server:
        ours, theirs = [await s3_requests(server, transport) for transport in ("http", "sdk")]
        for mine, reference in zip(ours, theirs, strict=True):
            method, path, query, headers, body = what_matters(mine)
            reference_headers = what_matters(reference)[3]
            # We ask for the object as it is, name no type that nobody reads, and send a length where there is a body.
            assert headers.items() <= reference_headers.items() | {("content-type", "application/octet-stream")}
            assert set(reference_headers) - set(headers) <= {"content-type", "content-length"}
            assert (method, path, query, body) == (*what_matters(reference)[:3], reference.body)
            signed = check_signature(server, mine, botocore.auth.S3SigV4Auth, "s3", "eu-west-1", token)
            assert signed <= check_signature(server, reference, botocore.auth.S3SigV4Auth, "s3", "eu-west-1", token)


@pytest.mark.parametrize("function", ["worker", "arn:aws:lambda:eu-west-1:123456789012:function:my-worker"])
@pytest.mark.parametrize("qualifier", [None, "live 1"])
async def test_lambda(token, function, qualifier):
    asked = []
    with http_double(lambda *_: response(200, b'{"sgc":"AAAA"}')) as server:
        for transport in ("http", "sdk"):
            place = {"region": "eu-west-1", "endpoint": server.endpoint, "transport": transport}
            invoker = LambdaInvoker(function, qualifier=qualifier, **place)
            await invoker.open()
            await invoker.invoke(TaskSpec("t", 0, 0), b"a frame", timeout=10.0)
            await invoker.invoke(TaskSpec("t", 0, 0), bytes(2_000_000), timeout=10.0)
            await invoker.close()
        asked = server.asked
        for mine, reference in zip(asked[:2], asked[2:], strict=True):
            assert what_matters(mine)[:3] == what_matters(reference)[:3]
            assert mine.body == reference.body
            for one in (mine, reference):
                check_signature(server, one, botocore.auth.SigV4Auth, "lambda", "eu-west-1", token)
