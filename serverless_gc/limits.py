"""Limits of the services, in one dated table, overridable per session.

Sizes are bytes of the encoded message, times are seconds. The local backends enforce the
same limits, so that what runs offline runs deployed.
"""

from __future__ import annotations

from dataclasses import dataclass

from serverless_gc.errors import InputError

__all__ = [
    "ACCOUNT_CONCURRENCY",
    "AS_OF",
    "DEFAULT_LIMITS",
    "KEY_BYTES",
    "MB_PER_VCPU",
    "NEW_ACCOUNT_CONCURRENCY",
    "NEW_ACCOUNT_MB",
    "PRESIGNED_SECONDS",
    "SOURCES",
    "Limits",
]

AS_OF = "2026-11"
"""Month in which the table was last compared with the services' documentation."""

_LAMBDA = "https://docs.aws.amazon.com/lambda/latest/dg/"
_S3 = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/"

MB_PER_VCPU = 1769
"""Memory of a function that comes with one processor."""

NEW_ACCOUNT_MB = 3008
"""Largest memory of a function in an account that has used little so far."""

ACCOUNT_CONCURRENCY = 1000
"""Functions that an account runs at once in a region, unless it asked for more."""

NEW_ACCOUNT_CONCURRENCY = 10
"""The same of an account that has used little so far."""

KEY_BYTES = 1024
"""Longest key of an S3 object, in UTF-8."""

PRESIGNED_SECONDS = 7 * 24 * 3600
"""Longest validity of a URL signed by Signature Version 4."""

SOURCES = {
    "request_bytes": _LAMBDA + "gettingstarted-limits.html (invocation payload, synchronous)",
    "reply_bytes": _LAMBDA + "gettingstarted-limits.html (invocation payload, synchronous)",
    "event_bytes": _LAMBDA + "gettingstarted-limits.html (invocation payload, asynchronous)",
    "function_timeout": _LAMBDA + "gettingstarted-limits.html (function timeout)",
    "function_bytes": _LAMBDA + "gettingstarted-limits.html (function memory allocation)",
    "code_zip_bytes": _LAMBDA + "gettingstarted-limits.html (deployment package, zipped)",
    "code_bytes": _LAMBDA + "gettingstarted-limits.html (deployment package, unzipped, with layers)",
    "object_bytes": _S3 + "upload-objects.html (a single PUT)",
    "delete_batch": "https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html",
    "multipart_bytes": _S3 + "mpuoverview.html (advised from 100 MB on)",
    "part_bytes": _S3
    + "optimizing-performance-design-patterns.html (ranges of 8 or 16 MB); at least 5 MiB: qfacts.html",
    "upload_parts": _S3 + "qfacts.html",
    "MB_PER_VCPU": _LAMBDA + "configuration-memory.html",
    "NEW_ACCOUNT_MB": _LAMBDA + "gettingstarted-limits.html (new accounts have reduced memory quotas)",
    "ACCOUNT_CONCURRENCY": _LAMBDA + "gettingstarted-limits.html (concurrent executions)",
    "NEW_ACCOUNT_CONCURRENCY": _LAMBDA + "gettingstarted-limits.html (new accounts have reduced concurrency quotas)",
    "KEY_BYTES": _S3 + "object-keys.html",
    "PRESIGNED_SECONDS": _S3 + "using-presigned-url.html",
}
"""Where each figure is documented, as of `AS_OF`; what new accounts get is what such accounts report."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Service limits that the driver checks before the network does.

    Parameters
    ----------
    request_bytes
        Largest payload of a synchronous Lambda invocation.
    reply_bytes
        Largest reply of a synchronous Lambda invocation.
    event_bytes
        Largest payload of an asynchronous (``Event``) invocation.
    function_timeout
        Longest run of one function.
    function_bytes
        Largest memory of one function, 10,240 MB. Where a deployed function can be asked, what it has counts.
    object_bytes
        Largest object of one S3 PUT.
    delete_batch
        Most keys of one S3 ``DeleteObjects`` request.
    code_zip_bytes
        Largest deployment package that is uploaded to Lambda directly, zipped; larger ones go through S3.
    code_bytes
        Largest function with all its layers, unzipped.
    multipart_bytes
        Objects above it are written to S3 in parts and read by ranges, several at once. S3's guide suggests parts from
        100 MB on; below that the objects of one round keep the network busy side by side.
    part_bytes
        Bytes of one part or range; S3 takes parts from 5 MiB on. At 8 to 16 MB a connection reaches 85 to 90 MB/s.
    upload_parts
        Most parts of one upload.
    """

    request_bytes: int = 6 * 2**20
    reply_bytes: int = 6 * 2**20
    event_bytes: int = 2**20
    function_timeout: float = 900.0
    function_bytes: int = 10_240 * 2**20
    object_bytes: int = 5 * 2**30
    delete_batch: int = 1000
    code_zip_bytes: int = 50 * 2**20
    code_bytes: int = 250 * 2**20
    multipart_bytes: int = 100 * 10**6
    part_bytes: int = 16 * 2**20
    upload_parts: int = 10_000

    def __post_init__(self) -> None:
        sizes = (
            "request_bytes",
            "reply_bytes",
            "event_bytes",
            "function_bytes",
            "object_bytes",
            "code_zip_bytes",
            "code_bytes",
        )
        for name in (*sizes, "multipart_bytes", "part_bytes", "delete_batch", "upload_parts"):
            if getattr(self, name) < 1:
                raise InputError(f"limit {name} must be at least 1, got {getattr(self, name)}")
        if not self.function_timeout > 0:
            raise InputError(f"limit function_timeout must be positive, got {self.function_timeout}")


DEFAULT_LIMITS = Limits()
