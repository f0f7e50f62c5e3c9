"""What commands have in common: how they print, and where they find the bucket."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

from serverless_gc.errors import InputError

if TYPE_CHECKING:
    from serverless_gc.encode import Kept
    from serverless_gc.store import S3Store

__all__ = [
    "Bucket",
    "alike",
    "check_deployed",
    "check_picture",
    "check_writable",
    "kept_sets",
    "make_console",
    "open_bucket",
]

Bucket: TypeAlias = Annotated[str | None, typer.Option(help="By default from the settings.")]

_FILE_WIDTH = 100

_PICTURES = (".png", ".svg", ".pdf")


def check_writable(option: str, path: Path | None) -> None:
    """Raise `InputError` if the file that an option names cannot be written, before there is anything to write."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(f"{option} cannot be written, there is no folder {path.parent}: make it first")
    if path.is_dir():
        raise InputError(f"{option} cannot be written, {path} is a folder: name a file in it")


def check_picture(path: Path | None) -> None:
    """Raise `InputError` if ``--plot`` names no picture that can be written."""
    if path is not None and path.suffix not in _PICTURES:
        raise InputError(f"--plot must end in {', '.join(_PICTURES)}, got {path}")
    check_writable("--plot", path)


def make_console() -> Console:
    """Make a console; a file or pipe, which has no width of its own, gets one that fits tables, or ``COLUMNS``."""
    console = Console()
    if not console.is_terminal:
        console.width = max(_FILE_WIDTH, console.width)
    return console


def check_deployed() -> None:
    """Raise `ConfigError` if the settings name no bucket or no function to run on."""
    from serverless_gc.config import read_settings
    from serverless_gc.errors import ConfigError

    settings = read_settings()
    if missing := [name for name in ("bucket", "function") if not settings[name].value]:
        raise ConfigError(
            f"--backend aws: no {' and no '.join(missing)} configured: run serverless-gc deploy, or, in the demo, add "
            "--offline for an emulated account"
        )


def alike(values: Iterable[float], digits: int = 3) -> list[str]:
    """Write the figures of a column with equally many decimals, at least so many digits of the smallest.

    Examples
    --------
    >>> alike([46420.0, 422.0, 3.04])
    ['46,420.00', '422.00', '3.04']
    """
    figures = list(values)
    least = min((abs(x) for x in figures if x), default=1.0)
    decimals = min(6, max(0, digits - 1 - math.floor(math.log10(least))))
    return [f"{x:,.{decimals}f}" for x in figures]


@contextmanager
def open_bucket(bucket: str | None, region: str | None, prefix: str | None = None) -> Iterator[tuple[S3Store, str]]:
    """Lend the store of the settings, or another one where something is given, and its name for messages.

    Raises
    ------
    ConfigError
        If there is no bucket.
    """
    from serverless_gc import background
    from serverless_gc.config import resolve
    from serverless_gc.errors import ConfigError
    from serverless_gc.store import S3Store

    given = {"bucket": bucket, "region": region, "prefix": prefix}
    settings = {name: setting.value for name, setting in resolve(given).items()}
    if not settings["bucket"]:
        raise ConfigError("no bucket is configured: pass --bucket, or run serverless-gc deploy")
    store = S3Store(settings["bucket"], settings["prefix"], region=settings["region"])
    try:
        yield store, f"s3://{settings['bucket']}/{settings['prefix']}"
    finally:
        background.run(store.close())


def kept_sets(store: S3Store) -> list[Kept]:
    """List the kept data sets of a store."""
    from serverless_gc import background
    from serverless_gc.encode.kept import list_kept

    async def look() -> list[Kept]:
        return [kept async for kept in list_kept(store)]

    return background.run(look())
