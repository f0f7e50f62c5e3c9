"""Settings: argument > context > environment > file > default, each with its origin.

The file is TOML, by default ``~/.config/serverless_gc/config.toml``; ``SERVERLESS_GC_CONFIG`` names another. Each
setting ``x`` can be given as the environment variable ``SERVERLESS_GC_X``. Nothing is read at import.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serverless_gc.errors import ConfigError

__all__ = ["DEFAULTS", "Setting", "config_path", "read_settings", "resolve", "write_settings"]

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


def write_settings(values: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Path:
    """Put settings into the file, or take those that are None out of it; its other lines and comments stay.

    Parameters
    ----------
    values
        Name to value.
    environ
        Names the file, as for `config_path`.

    Returns
    -------
    Path
        The file. It is replaced as a whole: a reader sees the old or the new one.

    Raises
    ------
    ConfigError
        If a setting is unknown, the file is not TOML, or it cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "config.toml"
    >>> write_settings({"bucket": "scratch", "deadline": 60.0}, {"SERVERLESS_GC_CONFIG": str(file)}) == file
    True
    >>> print(file.read_text(), end="")
    bucket = "scratch"
    deadline = 60.0
    """
    for name in values:
        if name not in DEFAULTS:
            raise ConfigError(f"unknown setting {name!r}; known are {', '.join(sorted(DEFAULTS))}")
    read_settings({**environ})  # a file that is wrong already is reported, not rewritten
    path = config_path(environ)
    if path.exists() and not path.is_file():  # a device such as /dev/null must not be replaced by a file
        raise ConfigError(
            f"{path} is no regular file, settings are not written to it; name one in SERVERLESS_GC_CONFIG"
        )
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for name, value in values.items():
        places = [i for i, line in enumerate(lines) if re.match(rf"\s*{name}\s*=", line)]
        if value is None:
            lines = [line for i, line in enumerate(lines) if i not in places]
        elif places:
            lines[places[0]] = f"{name} = {json.dumps(value)}"
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        temporary.replace(path)
    except OSError as exc:
        raise ConfigError(f"cannot write the settings file: {exc}. SERVERLESS_GC_CONFIG names another") from exc
    return path


def _typed(name: str, value: Any, origin: str) -> Any:
    kind = _TYPES.get(name)
    if kind is None:
        return value
    try:
        return kind(value)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{origin}: {name} must be of type {kind.__name__}, got {value!r}") from exc
