"""``serverless-gc build``: the deployment package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["build"]


def build(
    output: Annotated[Path, typer.Option(help="Folder for the zip.")] = Path("build"),
    python: Annotated[str, typer.Option(help="Python version of the function.")] = "3.13",
    arch: Annotated[str, typer.Option(help="arm64 or x86_64.")] = "arm64",
    layer: Annotated[bool, typer.Option("--layer", help="Put NumPy into a layer of its own.")] = False,
    numpy: Annotated[str | None, typer.Option(help="NumPy's version; by default the pinned one.")] = None,
) -> None:
    """Build the worker's deployment package for AWS Lambda, on any machine."""
    from serverless_gc.deploy.bundle import build_bundle

    print(build_bundle(output, python=python, arch=arch, numpy=numpy, as_layer=layer).summary())
