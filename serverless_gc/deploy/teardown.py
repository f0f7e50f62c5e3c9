"""Taking a stack away: the bucket is emptied first, and at the end it is looked whether anything is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from serverless_gc.deploy.clients import Aws, code_of, explained
from serverless_gc.deploy.events import Report, silent
from serverless_gc.deploy.stack import Stack, delete_stack
from serverless_gc.errors import ConfigError
from serverless_gc.limits import DEFAULT_LIMITS

__all__ = ["Contents", "bucket_contents", "destroy", "empty_bucket", "leftovers"]

_GONE = frozenset({"404", "NoSuchBucket", "NotFound", "ResourceNotFoundException"})


@dataclass(frozen=True, slots=True)
class Contents:
    """What a bucket holds: versions and delete markers count as objects."""

    objects: int
    bytes: int


def bucket_contents(aws: Aws, bucket: str) -> Contents:
    """Count what is in a bucket, all versions of it; nothing if there is no such bucket."""
    sizes = [entry.get("Size", 0) for entry in _versions(aws, bucket)]
    return Contents(len(sizes), sum(sizes))


def empty_bucket(aws: Aws, bucket: str) -> int:
    """Delete all versions of all objects, and uploads that were begun; returns how many versions there were.

    Raises
    ------
    ConfigError
        If objects could not be deleted; the message names the first.
    """
    client = aws.client("s3")
    failed: list[dict[str, Any]] = []
    deleted = 0
    batch: list[dict[str, str]] = []

    def flush() -> None:
        nonlocal deleted
        answer = client.delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True})
        failed.extend(answer.get("Errors", []))
        deleted += len(batch)
        batch.clear()

    with explained(f"emptying bucket {bucket!r}"):
        for entry in _versions(aws, bucket):
            batch.append({"Key": entry["Key"], "VersionId": entry["VersionId"]})
            if len(batch) == DEFAULT_LIMITS.delete_batch:
                flush()
        if batch:
            flush()
        if not failed:
            _abort_uploads(client, bucket)
    if failed:
        shown = "; ".join(f"{e.get('Key')}: {e.get('Code')} {e.get('Message', '')}" for e in failed[:10])
        raise ConfigError(
            f"{len(failed)} of {deleted} objects in bucket {bucket} could not be deleted: {shown}. The stack still "
            "stands; run 'serverless-gc destroy' again once these objects may be deleted"
        )
    return deleted


def destroy(
    aws: Aws,
    stack: Stack,
    *,
    report: Report = silent,
    sleep: Callable[[float], None] | None = None,
) -> None:
    """Empty the bucket, delete the stack, and delete a log group that outlived it.

    Raises
    ------
    ConfigError
        If something could not be deleted or is still there; the message names it.
    """
    bucket = stack.outputs.get("Bucket", "")
    if bucket:
        empty_bucket(aws, bucket)
    delete_stack(aws, stack, report=report, sleep=sleep)
    left = leftovers(aws, stack)
    group = log_group(stack)
    if group in left:
        with explained(f"deleting log group {group}"):
            aws.client("logs").delete_log_group(logGroupName=group)
        left = leftovers(aws, stack)
    if bucket in left:  # a run that was under way wrote after the bucket had been emptied
        empty_bucket(aws, bucket)
        with explained(f"deleting bucket {bucket!r}"):
            aws.client("s3").delete_bucket(Bucket=bucket)
        left = leftovers(aws, stack)
    if left:
        raise ConfigError(f"stack {stack.name} is deleted, but {', '.join(left)} is still there: delete it by hand")


def log_group(stack: Stack) -> str:
    """Return the name of the function's log group."""
    return f"/aws/lambda/{stack.outputs.get('Function', stack.name)}"


def leftovers(aws: Aws, stack: Stack) -> list[str]:
    """Return the names of what still exists of a deleted stack: function, bucket, log group."""
    found: list[str] = []
    function, bucket = stack.outputs.get("Function", stack.name), stack.outputs.get("Bucket", "")
    with explained(f"looking what is left of stack {stack.name!r}"):
        if _exists(lambda: aws.client("lambda").get_function_configuration(FunctionName=function)):
            found.append(function)
        if bucket and _exists(lambda: aws.client("s3").head_bucket(Bucket=bucket)):
            found.append(bucket)
        groups = aws.client("logs").describe_log_groups(logGroupNamePrefix=log_group(stack))["logGroups"]
        found += [group["logGroupName"] for group in groups if group["logGroupName"] == log_group(stack)]
    return found


def _exists(ask: Callable[[], Any]) -> bool:
    from botocore.exceptions import ClientError

    try:
        ask()
    except ClientError as error:
        if code_of(error) in _GONE:
            return False
        raise
    return True


def _versions(aws: Aws, bucket: str) -> Iterator[dict[str, Any]]:
    from botocore.exceptions import ClientError

    pages = aws.client("s3").get_paginator("list_object_versions").paginate(Bucket=bucket)
    with explained(f"listing bucket {bucket!r}"):
        try:
            for page in pages:
                yield from page.get("Versions", [])
                yield from page.get("DeleteMarkers", [])
        except ClientError as error:
            if code_of(error) not in _GONE:
                raise


def _abort_uploads(client: Any, bucket: str) -> None:
    from botocore.exceptions import ClientError

    try:
        for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
            for upload in page.get("Uploads", []):
                client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    except ClientError as error:
        if code_of(error) not in _GONE:
            raise
