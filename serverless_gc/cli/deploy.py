"""``serverless-gc deploy``: from an empty account to a worker that answers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from serverless_gc.deploy.events import StackEvent
    from serverless_gc.deploy.function_code import Package

__all__ = ["StackName", "bring_up", "counted", "deploy", "make_console", "show_event"]

StackName = Annotated[str, typer.Option("--stack", help="Name of the stack and of its function.")]
Region = Annotated[str | None, typer.Option(help="AWS region; by default from the settings or the AWS configuration.")]


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that adds nothing to the text but colours on a terminal."""
    return Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True)


def show_event(console: Console, event: StackEvent) -> None:
    """Print one thing that CloudFormation did."""
    if event.reason and event.status.endswith("_FAILED"):
        console.print(f"  {event.status:<28} {event.resource}: {event.reason}", style="red")
    elif not event.status.endswith("_IN_PROGRESS"):
        console.print(f"  {event.status:<28} {event.resource}")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "run"), counted(2300, "object")
    ('1 run', '2,300 objects')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def deploy(
    stack: StackName = "serverless-gc",
    region: Region = None,
    memory: Annotated[int | None, typer.Option(min=128, max=10240, help="Megabytes; 1769 buy one processor.")] = None,
    timeout: Annotated[int | None, typer.Option(min=1, max=900, help="Seconds one task may run.")] = None,
    arch: Annotated[str | None, typer.Option(help="arm64 (the default) or x86_64.")] = None,
    python: Annotated[str | None, typer.Option(help="Python of the function, 3.13 by default.")] = None,
    prefix: Annotated[str | None, typer.Option(help="First part of all keys in the bucket.")] = None,
    kms_key: Annotated[str | None, typer.Option(help="none, create, or the ARN of a key.")] = None,
    reserve: Annotated[int | None, typer.Option(min=-1, help="Executions to reserve; -1 for none.")] = None,
    layer: Annotated[list[str] | None, typer.Option(help="ARN of a layer version; may be repeated.")] = None,
    vpc: Annotated[str | None, typer.Option(help="Run in this VPC; the worker needs none.")] = None,
    vpc_subnets: Annotated[str | None, typer.Option(help="Its subnets to run in, with commas.")] = None,
    vpc_route_tables: Annotated[
        str | None, typer.Option(help="Their route tables, to be given an S3 gateway endpoint.")
    ] = None,
    package: Annotated[Path | None, typer.Option("--zip", help="A zip built before; built afresh otherwise.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, change nothing.")] = False,
) -> None:
    """Create or update the bucket, the function and their rights; options not given stay as they are."""
    from serverless_gc.deploy.function_code import Zip
    from serverless_gc.deploy.stack import DEFAULT_ARCHITECTURE, DEFAULT_PYTHON, check_name, parameters_from
    from serverless_gc.deploy.target import Target

    console = make_console()
    check_name(stack)
    wanted = parameters_from(
        prefix=prefix,
        python=python,
        arch=arch,
        memory=memory,
        timeout=timeout,
        kms_key=kms_key,
        reserved_concurrency=reserve,
        layers=layer,
        vpc=vpc,
        subnets=_listed(vpc_subnets),
        route_tables=_listed(vpc_route_tables),
    )
    Target(python or DEFAULT_PYTHON, arch or DEFAULT_ARCHITECTURE)  # refuses what Lambda does not run
    given = None if package is None else Zip.read(package)
    path = bring_up(console, stack, region, wanted, given, dry_run=dry_run)
    if path is not None:
        console.print(f"Settings are in {path}. Whoever runs computations needs the driver policy attached.")
        console.print("Try it: serverless-gc doctor, then serverless-gc demo --backend aws")


def bring_up(
    console: Console,
    stack: str,
    region: str | None,
    wanted: Mapping[str, str],
    given: Package | None = None,
    *,
    dry_run: bool = False,
) -> Path | None:
    """Make the stack as wanted, saying what happens; return the path of the settings, None after a dry run."""
    from serverless_gc.config import read_settings, write_settings
    from serverless_gc.deploy.clients import Aws
    from serverless_gc.deploy.resources import resource_path
    from serverless_gc.deploy.stack import describe, make_plan, realize

    template = resource_path("infra/template.yaml").read_text(encoding="utf-8")
    with Aws(region or read_settings()["region"].value) as aws, tempfile.TemporaryDirectory() as scratch:
        before = describe(aws, stack)
        code = given or _built(console, Path(scratch), {**(before.parameters if before else {}), **wanted})
        plan = make_plan(aws, stack, template, wanted, code)
        if not plan.changes:
            console.print(f"Stack {stack} in {aws.region} is up to date.")
        else:
            console.print("Would do:" if dry_run else "To do:")
            for change in plan.changes:
                console.print(f"  {change}")
        if dry_run:
            console.print("Nothing was changed.")
            return None
        write_settings({})  # a file that cannot be written is reported now, not after the stack is made
        outputs = realize(aws, plan, template, code, report=lambda event: show_event(console, event))
        path = write_settings({name: outputs[name.capitalize()] for name in ("bucket", "prefix", "function", "region")})
    if plan.changes:
        console.print("Deployed.", style="green")
    for name in ("Bucket", "Prefix", "Function", "Region", "DriverPolicyArn"):
        console.print(f"  {name:<16} {outputs[name]}")
    return path


def _built(console: Console, folder: Path, parameters: Mapping[str, str]) -> Package:
    from serverless_gc.deploy.bundle import build_bundle
    from serverless_gc.deploy.function_code import megabytes
    from serverless_gc.deploy.stack import DEFAULT_ARCHITECTURE, DEFAULT_PYTHON

    python = parameters.get("Python", DEFAULT_PYTHON)
    arch = parameters.get("Architecture", DEFAULT_ARCHITECTURE)
    console.print(f"Building the worker for Python {python} on {arch} ...")
    bundle = build_bundle(folder, python=python, arch=arch)
    console.print(f"  {bundle.path.name}, {megabytes(bundle)}")
    return bundle
