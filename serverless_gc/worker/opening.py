"""From the URL of a store to its objects, as a worker opens it.

Two kinds of URL are understood:

``file:///absolute/dir``
    A directory that driver and worker share.
``s3://bucket/prefix?region=eu-west-1&endpoint=http%3A%2F%2F127.0.0.1%3A5000``
    Both query fields are optional; `serverless_gc.worker.s3` says what stands in for them. A URL never carries
    a secret: credentials come from the environment.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from serverless_gc.worker.blobs import Blobs, FileBlobs

__all__ = ["open_blobs"]


def open_blobs(url: str) -> Blobs:
    """Open the store behind a URL; connections to S3 are kept for the next call in this process.

    Raises
    ------
    ValueError
        If no worker can open such a URL.

    Examples
    --------
    >>> open_blobs("memory://1")
    Traceback (most recent call last):
    ...
    ValueError: cannot open the store 'memory://1' ...
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FileBlobs(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        from serverless_gc.worker.s3 import open_s3  # file-backed workers need no HTTP

        fields = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        return open_s3(
            parts.netloc, unquote(parts.path).strip("/"), fields.get("region", ""), fields.get("endpoint", "")
        )
    raise ValueError(
        f"cannot open the store {url!r} from a worker: file:///dir and s3://bucket/prefix can be; a memory:// store "
        "lives in the driver's process and serves only workers there"
    )
