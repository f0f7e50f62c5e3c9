"""What of NumPy's wheel and of cloudpickle a function needs, and what is left out."""

from __future__ import annotations

import importlib.metadata
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serverless_gc.deploy.target import check_shared_object
from serverless_gc.errors import ConfigError

__all__ = ["Contents", "Installed", "read_cloudpickle", "read_wheel"]

# The first rule that matches a file's path names what is left out with it. NumPy 1 and 2.0 import
# `_multiarray_tests` to document a function of it.
_LEFT_OUT = {
    "tests": re.compile(r"/tests/|^numpy/testing/|/conftest\.py$|^numpy/_?core/_((?!multiarray)\w+_tests|simd)\."),
    "type stubs": re.compile(r"\.pyi$|/py\.typed$|/mypy_plugin\.py$"),
    "f2py and distutils": re.compile(r"^numpy/(f2py|distutils|_pyinstaller)/|^numpy/_configtool\.py$"),
    "headers and static libraries": re.compile(r"^numpy/_?core/(include|lib)/|\.(h|c|cpp|f|f90|a|lib|pc|pxd|pyx|ini)$"),
    "documentation": re.compile(r"^numpy/doc/|/_examples/|\.(rst|md|txt)$(?<!LICENSE\.txt)(?<!LICENSE\.md)"),
    "installer's records": re.compile(r"\.dist-info/(RECORD|INSTALLER|REQUESTED|direct_url\.json|entry_points\.txt)$"),
}

# `from numpy import *` imports these by name; numpy.testing goes because it imports a part of the tests.
_STAND_INS = ("numpy/f2py/__init__.py", "numpy/testing/__init__.py")
_STAND_IN = b"""\"\"\"Left out of functions that serverless_gc builds.\"\"\"


def __getattr__(name):
    raise AttributeError(f"{__name__} is left out of functions that serverless_gc builds: there is no {name!r}")
"""


@dataclass(frozen=True, slots=True)
class Contents:
    """Files of a wheel that are kept, by path, and bytes of what is left out, by kind."""

    files: Mapping[str, bytes]
    left_out: Mapping[str, int]


def read_wheel(path: Path, machine: str) -> Contents:
    """Read a NumPy wheel, leaving out what a running function never opens. Licences stay.

    Parameters
    ----------
    path
        The wheel.
    machine
        As ``uname -m`` prints it where the function runs.

    Raises
    ------
    ConfigError
        If it is not a wheel, or holds compiled code for another machine.
    """
    files: dict[str, bytes] = {}
    left_out: Counter[str] = Counter()
    try:
        with zipfile.ZipFile(path) as wheel:
            for info in wheel.infolist():
                name = info.filename
                if info.is_dir():
                    continue
                if name.startswith("/") or ".." in name.split("/"):
                    raise ConfigError(f"{path} holds a file that would land outside its folder: {name!r}")
                kind = next((kind for kind, rule in _LEFT_OUT.items() if rule.search(name)), None)
                if kind is None:
                    files[name] = wheel.read(info)
                    continue
                left_out[kind] += info.file_size
                if name in _STAND_INS:
                    files[name] = _STAND_IN
    except (OSError, zipfile.BadZipFile) as exc:
        raise ConfigError(f"{path} cannot be read as a wheel: {exc}") from exc
    if "numpy/__init__.py" not in files:
        raise ConfigError(f"{path} holds no NumPy")
    for name, data in files.items():
        check_shared_object(name, data, machine)
    return Contents(files, dict(left_out.most_common()))


@dataclass(frozen=True, slots=True)
class Installed:
    """Files of an installed package, by path, and its version; both empty if it is not installed."""

    files: Mapping[str, bytes]
    version: str


def read_cloudpickle() -> Installed:
    """Read the cloudpickle that is installed here, its licence included.

    What pickles on the driver is what unpickles in the function: the same version.

    Examples
    --------
    >>> "cloudpickle/cloudpickle.py" in read_cloudpickle().files
    True
    """
    try:
        installed = importlib.metadata.distribution("cloudpickle")
    except importlib.metadata.PackageNotFoundError:
        return Installed({}, "")
    wanted = [
        file
        for file in installed.files or ()
        if (file.parts[0] == "cloudpickle" and file.suffix == ".py") or file.name.startswith("LICENSE")
    ]
    files = {file.as_posix(): Path(str(file.locate())).read_bytes() for file in sorted(wanted)}
    return Installed(files, installed.version) if "cloudpickle/cloudpickle.py" in files else Installed({}, "")
