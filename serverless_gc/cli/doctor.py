"""``serverless-gc doctor`` and ``serverless-gc status``: does it work, and what is there."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serverless_gc.cli.deploy import Region, StackName, counted, make_console
from serverless_gc.cli.words import kept_sets, open_bucket

if TYPE_CHECKING:
    from serverless_gc.deploy.clients import Aws
    from serverless_gc.deploy.stack import Stack
    from serverless_gc.deploy.sweep import RunObjects

__all__ = ["doctor", "human_bytes", "status"]

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    bucket: Annotated[str | None, typer.Option(help="By default from the settings, as the next two.")] = None,
    function: Annotated[str | None, typer.Option(help="Name of the function.")] = None,
    region: Region = None,
    package: Annotated[Path | None, typer.Option("--zip", help="A local zip that the function should hold.")] = None,
) -> None:
    """Check everything a run needs, one finding a line; status 1 if something fails."""
    from serverless_gc.config import resolve
    from serverless_gc.deploy.doctor import examine
    from serverless_gc.deploy.function_code import Zip

    console = make_console()
    code = None if package is None else Zip.read(package)
    counts = dict.fromkeys(_STYLES, 0)
    for finding in examine(resolve({"bucket": bucket, "function": function, "region": region}), code=code):
        counts[finding.verdict] += 1
        console.print(f"{finding.verdict:<4} ", style=_STYLES[finding.verdict], end="")
        console.print(f"{finding.subject:<12} {finding.text}" + (f" -> {finding.command}" if finding.command else ""))
    if counts["fail"]:
        console.print(f"{counts['fail']} of {sum(counts.values())} checks failed.")
        raise typer.Exit(1)
    console.print("Ready." if not counts["warn"] else f"Ready, with {counted(counts['warn'], 'warning')}.")


def status(stack: StackName = "serverless-gc", region: Region = None) -> None:
    """Show the stack, the function, what is in the bucket by run, and when it was used last."""
    from serverless_gc import background
    from serverless_gc.config import read_settings
    from serverless_gc.deploy.clients import Aws
    from serverless_gc.deploy.stack import describe
    from serverless_gc.deploy.sweep import inventory

    console = make_console()
    with Aws(region or read_settings()["region"].value) as aws:
        found = describe(aws, stack)
        if found is None:
            console.print(f"No stack {stack} in {aws.region}. Create it with: serverless-gc deploy")
            raise typer.Exit(1)
        console.print(f"stack     {found.name} in {aws.region}: {found.status} {found.reason}".rstrip())
        console.print(f"function  {_function(aws, found)}")
        bucket = found.outputs.get("Bucket")
        if bucket is None:
            raise typer.Exit(1)
        prefix = found.outputs["Prefix"]
        with open_bucket(bucket, aws.region, prefix) as (store, _):
            runs, kept = background.run(inventory(store)), kept_sets(store)
        objects, size = sum(len(run.keys) for run in runs), sum(run.bytes for run in runs)
        console.print(f"bucket    s3://{bucket}/{prefix}: {counted(objects, 'object')}, {human_bytes(size)} of runs")
        for run in runs:
            console.print(
                f"          {run.run:<14} {len(run.keys):>9,} objects {human_bytes(run.bytes):>10}, "
                f"last write {ago(time.time() - run.newest)}"
            )
        if kept:
            size = sum(each.bytes for each in kept)
            console.print(
                f"kept      {counted(len(kept), 'data set')}, {human_bytes(size)}: "
                f"{', '.join(each.name for each in kept)} (serverless-gc data list)"
            )
        console.print(f"last use  {_last_use(aws, found, runs)}")


def _function(aws: Aws, stack: Stack) -> str:
    from serverless_gc.deploy.clients import explained

    name = stack.outputs.get("Function", stack.name)
    with explained(f"looking at function {name!r}"):
        found = aws.client("lambda").get_function_configuration(FunctionName=name)
    return (
        f"{name}: {found['Runtime']}, {'/'.join(found['Architectures'])}, {found['MemorySize']} MB, "
        f"{found['Timeout']} s, {found.get('State', 'Active')}, code {found['CodeSha256'][:12]} "
        f"({human_bytes(found['CodeSize'])})"
    )


def _last_use(aws: Aws, stack: Stack, runs: list[RunObjects]) -> str:
    """Return the last line in the function's log or the last object written, whichever is later."""
    from serverless_gc.deploy.clients import explained
    from serverless_gc.deploy.teardown import log_group

    with explained("looking at the function's log"):
        streams = aws.client("logs").describe_log_streams(
            logGroupName=log_group(stack), orderBy="LastEventTime", descending=True, limit=1
        )["logStreams"]
    moments = [run.newest for run in runs] + [
        s["lastEventTimestamp"] / 1e3 for s in streams if "lastEventTimestamp" in s
    ]
    if not moments:
        return "never"
    last = max(moments)
    return f"{datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M} UTC, {ago(time.time() - last)}"


def human_bytes(count: float) -> str:
    """Return a number of bytes in words.

    Examples
    --------
    >>> human_bytes(1536000)
    '1.5 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def ago(seconds: float) -> str:
    """Return a time span in words.

    Examples
    --------
    >>> ago(7300)
    '2 h ago'
    """
    for unit, size in (("days", 172800), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / (86400 if unit == 'days' else size):.0f} {unit} ago"
    return "just now"
