"""S3 for a worker, by ``http.client``: boto3 would add a quarter of a second to every cold start.

Where things come from, first found wins:

* region: the URL, ``AWS_REGION``, ``AWS_DEFAULT_REGION``, ``us-east-1``;
* endpoint: the URL, ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``, AWS itself. Own endpoints are addressed as
  ``endpoint/bucket/key``, AWS as ``bucket.s3.region.amazonaws.com``;
* credentials: the environment, read at each request.

Nothing is repeated here but a request on a kept connection that the server had closed meanwhile; see
`serverless_gc.worker.retry` for the rest.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from serverless_gc.wire.sigv4 import UNSIGNED_PAYLOAD, Credentials, Signer, encode_path
from serverless_gc.worker.blobs import BlobError, BlobNotFound, Buffer, buffers

__all__ = ["CONNECT_TIMEOUT", "READ_TIMEOUT", "S3Blobs", "open_s3"]

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0
_RETRYABLE_STATUS = frozenset({429, 500, 502, 503, 504})
_RETRYABLE_CODES = frozenset({"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "OperationAborted"})
_MOST_ERROR_BYTES = 65536


def _connect(scheme: str, host: str, timeout: float) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, timeout=timeout)
    import ssl  # loading the certificates takes 30 ms

    context = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
    return http.client.HTTPSConnection(host, timeout=timeout, context=context)


def _read(response: http.client.HTTPResponse) -> memoryview:
    """Read a body into one buffer of its announced length."""
    if not response.length:  # chunked, or empty
        return memoryview(response.read())
    view: memoryview = np.empty(response.length, np.uint8).data
    done = 0
    while done < len(view):
        n = response.readinto(view[done:])
        if not n:
            raise http.client.IncompleteRead(b"", len(view) - done)
        done += n
    return view


def _close_all(idle: deque[http.client.HTTPConnection]) -> None:
    while idle:
        idle.pop().close()


class S3Blobs:
    """Objects of one bucket below one prefix. Safe among threads: a connection serves one request at a time.

    Parameters
    ----------
    bucket, prefix
        Where; the prefix has no slash at its ends.
    region
        Of the bucket.
    endpoint
        ``scheme://host[:port]`` of an S3 that is not AWS's, or empty.
    credentials
        Called at each request.
    connect_timeout, read_timeout
        Seconds to wait for a connection, and for the next bytes of an answer.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        region: str,
        endpoint: str = "",
        credentials: Callable[[], Credentials] = Credentials.from_environment,
        connect_timeout: float = CONNECT_TIMEOUT,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        self.bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._region = region
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        # A certificate for *.s3... does not cover a bucket name with dots.
        own_host = "." not in bucket and not endpoint
        url = endpoint or (f"https://{bucket}.s3.{region}.{suffix}" if own_host else f"https://s3.{region}.{suffix}")
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc or "@" in parts.netloc:
            raise ValueError(f"the endpoint must look like https://host:port, without user and password, got {url!r}")
        default_port = ":80" if parts.scheme == "http" else ":443"
        self._scheme, self._host = parts.scheme, parts.netloc.removesuffix(default_port)  # as in the Host header
        self._base = parts.path.rstrip("/") + "/" + ("" if own_host else bucket + "/")
        self._signer = Signer("s3", region)
        self._credentials = credentials
        self._connect_timeout, self._read_timeout = connect_timeout, read_timeout
        self._idle: deque[http.client.HTTPConnection] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def get(self, key: str) -> memoryview:
        """Read one object."""
        status, answer, body = self._request("GET", key)
        if status != 200:
            raise self._error("GET", key, status, answer, body)
        return body

    def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object; ``if_absent`` is S3's own ``If-None-Match: *``."""
        parts = buffers(data)
        headers = {"Content-Length": str(sum(memoryview(part).nbytes for part in parts))}
        if if_absent:
            headers["If-None-Match"] = "*"
        status, answer, body = self._request("PUT", key, parts, headers)
        if status == 200:
            return True
        if if_absent and status in {409, 412}:  # 409: another conditional write is under way
            return False
        raise self._error("PUT", key, status, answer, body)

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        status, answer, body = self._request("HEAD", key)
        if status in {200, 404}:
            return status == 200
        raise self._error("HEAD", key, status, answer, body)

    def close(self) -> None:
        """Close idle connections, as the end of the object does."""
        _close_all(self._idle)

    def _request(
        self, method: str, key: str, body: Sequence[Buffer] = (), headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], memoryview]:
        path = encode_path(self._base + self._prefix + key)
        signed = self._signer.sign(
            method,
            self._host,
            path,
            credentials=self._credentials(),
            headers=headers,
            payload_hash=UNSIGNED_PAYLOAD,  # every object is a frame with its own checksum
        )
        while True:
            kept = self._take_idle()
            try:
                return self._exchange(kept or self._open(), method, path, body, signed)
            except (OSError, http.client.HTTPException) as error:
                # A kept connection may have been closed by the server meanwhile; a fresh one comes at last.
                if kept is None or not isinstance(error, ConnectionError):
                    raise self._broken(method, key, error) from error

    def _take_idle(self) -> http.client.HTTPConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Sequence[Buffer], headers: Any
    ) -> tuple[int, Mapping[str, str], memoryview]:
        try:
            connection.request(method, path, body=body or None, headers=headers)
            response = connection.getresponse()
            refused = response.status >= 300
            content = memoryview(response.read(_MOST_ERROR_BYTES)) if refused else _read(response)
        except BaseException:
            connection.close()
            raise
        answer = {name.lower(): value for name, value in response.headers.items()}
        if response.isclosed() and not response.will_close:
            self._idle.append(connection)
        else:
            response.close()
            connection.close()
        return response.status, answer, content

    def _open(self) -> http.client.HTTPConnection:
        connection = _connect(self._scheme, self._host, self._connect_timeout)
        try:
            connection.connect()
        except TimeoutError:
            # Not retryable: three SYN packets have been lost by now, more of the same costs billed time.
            raise BlobError(
                f"no connection to {self._host} within {self._connect_timeout:g} s; a function inside a VPC reaches S3 "
                f"only through a gateway endpoint for S3 or a NAT: add one, or take the function out of the VPC"
            ) from None
        connection.sock.settimeout(self._read_timeout)
        return connection

    def _broken(self, method: str, key: str, error: Exception) -> BlobError:
        retryable = not isinstance(error, ValueError)  # a certificate that is refused once is refused again
        if isinstance(error, socket.gaierror):
            retryable = error.errno == socket.EAI_AGAIN
        return BlobError(
            f"{method} {self._name(key)}: {type(error).__name__}: {error} (endpoint {self._scheme}://{self._host})",
            retryable=retryable,
        )

    def _name(self, key: str) -> str:
        return f"s3://{self.bucket}/{self._prefix}{key}"

    def _error(self, method: str, key: str, status: int, answer: Mapping[str, str], body: memoryview) -> BlobError:
        text = bytes(body).decode("utf-8", "replace")
        code, words = (
            match.group(1) if (match := re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)) else ""
            for tag in ("Code", "Message")
        )
        message = f"S3 answered {status} {code or http.client.responses.get(status, '')} to {method} {self._name(key)}"
        if words:
            message += f": {words}"
        if status == 404 and code != "NoSuchBucket":
            return BlobNotFound(message, status=status, code=code or "NoSuchKey")
        kind = "unavailable"
        if status == 404:
            kind = "missing"
            message += f"; there is no bucket {self.bucket!r}"
        elif status in {301, 307} or code == "AuthorizationHeaderMalformed":
            kind = "denied"
            place = answer.get("x-amz-bucket-region", "another region")
            message += f"; the bucket is in {place}, the worker asked in {self._region}"
        elif status in {401, 403} or code in {"ExpiredToken", "InvalidToken"}:
            kind = "denied"
            if code in {"", "AccessDenied"}:
                message += "; S3 says so of a missing object too when the role may not s3:ListBucket the bucket"
        retryable = status in _RETRYABLE_STATUS or code in _RETRYABLE_CODES
        return BlobError(message, kind=kind, retryable=retryable, status=status, code=code)


@lru_cache(maxsize=16)
def _opened(_pid: int, bucket: str, prefix: str, region: str, endpoint: str) -> S3Blobs:
    return S3Blobs(bucket, prefix, region=region, endpoint=endpoint)


def open_s3(bucket: str, prefix: str = "", region: str = "", endpoint: str = "") -> S3Blobs:
    """Open a bucket; the same place gives the same object and so its open connections, in one process."""
    env = os.environ
    return _opened(
        os.getpid(),  # a forked child must not talk on its parent's sockets
        bucket,
        prefix,
        region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1",
        endpoint or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or "",
    )
