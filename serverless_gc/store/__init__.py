"""Bytes under keys: in memory, in a directory, in a bucket; and wrappers that count, delay, fail and try again."""

from __future__ import annotations

from typing import Any

from serverless_gc.errors import InputError
from serverless_gc.store.base import Blobs, ObjectInfo, Store
from serverless_gc.store.keys import check_key
from serverless_gc.store.local import LocalStore
from serverless_gc.store.memory import MemoryStore
from serverless_gc.store.retry import Retrier, StoreRetry, StoreStats
from serverless_gc.store.s3 import S3Store
from serverless_gc.store.wrappers import CountingStore, FaultyStore, LatencyStore, RetryingStore, StoreWrapper

__all__ = [
    "Blobs",
    "CountingStore",
    "FaultyStore",
    "LatencyStore",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "Retrier",
    "RetryingStore",
    "S3Store",
    "Store",
    "StoreRetry",
    "StoreStats",
    "StoreWrapper",
    "check_key",
    "open_store",
]


def open_store(url: str, **options: Any) -> Store:
    """Open the store behind a URL.

    Parameters
    ----------
    url
        ``memory://`` (a new, empty one), ``file:///dir`` or ``s3://bucket/prefix?region=...&endpoint=...``.
    options
        Further parameters of `S3Store`.

    Raises
    ------
    InputError
        If there is no such kind of store, or the URL is malformed.

    Examples
    --------
    >>> open_store("file:///tmp/blocks").url
    'file:///tmp/blocks'
    """
    scheme = url.partition("://")[0]
    if scheme == "s3":
        return S3Store.open(url, **options)
    if options:
        raise InputError(f"only s3:// stores take options, got {', '.join(sorted(options))} for {url!r}")
    if scheme == "file":
        return LocalStore.open(url)
    if url == "memory://":
        return MemoryStore()
    raise InputError(
        f"store URL must be memory://, file:///dir or s3://bucket/prefix, got {url!r}"
        + ("; a memory store cannot be opened again by its name" if scheme == "memory" else "")
    )
