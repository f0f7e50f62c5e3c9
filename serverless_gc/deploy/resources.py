"""Files that are deployed but are not Python modules of this package: the handler, pinned requirements, templates.

In a wheel they are packaged data beside this module; in a clone they are the repository's own folders.
"""

from __future__ import annotations

from pathlib import Path

from serverless_gc.errors import ConfigError

__all__ = ["resource_path"]

_PACKAGED = Path(__file__).with_name("data")
_REPOSITORY = Path(__file__).parents[2]


def resource_path(name: str) -> Path:
    """Return the path of a file or folder that is shipped with the package.

    Parameters
    ----------
    name
        Path in the repository, with forward slashes, such as ``"lambda/handler.py"``.

    Raises
    ------
    ConfigError
        If it is not there.

    Examples
    --------
    >>> resource_path("lambda/handler.py").name
    'handler.py'
    """
    for root in (_PACKAGED, _REPOSITORY):
        path = root / name
        if path.exists():
            return path
    raise ConfigError(
        f"{name} is neither in {_PACKAGED} nor in {_REPOSITORY}: the installation is incomplete; "
        "install the package again, or work in a clone of the repository"
    )
