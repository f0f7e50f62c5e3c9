"""Objects by URLs that the driver signed, one for each request: the function needs no right of its own.

A task brings them as ``"METHOD key"`` -> URL. A URL is a secret while it is good: none enters a message or a log.
"""

from __future__ import annotations

import calendar
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from urllib.parse import parse_qs, urlsplit

from serverless_gc.worker.blobs import BlobError, Buffer
from serverless_gc.worker.connections import Answer, Connections
from serverless_gc.worker.s3_objects import S3Objects

__all__ = ["PresignedBlobs"]


class PresignedBlobs(S3Objects):
    """The objects of one task.

    Parameters
    ----------
    urls
        ``"GET key"``, ``"HEAD key"`` or ``"PUT key"`` to a presigned URL.
    clock
        Seconds since the epoch, to tell a URL that expired from one that was never good.

    Examples
    --------
    >>> PresignedBlobs({}).get("blocks/0")
    Traceback (most recent call last):
    ...
    serverless_gc.worker.blobs.BlobError: the task brings no URL to GET 'blocks/0'
    """

    def __init__(self, urls: Mapping[str, str], clock: Callable[[], float] = time.time) -> None:
        self._urls = urls
        self._clock = clock

    def _request(self, method: str, key: str, body: Sequence[Buffer], headers: Mapping[str, str]) -> Answer:
        url = self._urls.get(f"{method} {key}")
        if url is None:
            raise BlobError(f"the task brings no URL to {method} {key!r}", kind="denied")
        parts = urlsplit(url)
        connections = _connections(os.getpid(), parts.scheme, parts.netloc)
        answer = self._sent(connections, f"{parts.path}?{parts.query}", method, key, body, headers)
        if answer.status in {400, 401, 403} and self._expired(parts.query, answer):
            # Not denied: the task's next attempt brings a URL that is good.
            what = "its URL has expired, or the driver's credentials have"
            raise BlobError(f"S3 answered {answer.status} to {method} {key!r}: {what}", status=answer.status)
        return answer

    def _name(self, key: str) -> str:
        return f"{key!r} by its URL"

    def _expired(self, query: str, answer: Answer) -> bool:
        """Say whether it is too late, by the URL itself or by S3's own words ("Request has expired", ExpiredToken)."""
        fields = parse_qs(query)
        signed = calendar.timegm(time.strptime(fields["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ"))
        return signed + float(fields["X-Amz-Expires"][0]) < self._clock() or b"expired" in bytes(answer.body).lower()


@lru_cache(maxsize=16)
def _connections(_pid: int, scheme: str, host: str) -> Connections:
    """Return this process's connections to a server; a forked child must not talk on its parent's sockets."""
    return Connections(scheme, host)
