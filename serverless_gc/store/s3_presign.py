"""URLs that let a worker do what its task asks, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from serverless_gc.store.s3 import S3Store
from serverless_gc.wire import Task

__all__ = ["with_urls"]


async def with_urls(store: S3Store, task: Task, *, expires: int) -> Task:
    """Return the task with a presigned URL for each request that a worker makes for it.

    It may read the task's blocks, operand and result and the results that it combines, look for the marks of its
    round and run, and write the result once; partial results likewise, if the task has any.

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
    parts = task.part_keys()
    wanted = [("GET", key) for key in (*task.blocks, *task.results, task.operand_key, task.result_key, *parts) if key]
    wanted += [("HEAD", key) for key in (task.cancel_key, task.alive_key) if key]
    wanted += [("PUT", key) for key in (task.result_key, *parts) if key]
    urls = await store.presign(wanted, expires=expires)
    return replace(task, urls={f"{method} {key}": url for (method, key), url in zip(wanted, urls, strict=True)})
