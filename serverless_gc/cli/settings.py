"""``serverless-gc config show``: every setting, its value and where it comes from."""

from __future__ import annotations

import typer

from serverless_gc.cli.deploy import make_console

__all__ = ["config_app"]

config_app = typer.Typer(help="Settings.", no_args_is_help=True)


@config_app.callback()
def _root() -> None:
    """Show settings."""


@config_app.command()
def show() -> None:
    """Print every setting, its value and where it comes from."""
    from serverless_gc.config import config_path, read_settings

    console = make_console()
    settings = read_settings()
    for name, setting in settings.items():
        value = "(not set)" if setting.value is None else str(setting.value)
        console.print(f"{name:<12} {value:<40} {setting.origin}".rstrip())
    path = config_path()
    console.print(f"The settings file is {path}" + ("" if path.is_file() else ", which does not exist yet") + ".")
