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

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from serverless_gc.wire.sigv4 import UNSIGNED_PAYLOAD, Credentials, Signer, encode_path
from serverless_gc.worker.blobs import Buffer
from serverless_gc.worker.connections import CONNECT_TIMEOUT, READ_TIMEOUT, Answer, Connections
from serverless_gc.worker.s3_objects import S3Objects

__all__ = ["S3Blobs", "open_s3"]


class S3Blobs(S3Objects):
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
        self._connections = Connections(
            self._scheme, self._host, connect_timeout=connect_timeout, read_timeout=read_timeout
        )

    def close(self) -> None:
        """Close idle connections, as the end of the object does."""
        self._connections.close()

    def _request(self, method: str, key: str, body: Sequence[Buffer], headers: Mapping[str, str]) -> Answer:
        path = encode_path(self._base + self._prefix + key)
        signed = self._signer.sign(
            method,
            self._host,
            path,
            credentials=self._credentials(),
            headers=headers,
            payload_hash=UNSIGNED_PAYLOAD,  # every object is a frame with its own checksum
        )
        return self._sent(self._connections, path, method, key, body, signed)

    def _name(self, key: str) -> str:
        return f"s3://{self.bucket}/{self._prefix}{key}"

    def _elsewhere(self, place: str) -> str:
        return f"; the bucket is in {place}, the worker asked in {self._region}"


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
