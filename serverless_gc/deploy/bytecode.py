"""Byte code for a Python version that may not be the one running.

A deployed function's folder is read-only and its files' times are those of the zip, so ordinary byte code is either
absent or stale, and every cold start compiles NumPy again. Byte code marked *unchecked hash* is taken as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from serverless_gc.errors import ConfigError

__all__ = ["Interpreter", "compile_sources", "find_interpreter"]

_ASK = "import sys; print(sys.implementation.name, sys.version_info[3], '%d.%d.%d' % sys.version_info[:3])"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python on this machine: its path and full version."""

    path: str
    version: str


def _candidates(python: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Name files that may be that Python: this one, on the PATH, and where pyenv and uv keep theirs."""
    yield sys.executable
    on_path = shutil.which(f"python{python}", path=environ.get("PATH", ""))
    if on_path:
        yield on_path
    home = environ.get("HOME") or environ.get("USERPROFILE") or os.devnull
    pyenv = Path(environ.get("PYENV_ROOT") or Path(home, ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{python}.*/bin/python")))
    data = Path(environ.get("XDG_DATA_HOME") or Path(home, ".local", "share"))
    yield from map(str, sorted(data.glob(f"uv/python/cpython-{python}.*/bin/python{python}")))


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Python's own variables, and with a fixed order of sets."""
    return {**{k: v for k, v in environ.items() if not k.startswith("PYTHON")}, "PYTHONHASHSEED": "0"}


def find_interpreter(python: str, environ: Mapping[str, str] = os.environ) -> Interpreter | None:
    """Return a released CPython of this minor version, or None if the machine has none.

    Parameters
    ----------
    python
        Such as ``"3.13"``.
    environ
        Where ``PATH``, ``HOME``, ``PYENV_ROOT`` and ``XDG_DATA_HOME`` are looked up.

    Examples
    --------
    >>> find_interpreter("%d.%d" % sys.version_info[:2]).path == sys.executable
    True
    """
    for path in _candidates(python, environ):
        try:
            asked = subprocess.run(  # noqa: S603 - a Python of this machine
                [path, "-I", "-S", "-c", _ASK],
                capture_output=True,
                text=True,
                check=False,
                timeout=30,
                env=_clean(environ),
            )
        except (OSError, subprocess.TimeoutExpired):
            continue  # a broken installation is as good as none
        # A pyenv shim of a version that is not activated exits with 127; byte code of betas is not that of releases.
        name, _, rest = asked.stdout.strip().partition(" ")
        level, _, version = rest.partition(" ")
        if asked.returncode == 0 and (name, level) == ("cpython", "final") and version.startswith(python + "."):
            return Interpreter(path, version)
    return None


def compile_sources(
    sources: Mapping[str, bytes], interpreter: Interpreter, root: str, environ: Mapping[str, str] = os.environ
) -> dict[str, bytes]:
    """Compile modules; the same sources and interpreter give the same bytes.

    Parameters
    ----------
    sources
        Path -> content of the ``.py`` files.
    interpreter
        Who compiles.
    root
        Folder that the files will be in; the byte code names it instead of the one where it was compiled.
    environ
        Environment of the compiler.

    Returns
    -------
    dict
        Path -> content of the ``.pyc`` files.

    Raises
    ------
    ConfigError
        If a file does not compile.

    Examples
    --------
    >>> me = find_interpreter("%d.%d" % sys.version_info[:2])
    >>> list(compile_sources({"p/m.py": b"x = 1"}, me, "/var/task"))
    ['p/__pycache__/m.cpython-...pyc']
    """
    with tempfile.TemporaryDirectory(prefix="serverless-gc-") as folder:
        stage = Path(folder).resolve()
        for name, content in sources.items():
            path = stage / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        command = [interpreter.path, "-s", "-S", "-m", "compileall", "-q", "-f", "-r", "99"]
        command += ["--invalidation-mode", "unchecked-hash", "-s", str(stage), "-p", root, str(stage)]
        done = subprocess.run(  # noqa: S603 - a Python of this machine
            command, capture_output=True, text=True, check=False, env=_clean(environ)
        )
        if done.returncode != 0:
            raise ConfigError(
                f"Python {interpreter.version} ({interpreter.path}) could not compile the package: "
                f"{(done.stdout + done.stderr).strip()[-500:]}"
            )
        return {path.relative_to(stage).as_posix(): path.read_bytes() for path in sorted(stage.rglob("*.pyc"))}
