"""Objects of S3 by HTTP requests, whoever signs them: what is asked, and what the answers mean."""

from __future__ import annotations

import http.client
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from serverless_gc.worker.blobs import BlobError, BlobNotFound, Buffer, buffers
from serverless_gc.worker.connections import Answer, Connections

__all__ = ["S3Objects"]

_RETRYABLE_STATUS = frozenset({429, 500, 502, 503, 504})
_RETRYABLE_CODES = frozenset({"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "OperationAborted"})


class S3Objects(ABC):
    """Reads, writes and looks for objects. A subclass says where a request goes and who signs it."""

    @abstractmethod
    def _request(self, method: str, key: str, body: Sequence[Buffer], headers: Mapping[str, str]) -> Answer:
        """Send one request."""

    @abstractmethod
    def _name(self, key: str) -> str:
        """Name an object in messages."""

    def _elsewhere(self, place: str) -> str:
        """Say that the bucket is in another region."""
        return f"; the bucket is in {place}"

    def get(self, key: str) -> memoryview:
        """Read one object."""
        answer = self._request("GET", key, (), {})
        if answer.status != 200:
            raise self._error("GET", key, answer)
        return answer.body

    def get_range(self, key: str, start: int, stop: int) -> memoryview:
        """Read a part of one object."""
        answer = self._request("GET", key, (), {"Range": f"bytes={start}-{stop - 1}"})
        if answer.status != 206:
            raise self._error("GET", key, answer)
        return answer.body

    def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Write one object; ``if_absent`` is S3's own ``If-None-Match: *``."""
        parts = buffers(data)
        headers = {"Content-Length": str(sum(memoryview(part).nbytes for part in parts))}
        if if_absent:
            headers["If-None-Match"] = "*"
        answer = self._request("PUT", key, parts, headers)
        if answer.status == 200:
            return True
        if if_absent and answer.status in {409, 412}:  # 409: another conditional write is under way
            return False
        raise self._error("PUT", key, answer)

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        answer = self._request("HEAD", key, (), {})
        if answer.status in {200, 404}:
            return answer.status == 200
        raise self._error("HEAD", key, answer)

    def _sent(
        self,
        connections: Connections,
        target: str,
        method: str,
        key: str,
        body: Sequence[Buffer],
        headers: Mapping[str, str],
    ) -> Answer:
        """Send a request that is ready."""
        try:
            return connections.request(method, target, body, headers)
        except (OSError, http.client.HTTPException) as error:
            retryable = not isinstance(error, ValueError)  # a certificate that is refused once is refused again
            if isinstance(error, socket.gaierror):
                retryable = error.errno == socket.EAI_AGAIN
            place = f"{connections.scheme}://{connections.host}"
            raise BlobError(
                f"{method} {self._name(key)}: {type(error).__name__}: {error} (endpoint {place})", retryable=retryable
            ) from error

    def _error(self, method: str, key: str, answer: Answer) -> BlobError:
        text = bytes(answer.body).decode("utf-8", "replace")
        code, words = (
            match.group(1) if (match := re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)) else ""
            for tag in ("Code", "Message")
        )
        status = answer.status
        message = f"S3 answered {status} {code or http.client.responses.get(status, '')} to {method} {self._name(key)}"
        if words:
            message += f": {words}"
        if status == 404 and code != "NoSuchBucket":
            return BlobNotFound(message, status=status, code=code or "NoSuchKey")
        kind = "unavailable"
        if status == 404:
            kind = "missing"
            message += "; there is no such bucket"
        elif status in {301, 307} or code == "AuthorizationHeaderMalformed":
            kind = "denied"
            message += self._elsewhere(answer.headers.get("x-amz-bucket-region", "another region"))
        elif status in {401, 403} or code in {"ExpiredToken", "InvalidToken"}:
            kind = "denied"
            if code in {"", "AccessDenied"}:
                message += "; S3 says so of a missing object too when the role may not s3:ListBucket the bucket"
        retryable = status in _RETRYABLE_STATUS or code in _RETRYABLE_CODES
        return BlobError(message, kind=kind, retryable=retryable, status=status, code=code)
