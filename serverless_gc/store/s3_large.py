"""Large objects of S3, in parts and ranges, several at once: one connection carries some 90 MB/s.

Written once still means once. A service that knows ``If-None-Match`` on CompleteMultipartUpload (S3 does since November
2024) decides between writers when they complete. One that ignores it is asked before the upload whether there is an
object, so that only writers who both began before either ended are not told apart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from serverless_gc.errors import ObjectNotFound, ServerlessGCError, StoreError
from serverless_gc.limits import Limits
from serverless_gc.store.s3_connection import Opened
from serverless_gc.store.s3_errors import Refused, refusals
from serverless_gc.types import Buffer

__all__ = ["read", "slices", "write"]

_T = TypeVar("_T")
_ABORT_SECONDS = 1.0


class Request(Protocol):
    """Makes a request, again while that makes sense."""

    async def __call__(self, operation: str, key: str, call: Callable[[Opened], Awaitable[_T]]) -> _T:
        """Return what the call returns."""
        ...


async def read(request: Request, key: str, name: str, limits: Limits) -> Buffer:
    """Read an object: in one request, or the rest of a large one by ranges once the first answer tells its size."""
    most, part = limits.multipart_bytes, limits.part_bytes
    head = await request("GetObject", key, lambda opened: opened.transport.read(name, most=most, first=part))
    done = len(head.data)
    if done == head.size:
        return head.data
    view: memoryview = np.empty(head.size, np.uint8).data
    view[:done] = head.data

    async def fetch(start: int) -> str:
        into = view[start : start + part]
        return await request("GetObject", key, lambda opened: opened.transport.read_range(name, start, into))

    tags = await _all(fetch(start) for start in range(done, head.size, part))
    if set(tags) - {head.etag}:
        raise StoreError(f"object {key!r} was replaced while it was read in ranges", key=key, retryable=True)
    return view


async def write(
    request: Request, key: str, bucket: str, name: str, parts: Sequence[Buffer], limits: Limits, *, if_absent: bool
) -> bool:
    """Write an object in parts; False if ``if_absent`` and there was one. Nothing is left of a failed upload."""
    if if_absent and await _exists(request, key, bucket, name):
        return False
    where = {"Bucket": bucket, "Key": name}
    size = sum(memoryview(part).nbytes for part in parts)
    part_bytes = max(limits.part_bytes, -(-size // limits.upload_parts))
    made = await request("CreateMultipartUpload", key, lambda opened: opened.client.create_multipart_upload(**where))
    upload: str = made["UploadId"]

    async def send(number: int, piece: Sequence[Buffer]) -> dict[str, Any]:
        tag = await request("UploadPart", key, lambda opened: opened.transport.write_part(name, upload, number, piece))
        return {"PartNumber": number, "ETag": tag}

    written = False
    try:
        tags = await _all(send(i, piece) for i, piece in enumerate(slices(parts, part_bytes), 1))
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        written = await _complete(request, key, {**where, "UploadId": upload}, tags, condition)
    finally:
        if not written:
            await _abort(request, key, {**where, "UploadId": upload})
    return written


async def _complete(
    request: Request, key: str, upload: dict[str, str], tags: list[dict[str, Any]], condition: dict[str, str]
) -> bool:
    async def complete(opened: Opened) -> bool:
        try:
            with refusals():
                await opened.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": tags}, **condition)
        except Refused as refused:
            if condition and refused.status in {409, 412}:
                return False
            if refused.code != "NoSuchUpload" or not await _is_there(opened, upload["Bucket"], upload["Key"]):
                raise
            return not condition  # the answer to an earlier try was lost: by then the object was whole
        return True

    return await request("CompleteMultipartUpload", key, complete)


async def _is_there(opened: Opened, bucket: str, name: str) -> bool:
    try:
        with refusals():
            await opened.client.head_object(Bucket=bucket, Key=name)
    except Refused as refused:
        if refused.status == 404:
            return False
        raise
    return True


async def _exists(request: Request, key: str, bucket: str, name: str) -> bool:
    try:
        await request("HeadObject", key, lambda opened: opened.client.head_object(Bucket=bucket, Key=name))
    except ObjectNotFound:
        return False
    return True


async def _abort(request: Request, key: str, upload: dict[str, str]) -> None:
    """Remove the parts of an upload, if that can be done at once; the bucket's lifecycle rule does it otherwise."""
    try:
        async with asyncio.timeout(_ABORT_SECONDS):
            await request("AbortMultipartUpload", key, lambda opened: opened.client.abort_multipart_upload(**upload))
    except (TimeoutError, ServerlessGCError) as error:
        logging.getLogger(__name__).warning(
            "parts of an unfinished upload of %r stay until the bucket's lifecycle removes them: %s", key, error
        )


def slices(parts: Sequence[Buffer], size: int) -> Iterator[list[memoryview]]:
    """Cut the concatenation of buffers into pieces of ``size`` bytes, the last one shorter, copying nothing.

    Examples
    --------
    >>> [[bytes(view) for view in piece] for piece in slices([b"abc", b"", b"defgh"], 4)]
    [[b'abc', b'd'], [b'efgh']]
    """
    piece: list[memoryview] = []
    room = size
    for part in parts:
        view = memoryview(part).cast("B")
        while view:
            piece.append(view[:room])
            view, room = view[room:], room - len(piece[-1])
            if not room:
                yield piece
                piece, room = [], size
    if piece:
        yield piece


async def _all(coros: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run all at once; if one fails the others are stopped before its error is raised."""
    tasks = [asyncio.ensure_future(coro) for coro in coros]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
