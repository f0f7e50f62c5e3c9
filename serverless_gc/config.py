"""Settings: argument > context > environment > file > default, each with its origin.

The file is TOML, by default ``~/.config/serverless_gc/config.toml``; ``SERVERLESS_GC_CONFIG`` names another. Each
setting ``x`` can be given as the environment variable ``SERVERLESS_GC_X``. Nothing is read at import.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serverless_gc.errors import ConfigError

__all__ = ["DEFAULTS", "Setting", "config_path", "read_settings", "resolve"]

DEFAULTS: dict[str, Any] = {
    "backend": "local",
    "bucket": None,
    "prefix": "sgc",
    "function": "serverless-gc",
    "region": None,
    "deadline": 300.0,
    "concurrency": None,
}

_TYPES: dict[str, type] = {"deadline": float, "concurrency": int}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it came from."""

    value: Any
    origin: str


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the settings file, whether or not it exists."""
    named = environ.get("SERVERLESS_GC_CONFIG")
    if named:
        return Path(named).expanduser()
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "serverless_gc" / "config.toml"


def read_settings(environ: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """Read every setting from environment, file and defaults.

    Raises
    ------
    ConfigError
        If the file is not TOML, holds an unknown setting, or a value has the wrong type.
    """
    path = config_path(environ)
    settings = {name: Setting(value, "default") for name, value in DEFAULTS.items()}
    if path.is_file():
        try:
            loaded = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as exc:
            raise ConfigError(f"{path} is not valid TOML: {exc}") from exc
        for name, value in loaded.items():
            if name not in DEFAULTS:
                raise ConfigError(f"{path}: unknown setting {name!r}; known are {', '.join(sorted(DEFAULTS))}")
            settings[name] = Setting(_typed(name, value, str(path)), str(path))
    for name in DEFAULTS:
        variable = f"SERVERLESS_GC_{name.upper()}"
        if variable in environ:
            settings[name] = Setting(_typed(name, environ[variable], variable), variable)
    return settings


def resolve(given: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """Put the arguments that are not None on top of `read_settings`."""
    settings = read_settings(environ)
    for name, value in given.items():
        if value is not None:
            settings[name] = Setting(value, "argument")
    return settings


def _typed(name: str, value: Any, origin: str) -> Any:
    kind = _TYPES.get(name)
    if kind is None:
        return value
    try:
        return kind(value)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{origin}: {name} must be of type {kind.__name__}, got {value!r}") from exc
