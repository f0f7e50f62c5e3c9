"""Our signer against botocore's, byte for byte."""

from __future__ import annotations

import datetime as dt
from hashlib import sha256
from unittest.mock import patch
from urllib.parse import quote

import botocore.auth
import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.wire.sigv4 import (
    EMPTY_SHA256,
    UNSIGNED_PAYLOAD,
    Credentials,
    Signer,
    encode_path,
    encode_query,
)

printable = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters="\x7f"), max_size=12)
tokens = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789-", min_size=1, max_size=10)
# HTTP clients strip values; inner runs of blanks are the signer's business.
values = st.text("ab C\t,;=/0'\"é", max_size=12).map(str.strip)
# Names differ by more than case: HTTP knows no difference, and what a client makes of such a pair is its own affair.
named = st.lists(
    st.tuples(tokens.map(lambda t: "x-amz-meta-" + t), values), max_size=4, unique_by=lambda h: h[0].lower()
)
headers = named.map(dict).flatmap(
    lambda d: st.sampled_from([d, d | {"User-Agent": "me"}, d | {"Content-Type": "a/b", "TE": "x"}])
)
times = st.integers(0, 4_000_000_000)


def botocore_headers(auth_class, service, *, method, url, headers, token, body, now, context=None):
    request = AWSRequest(method=method, url=url, headers=headers, data=body)
    request.context.update(context or {})
    auth = auth_class(BotoCredentials("AKIDEXAMPLE", "wJalrXUt/EXAMPLE+KEY", token or None), service, "eu-west-1")
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    with patch.object(botocore.auth, "get_current_datetime", lambda: moment):
        auth.add_auth(request)
    return dict(request.headers.items())


def ours(service, *, method, host, path, query, headers, token, payload_hash, now):
    return Signer(service, "eu-west-1").sign(
        method,
        host,
        path,
        query,
        credentials=Credentials("AKIDEXAMPLE", "wJalrXUt/EXAMPLE+KEY", token),
        headers=headers,
        payload_hash=payload_hash,
        now=now,
    )


@given(
    method=st.sampled_from(["GET", "PUT", "HEAD", "DELETE"]),
    key=printable,
    query=st.lists(st.tuples(printable, printable), max_size=4),
    headers=headers,
    token=st.sampled_from(["", "FwoGZXIvYXdzEXAMPLE//token=="]),
    unsigned=st.booleans(),
    now=times,
)
@settings(max_examples=200, deadline=None)
def test_s3_signatures_are_botocores(method, key, query, headers, token, unsigned, now):
    path, encoded = encode_path("/bucket/" + key), encode_query(query)
    host = "bucket.s3.eu-west-1.amazonaws.com"
    url = f"https://{host}{path}" + (f"?{encoded}" if encoded else "")
    config = Config(s3={"payload_signing_enabled": not unsigned})
    theirs = botocore_headers(
        S3SigV4Auth, "s3", method=method, url=url, headers=headers, token=token, body=b"", now=now,
        context={"client_config": config},
    )  # fmt: skip
    mine = ours(
        "s3", method=method, host=host, path=path, query=encoded, headers=headers, token=token, now=now,
        payload_hash=UNSIGNED_PAYLOAD if unsigned else EMPTY_SHA256,
    )  # fmt: skip
    assert mine == theirs


@given(
    function=printable,
    segments=st.lists(st.sampled_from(["", ".", "..", "a", "b c", "é"]), max_size=5),
    query=st.lists(st.tuples(printable, printable), max_size=3),
    headers=headers,
    token=st.sampled_from(["", "session"]),
    body=st.binary(max_size=20),
    now=times,
)
@settings(max_examples=200, deadline=None)
def test_lambda_signatures_are_botocores(function, segments, query, headers, token, body, now):
    path = f"/2015-03-31/functions/{quote(function, safe='')}/invocations" + encode_path("/".join(["", *segments]))
    encoded, host = encode_query(query), "lambda.eu-west-1.amazonaws.com"
    url = f"https://{host}{path}" + (f"?{encoded}" if encoded else "")
    theirs = botocore_headers(
        SigV4Auth, "lambda", method="POST", url=url, headers=headers, token=token, body=body, now=now
    )
    mine = ours(
        "lambda", method="POST", host=host, path=path, query=encoded, headers=headers, token=token, now=now,
        payload_hash=sha256(body).hexdigest(),
    )  # fmt: skip
    assert mine == theirs


@given(
    method=st.sampled_from(["GET", "PUT", "HEAD"]),
    key=printable,
    headers=headers,
    once=st.booleans(),
    token=st.sampled_from(["", "FwoGZXIvYXdzEXAMPLE//token=="]),
    expires=st.integers(1, 604800),
    now=times,
)
@settings(max_examples=200, deadline=None)
def test_presigned_urls_are_botocores(method, key, headers, once, token, expires, now):
    path, host = encode_path("/bucket/" + key), "bucket.s3.eu-west-1.amazonaws.com"
    headers = headers | ({"If-None-Match": "*"} if once else {})
    request = AWSRequest(method=method, url=f"https://{host}{path}", headers=headers)
    credentials = BotoCredentials("AKIDEXAMPLE", "wJalrXUt/EXAMPLE+KEY", token or None)
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    with patch.object(botocore.auth, "get_current_datetime", lambda: moment):
        S3SigV4QueryAuth(credentials, "s3", "eu-west-1", expires=expires).add_auth(request)
    mine = Signer("s3", "eu-west-1").presign(
        method,
        host,
        path,
        credentials=Credentials("AKIDEXAMPLE", "wJalrXUt/EXAMPLE+KEY", token),
        expires=expires,
        headers=headers,
        now=now,
    )
    assert f"https://{host}{path}?{mine}" == request.url


def test_the_port_is_signed_when_it_is_not_the_schemes_own():
    theirs = botocore_headers(
        S3SigV4Auth, "s3", method="GET", url="http://127.0.0.1:5000/b/k", headers={}, token="", body=b"", now=1
    )
    mine = ours(
        "s3", method="GET", host="127.0.0.1:5000", path="/b/k", query="", headers={}, token="", now=1,
        payload_hash=EMPTY_SHA256,
    )  # fmt: skip
    assert mine == theirs


def test_the_example_of_the_aws_documentation():
    """GET Object of "Authenticating Requests: Using the Authorization Header"."""
    mine = Signer("s3", "us-east-1").sign(
        "GET",
        "examplebucket.s3.amazonaws.com",
        "/test.txt",
        credentials=Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        headers={"Range": "bytes=0-9"},
        now=1369353600,
    )
    assert mine["Authorization"].endswith("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


def test_the_signing_key_follows_day_and_secret():
    signer = Signer("s3", "eu-west-1")

    def signature(secret, now):
        signed = signer.sign("GET", "h", "/k", credentials=Credentials("A", secret), now=now)
        return signed["Authorization"].rpartition("=")[2]

    seen = [signature("s1", 0), signature("s1", 86400), signature("s2", 86400), signature("s1", 0)]
    fresh = Signer("s3", "eu-west-1").sign("GET", "h", "/k", credentials=Credentials("A", "s2"), now=86400)
    assert len(set(seen)) == 3
    assert seen[0] == seen[3]
    assert fresh["Authorization"].endswith(seen[2])


def test_credentials_come_from_the_environment_and_are_not_shown():
    environment = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "veiled"}
    credentials = Credentials.from_environment(environment)
    assert (credentials.access_key, credentials.secret_key, credentials.token) == ("AKID", "hidden", "veiled")
    assert "hidden" not in repr(credentials)
    assert "veiled" not in repr(credentials)
    with pytest.raises(PermissionError, match="AWS_ACCESS_KEY_ID"):
        Credentials.from_environment({"AWS_ACCESS_KEY_ID": "AKID"})
