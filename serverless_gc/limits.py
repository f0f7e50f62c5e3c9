"""Limits of the services, in one dated table, overridable per session.

Sizes are bytes of the encoded message, times are seconds. The local backends enforce the
same limits, so that what runs offline runs deployed.
"""

from __future__ import annotations

from dataclasses import dataclass

from serverless_gc.errors import InputError

__all__ = ["AS_OF", "DEFAULT_LIMITS", "Limits"]

AS_OF = "2026-11"
"""Month in which the table was last compared with the services' documentation."""


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
        Largest function with all its layers, unzipped. Both from
        https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html, 2026-11.
    multipart_bytes
        Objects above it are written to S3 in parts and read by ranges, several at once. The S3 user guide ("Uploading
        and copying objects using multipart upload", 2026-11) suggests parts from 100 MB on; below that the objects of
        one round keep the network busy side by side.
    part_bytes
        Bytes of one part or range; S3 takes parts from 5 MiB on. "Performance design patterns for Amazon S3"
        (2026-11) calls ranges of 8 or 16 MB typical, at 85 to 90 MB/s for each connection.
    upload_parts
        Most parts of one upload ("Amazon S3 multipart upload limits", 2026-11).
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
