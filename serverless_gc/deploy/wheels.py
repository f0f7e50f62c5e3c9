"""NumPy's wheel for a runtime of Lambda, whatever this machine is: pinned, downloaded by pip once, kept and verified.

The cache is ``$SERVERLESS_GC_CACHE_DIR``, else ``serverless_gc`` in ``$XDG_CACHE_HOME``, else in ``~/.cache``. A wheel
lies in a folder named by its SHA-256, which is compared with its content before each use.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serverless_gc.deploy.resources import resource_path
from serverless_gc.deploy.target import Target
from serverless_gc.errors import ConfigError, InputError

__all__ = ["Pin", "Wheel", "cache_path", "numpy_wheel", "pinned_numpy"]

_PIN = re.compile(
    r'^numpy==(?P<version>\S+) ; python_version == "(?P<python>[\d.]+)" --hash=sha256:(?P<sha256>\w{64})$'
)
_VERSION = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post)\d+)?")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pin:
    """A version, and the SHA-256 of its wheel; empty if any is taken."""

    version: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A verified wheel in the cache."""

    path: Path
    version: str
    sha256: str


def cache_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of kept wheels, whether or not it exists.

    Examples
    --------
    >>> cache_path({"SERVERLESS_GC_CACHE_DIR": "/tmp/c"}).as_posix()
    '/tmp/c/wheels'
    """
    named = environ.get("SERVERLESS_GC_CACHE_DIR")
    if named:
        return Path(named).expanduser() / "wheels"
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "serverless_gc" / "wheels"


def pinned_numpy(target: Target) -> Pin:
    """Return the NumPy that ``lambda/requirements-*.txt`` pins for a runtime.

    Raises
    ------
    ConfigError
        If the file pins none.

    Examples
    --------
    >>> len(pinned_numpy(Target("3.13", "arm64")).sha256)
    64
    """
    path = resource_path(f"lambda/requirements-{target.arch}.txt")
    for line in path.read_text(encoding="utf-8").splitlines():
        match = _PIN.fullmatch(line)
        if match and match["python"] == target.python:
            return Pin(match["version"], match["sha256"])
    raise ConfigError(f"{path} pins no NumPy for Python {target.python}; name a version (numpy=, --numpy)")


def numpy_wheel(target: Target, version: str | None = None, environ: Mapping[str, str] = os.environ) -> Wheel:
    """Return NumPy's wheel for a runtime, from the cache if it is there.

    Parameters
    ----------
    target
        The runtime.
    version
        NumPy's version; by default the pinned one, whose hash is known beforehand.
    environ
        Where the cache is looked up, and pip's environment.

    Raises
    ------
    InputError
        If ``version`` is not a version.
    ConfigError
        If the wheel cannot be had.
    """
    if version is not None and not _VERSION.fullmatch(version):
        raise InputError(f"numpy must be a version such as 2.4.6, got {version!r}")
    pin = pinned_numpy(target)
    if version not in {None, pin.version}:
        pin = Pin(str(version))
    cache = cache_path(environ)
    cached = _cached(cache, target, pin)
    if cached is not None:
        return cached
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as folder:
            path = _download(target, pin, Path(folder), environ)
            sha256 = _sha256(path)
            if pin.sha256 not in {"", sha256}:
                raise ConfigError(f"{path.name} has the SHA-256 {sha256}, {pin.sha256} is pinned: it is not the one")
            kept = cache / sha256 / path.name
            kept.parent.mkdir(exist_ok=True)
            path.replace(kept)
    except OSError as exc:
        raise ConfigError(
            f"cannot keep wheels in {cache}: {exc.strerror or exc}; name another folder in SERVERLESS_GC_CACHE_DIR"
        ) from exc
    return Wheel(kept, pin.version, sha256)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cached(cache: Path, target: Target, pin: Pin) -> Wheel | None:
    """Look for a wheel; one whose content is not what its folder says is removed."""
    found = sorted(cache.glob(f"{pin.sha256 or '*'}/numpy-{pin.version}-{target.abi}-{target.abi}-*.whl"))
    for platform in target.platforms:
        for path in found:
            if platform not in path.stem.rsplit("-", 1)[-1].split("."):
                continue
            if _sha256(path) == path.parent.name:
                return Wheel(path, pin.version, path.parent.name)
            _log.warning("the kept wheel %s is damaged and is downloaded again", path)
            path.unlink()
    return None


def _pip(environ: Mapping[str, str]) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = next((p for n in ("pip3", "pip") if (p := shutil.which(n, path=environ.get("PATH", "")))), None)
    if found is None:
        raise ConfigError(
            f"pip is needed to download NumPy, and {sys.executable} has none: install it with "
            f"`{sys.executable} -m ensurepip`, or put a pip on the PATH"
        )
    return [found]


def _download(target: Target, pin: Pin, folder: Path, environ: Mapping[str, str]) -> Path:
    """Have pip download one wheel; its configuration (index, proxy, certificates) is the user's."""
    requirement = folder / "requirements.txt"
    requirement.write_text(f"numpy=={pin.version}" + (f" --hash=sha256:{pin.sha256}" if pin.sha256 else "") + "\n")
    command = [*_pip(environ), "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", target.python]
    for platform in target.platforms:
        command += ["--platform", platform]
    command += ["--dest", str(folder), "--requirement", str(requirement)]
    done = subprocess.run(  # noqa: S603 - pip, with arguments made here
        command, capture_output=True, text=True, check=False, env=dict(environ)
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    lines = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.strip()]
    reason = next((line for line in lines if "hash" in line.lower() or "could not find" in line.lower()), "")
    raise ConfigError(
        f"pip could not download NumPy {pin.version} for Python {target.python} on {target.arch} "
        f"(exit status {done.returncode}): {reason or ' '.join(lines[-1:]) or 'it said nothing'}. "
        "Is a package index reachable (`pip config list`), and does it have that wheel? "
        f"What was downloaded once is kept in {cache_path(environ)} and needs no network"
    )
