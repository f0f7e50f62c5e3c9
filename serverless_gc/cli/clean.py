"""``serverless-gc clean`` and ``serverless-gc destroy``: what runs left behind, and the whole stack."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from serverless_gc.cli.deploy import Region, StackName, counted, make_console, show_event
from serverless_gc.cli.doctor import ago, human_bytes
from serverless_gc.cli.words import Bucket, kept_sets, open_bucket

if TYPE_CHECKING:
    from serverless_gc.deploy.sweep import RunObjects, Sweep

__all__ = ["clean", "destroy"]


def clean(
    older_than: Annotated[str, typer.Option(help="Runs that last wrote so long ago, such as 12h or 7d.")] = "1d",
    run: Annotated[str | None, typer.Option(help="Only this run, whatever its age.")] = None,
    bucket: Bucket = None,
    region: Region = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, delete nothing.")] = False,
) -> None:
    """Delete what runs have left in the bucket, but no data kept under names; status 1 if something is left."""
    from serverless_gc import background
    from serverless_gc.deploy.sweep import choose, inventory, parse_age, sweep

    console = make_console()
    age = parse_age(older_than)
    with open_bucket(bucket, region) as (store, where):

        async def look_and_delete() -> tuple[list[RunObjects], Sweep | None]:
            chosen = choose(await inventory(store), run=run, older_than=age)
            return chosen, None if dry_run or not chosen else await sweep(store, chosen)

        chosen, done = background.run(look_and_delete())
        kept = [each.name for each in kept_sets(store)]
    if kept:
        console.print(
            f"{counted(len(kept), 'kept data set')} not looked at: {', '.join(kept)} (serverless-gc data list)"
        )
    if not chosen:
        console.print(f"No run in {where} last wrote {older_than} ago or before: nothing to delete.")
        return
    for found in chosen:
        console.print(
            f"  {found.run:<14} {len(found.keys):>9,} objects {human_bytes(found.bytes):>10}, "
            f"last write {ago(time.time() - found.newest)}"
        )
    if done is None:
        total = sum(len(found.keys) for found in chosen)
        console.print(
            f"Would delete {counted(total, 'object')} of {counted(len(chosen), 'run')} in {where}. Nothing was deleted."
        )
        return
    console.print(f"Deleted {counted(done.deleted, 'object')} of {counted(len(chosen), 'run')} in {where}.")
    if done.failed:
        console.print(f"{counted(len(done.failed), 'object')} could not be deleted:", style="bold red")
        for key, reason in done.failed.items():
            console.print(f"  {key}: {reason}")
        raise typer.Exit(1)


def destroy(
    stack: StackName = "serverless-gc",
    region: Region = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, delete nothing.")] = False,
) -> None:
    """Delete the stack with everything in it, and look that nothing is left."""
    from serverless_gc.config import config_path, read_settings, write_settings
    from serverless_gc.deploy import teardown
    from serverless_gc.deploy.clients import Aws
    from serverless_gc.deploy.stack import describe

    console = make_console()
    with Aws(region or read_settings()["region"].value) as aws:
        found = describe(aws, stack)
        if found is None:
            console.print(f"No stack {stack} in {aws.region}: nothing to delete.")
            return
        bucket = found.outputs.get("Bucket", "")
        function = found.outputs.get("Function", stack)
        console.print("Would delete:" if dry_run else "Will delete:")
        if bucket:
            held = teardown.bucket_contents(aws, bucket)
            console.print(f"  bucket {bucket} with {counted(held.objects, 'object')}, {human_bytes(held.bytes)}")
            with open_bucket(bucket, aws.region, found.outputs["Prefix"]) as (store, _):
                kept = [each.name for each in kept_sets(store)]
            if kept:
                console.print(f"  among them {counted(len(kept), 'kept data set')}: {', '.join(kept)}", style="bold")
        console.print(f"  function {function} and its log group {teardown.log_group(found)}")
        console.print(f"  role, driver policy and all else of stack {stack} in {aws.region}")
        if dry_run:
            console.print("Nothing was deleted.")
            return
        if not yes and not typer.confirm("Delete all this?"):
            console.print("Nothing was deleted.")
            raise typer.Exit(1)
        teardown.destroy(aws, found, report=lambda event: show_event(console, event))
    settings = read_settings()
    if bucket and settings["bucket"].value == bucket and config_path().is_file():
        path = write_settings(dict.fromkeys(("bucket", "prefix", "function", "region")))
        console.print(f"Its settings are taken out of {path}.")
    console.print("Deleted; nothing is left.", style="green")
