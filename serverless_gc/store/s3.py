"""A store in a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import numpy as np

from serverless_gc.aws.access import find_region, make_session
from serverless_gc.errors import InputError, LimitError, ObjectNotFound, StoreError
from serverless_gc.limits import DEFAULT_LIMITS, PRESIGNED_SECONDS, Limits
from serverless_gc.store import s3_large
from serverless_gc.store.base import ObjectInfo, Store
from serverless_gc.store.keys import check_key, check_range, parts_of
from serverless_gc.store.retry import Billed, Retrier, StoreRetry, StoreStats
from serverless_gc.store.s3_connection import Connection, Opened, Options
from serverless_gc.store.s3_errors import RETRYABLE_CODES, Refused
from serverless_gc.types import Buffer

__all__ = ["S3Store"]

_T = TypeVar("_T")
_BILLED: Mapping[str, Billed] = {"GetObject": "read", "HeadObject": "read", "AbortMultipartUpload": "free"}


class S3Store(Store):
    """Objects of one bucket below a prefix.

    Blocks and results travel by ``transport``, everything else through aiobotocore. Large objects are written in parts
    and read by ranges, see `Limits`. Nothing is contacted before the first request. The store belongs to the event
    loop of that request until it is closed. Repeats are this store's own; botocore's are switched off.

    Parameters
    ----------
    bucket
        Name of an existing bucket.
    prefix
        What all keys begin with, without slashes at its ends; empty for the whole bucket.
    region
        Region of the bucket; by default ``AWS_DEFAULT_REGION``, what the profile says, or ``AWS_REGION``.
    endpoint
        ``scheme://host:port`` of an S3 that is not AWS's; by default ``AWS_ENDPOINT_URL_S3`` or
        ``AWS_ENDPOINT_URL``, if set. Without user name and password: the URL is given to workers and logged.
    profile
        Profile of the AWS configuration.
    session
        An ``aiobotocore.session.AioSession`` with credentials of your own, refreshable ones included; then ``profile``
        is not looked at.
    concurrency
        Most requests at once, and size of the connection pool. A request waits for its turn before it is signed.
    transport
        ``"http"``: aiohttp with this package's signer. ``"sdk"``: aiobotocore, the reference.
    limits, retry
        Service limits, and what to do about requests that fail for the moment.

    Raises
    ------
    InputError
        If bucket, prefix or endpoint cannot be right.

    Examples
    --------
    >>> S3Store("bucket", "runs/a b", region="eu-west-1").url
    's3://bucket/runs/a%20b?region=eu-west-1'
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        region: str | None = None,
        endpoint: str | None = None,
        profile: str | None = None,
        session: Any = None,
        concurrency: int = 64,
        transport: Literal["http", "sdk"] = "http",
        limits: Limits = DEFAULT_LIMITS,
        retry: StoreRetry = StoreRetry(),  # noqa: B008 - frozen
    ) -> None:
        if not bucket or "/" in bucket:
            raise InputError(f"bucket must be a bucket's name, got {bucket!r}")
        if prefix:
            check_key(prefix)
        if endpoint is not None and (not urlsplit(endpoint).hostname or "@" in urlsplit(endpoint).netloc):
            raise InputError("endpoint must look like https://host:port, without user name and password")
        if concurrency < 1:
            raise InputError(f"concurrency must be at least 1, got {concurrency}")
        if transport not in {"http", "sdk"}:
            raise InputError(f"transport must be 'http' or 'sdk', got {transport!r}")
        self.bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._region = region
        self._endpoint = endpoint
        self._profile = profile
        self._session = session
        self._concurrency = concurrency
        self._transport = transport
        self._limits = limits
        self._retrier = Retrier(retry)
        self._connection: Connection | None = None

    @classmethod
    def open(cls, url: str, **options: Any) -> S3Store:
        """Open ``s3://bucket/prefix?region=...&endpoint=...``; both fields may be absent.

        Raises
        ------
        InputError
            If it is not such a URL.
        """
        parts = urlsplit(url)
        fields = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.scheme != "s3" or not parts.netloc or fields.keys() - {"region", "endpoint"}:
            raise InputError(f"store URL must look like s3://bucket/prefix?region=...&endpoint=..., got {url!r}")
        return cls(parts.netloc, unquote(parts.path).strip("/"), **{**fields, **options})

    @property
    def url(self) -> str:
        """What a worker opens; it holds no secret."""
        fields = {"region": self._resolved_region(), "endpoint": self._endpoint}
        query = urlencode({name: value for name, value in fields.items() if value})
        return f"s3://{self.bucket}/{quote(self._prefix.rstrip('/'))}" + (f"?{query}" if query else "")

    @property
    def stats(self) -> StoreStats:
        """Repeated requests and answers 503 so far."""
        return self._retrier.stats

    async def get(self, key: str) -> Buffer:
        """Read one object."""
        return await s3_large.read(self._request, key, self._prefix + check_key(key), self._limits)

    async def get_range(self, key: str, start: int, stop: int) -> Buffer:
        """Read a part of one object, in one request."""
        check_range(start, stop)
        into: memoryview = np.empty(stop - start, np.uint8).data
        name = self._prefix + check_key(key)
        await self._request("GetObject", key, lambda opened: opened.transport.read_range(name, start, into))
        return into

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object; ``if_absent`` is S3's ``If-None-Match: *``.

        False may also mean that this very call wrote the object, if its first answer was lost and it was repeated.
        """
        name = self._prefix + check_key(key)
        parts = parts_of(data)
        size = sum(memoryview(part).nbytes for part in parts)
        if size > self._limits.object_bytes:
            raise LimitError(
                f"object {key!r} has {size} bytes, S3 takes {self._limits.object_bytes} in one request: "
                "use more, smaller blocks"
            )
        if size > self._limits.multipart_bytes:
            return await s3_large.write(self._request, key, self.bucket, name, parts, self._limits, if_absent=if_absent)

        async def write(opened: Opened) -> bool:
            try:
                await opened.transport.write(name, parts, if_absent=if_absent)
            except Refused as refused:
                if if_absent and refused.status in {409, 412}:
                    return False  # 409: another conditional write of this key is under way
                raise
            return True

        return await self._request("PutObject", key, write)

    async def presign(self, requests: Sequence[tuple[str, str]], *, expires: int) -> Sequence[str]:
        """Return a URL for each request, with which its holder may make it until it expires.

        Whoever holds a URL has the right: treat it as a secret.

        Parameters
        ----------
        requests
            Method (``"GET"``, ``"HEAD"`` or ``"PUT"``) and key of each. A PUT must come with ``If-None-Match: *``:
            it writes once.
        expires
            Seconds from now, at most a week; a URL ends with the credentials that signed it, too.

        Raises
        ------
        InputError
            If ``expires`` or a key cannot be right.
        ConfigError
            If there are no credentials to sign with.
        """
        if not 1 <= expires <= PRESIGNED_SECONDS:
            raise InputError(f"expires must be from 1 to {PRESIGNED_SECONDS} seconds, got {expires}")
        names = [(method, self._prefix + check_key(key)) for method, key in requests]
        return await self._connected().presign(names, expires)

    async def head(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        name = self._prefix + check_key(key)

        async def describe(opened: Opened) -> ObjectInfo:
            answer = await opened.client.head_object(Bucket=self.bucket, Key=name)
            return ObjectInfo(key, answer["ContentLength"], answer["LastModified"].timestamp())

        try:
            return await self._request("HeadObject", key, describe)
        except ObjectNotFound:
            return None

    async def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Delete objects, `Limits.delete_batch` in one request; those that S3 was too busy for are tried again."""
        remaining = iter(keys)
        failed: dict[str, str] = {}
        while batch := list(islice(remaining, self._limits.delete_batch)):
            failed |= await self._delete_batch(batch)
        return failed

    async def _delete_batch(self, batch: list[str]) -> dict[str, str]:
        left = batch
        reasons: dict[str, str] = {}

        async def request() -> None:
            nonlocal left
            errors = await self._connected().attempt("DeleteObjects", "", lambda o: self._delete_once(o.client, left))
            reasons.update({key: f"{code}: {words}" for key, (code, words) in errors.items()})
            for key in set(left) - errors.keys():
                reasons.pop(key, None)
            left = [key for key, (code, _) in errors.items() if code in RETRYABLE_CODES]
            if left:
                status = 503 if any(errors[key][0] == "SlowDown" for key in left) else 0
                raise StoreError(f"{len(left)} objects not deleted yet", key=left[0], retryable=True, status=status)

        try:
            await self._retrier.run(request, "free")
        except StoreError:
            if any(key not in reasons for key in left):
                raise  # a request failed as a whole: S3 has not said anything about these keys
        return reasons

    async def _delete_once(self, client: Any, keys: list[str]) -> dict[str, tuple[str, str]]:
        names = [{"Key": self._prefix + check_key(key)} for key in keys]
        answer = await client.delete_objects(Bucket=self.bucket, Delete={"Objects": names, "Quiet": True})
        return {
            e["Key"].removeprefix(self._prefix): (e.get("Code", ""), e.get("Message", ""))
            for e in answer.get("Errors", [])
        }

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Iterate over objects, a thousand a request."""
        token: dict[str, str] = {}

        async def read_page(opened: Opened) -> dict[str, Any]:
            page: dict[str, Any] = await opened.client.list_objects_v2(
                Bucket=self.bucket, Prefix=self._prefix + prefix, **token
            )
            return page

        while True:
            page = await self._request("ListObjectsV2", "", read_page)
            for entry in page.get("Contents", []):
                modified: datetime = entry["LastModified"]
                yield ObjectInfo(entry["Key"].removeprefix(self._prefix), entry["Size"], modified.timestamp())
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    async def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.usable:
            await connection.close()

    async def _request(self, operation: str, key: str, call: Callable[[Opened], Awaitable[_T]]) -> _T:
        billed = _BILLED.get(operation, "write")
        return await self._retrier.run(lambda: self._connected().attempt(operation, key, call), billed)

    def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        connection = self._connection
        if connection is not None and not connection.usable:
            connection = None
        if connection is None:
            options = Options(
                bucket=self.bucket,
                region=self._region,
                endpoint=self._endpoint,
                profile=self._profile,
                session=self._session,
                concurrency=self._concurrency,
                transport=self._transport,
            )
            connection = self._connection = Connection(options)
        elif connection.loop is not loop:
            raise StoreError(f"{self.url} is in use on another event loop: open one S3Store for each, or close it")
        return connection

    def _resolved_region(self) -> str:
        if self._region is None:
            self._region = find_region(self._session or make_session(self._profile))
        return self._region
