"""What the hot path does by itself: signatures, sockets, parameters. Nothing is sent."""

import socket

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest

from serverless_gc.errors import InputError
from serverless_gc.invoke.aws import LambdaInvoker
from serverless_gc.invoke.transport import HttpTransport, keepalive_socket


@pytest.mark.parametrize("token", [None, "session/token+with=signs"])
@pytest.mark.parametrize("function", ["worker", "arn:aws:lambda:eu-west-1:123456789012:function:my-worker"])
def test_requests_are_signed_as_botocore_signs_them(function, token):
    transport = HttpTransport(
        endpoint="https://lambda.eu-west-1.amazonaws.com",
        region="eu-west-1",
        credentials=None,
        function=function,
        qualifier="live 1",
        connections=1,
        connect_timeout=1.0,
        read_timeout=1.0,
        verify="",
    )
    frozen = botocore.credentials.ReadOnlyCredentials("AKIDEXAMPLE", "secret", token)
    body = b'{"sgc":"AAAA"}'
    mine = transport._sign(frozen, body)
    # botocore signs the time at which it signs: it is asked to sign ours.
    theirs = botocore.awsrequest.AWSRequest("POST", str(transport._url), data=body)
    signer = botocore.auth.SigV4Auth(frozen, "lambda", "eu-west-1")
    theirs.context["timestamp"] = mine["X-Amz-Date"]
    theirs.headers["X-Amz-Date"] = mine["X-Amz-Date"]
    if token:
        theirs.headers["X-Amz-Security-Token"] = token
    canonical = signer.canonical_request(theirs)
    signature = signer.signature(signer.string_to_sign(theirs, canonical), theirs)
    assert mine["Authorization"].endswith(f"Signature={signature}")
    assert mine.get("X-Amz-Security-Token") == token


def test_idle_connections_are_probed_before_networks_drop_them():
    with keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ())) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 300


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"function": ""}, "function"),
        ({"concurrency": 0}, "concurrency"),
        ({"connect_timeout": 0.0}, "connect_timeout"),
        ({"transport": "carrier pigeon"}, "transport"),
    ],
)
def test_parameters_are_checked(options, named):
    with pytest.raises(InputError, match=named):
        LambdaInvoker(**{"function": "worker", **options})
