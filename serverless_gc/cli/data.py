"""``serverless-gc data``: the data sets that are kept under names, and deleting them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from serverless_gc.cli.deploy import Region, counted, make_console
from serverless_gc.cli.doctor import ago, human_bytes
from serverless_gc.cli.words import Bucket, kept_sets, open_bucket

if TYPE_CHECKING:
    from serverless_gc.encode import Kept

__all__ = ["data_app", "kept_lines"]

data_app = typer.Typer(help="Data sets kept under names: session.encode(..., name=...).", no_args_is_help=True)


@data_app.command("list")
def list_sets(bucket: Bucket = None, region: Region = None) -> None:
    """List the kept data sets: what they are, whether they are whole, their size and age."""
    console = make_console()
    with open_bucket(bucket, region) as (store, where):
        found = kept_sets(store)
    if not found:
        console.print(f"No data set is kept in {where}.")
    for line in kept_lines(found):
        console.print(line)


@data_app.command("delete")
def delete_sets(
    names: Annotated[list[str], typer.Argument(help="Of the data sets to delete.")],
    bucket: Bucket = None,
    region: Region = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, delete nothing.")] = False,
) -> None:
    """Delete kept data sets, whole ones and those whose upload was stopped."""
    from serverless_gc import background
    from serverless_gc.encode.kept import delete_kept
    from serverless_gc.errors import InputError

    console = make_console()
    with open_bucket(bucket, region) as (store, where):
        found = {kept.name: kept for kept in kept_sets(store)}
        missing = [name for name in names if name not in found]
        if missing:
            raise InputError(f"no data set {missing[0]!r} is kept in {where}; serverless-gc data list shows what is")
        chosen = [found[name] for name in dict.fromkeys(names)]
        for line in kept_lines(chosen):
            console.print(line)
        if dry_run:
            console.print(f"Would delete {counted(len(chosen), 'data set')} in {where}. Nothing was deleted.")
            return
        if not yes and not typer.confirm(f"Delete {counted(len(chosen), 'data set')} in {where}?"):
            console.print("Nothing was deleted.")
            raise typer.Exit(1)
        for kept in chosen:
            objects = background.run(delete_kept(store, kept.name))
            console.print(f"Deleted {kept.name}: {counted(objects, 'object')}, {human_bytes(kept.bytes)}.")


def kept_lines(found: list[Kept]) -> list[str]:
    """Describe data sets, two lines each."""
    lines = []
    for kept in found:
        state = "" if kept.whole else ", not stored to the end"
        lines.append(
            f"  {kept.name:<14} {kept.objects:>9,} objects {human_bytes(kept.bytes):>10}, "
            f"last write {ago(time.time() - kept.modified)}{state}"
        )
        if kept.what:
            lines.append(f"  {'':<14} {kept.what}")
    return lines
