"""URLs that let a worker do what its task asks, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from serverless_gc.store.s3 import S3Store
from serverless_gc.wire import Task

__all__ = ["with_urls"]


async def with_urls(store: S3Store, task: Task, *, expires: int) -> Task:
    """Return the task with a presigned URL for each request that a worker makes for it.

    What these are says `Task.requests`.

    Parameters
    ----------
    store
        The store of the task.
    task
        What is asked of the worker.
    expires
        Seconds for which the URLs are good; they end with the driver's credentials too.

    Raises
    ------
    ConfigError
        If there are no credentials to sign with.
    """
    wanted = task.requests()
    urls = await store.presign(wanted, expires=expires)
    return replace(task, urls={f"{method} {key}": url for (method, key), url in zip(wanted, urls, strict=True)})
