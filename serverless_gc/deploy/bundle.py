"""The deployment package of the worker: one zip, or a function and a layer, the same bytes at every build.

It holds the handler, the parts of this package that run remotely, NumPy's wheel for Lambda without what a function
never opens, and the installed cloudpickle, by which functions given as a loss are loaded. SciPy, boto3 and the driver
are never in it. Needs pip and the standard library only.
"""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serverless_gc.deploy.archive import Archive, write_archive
from serverless_gc.deploy.bytecode import Interpreter, compile_sources, find_interpreter
from serverless_gc.deploy.contents import Contents, read_cloudpickle, read_wheel
from serverless_gc.deploy.resources import resource_path
from serverless_gc.deploy.target import Target
from serverless_gc.deploy.wheels import numpy_wheel
from serverless_gc.errors import LimitError
from serverless_gc.limits import DEFAULT_LIMITS, Limits

__all__ = ["HANDLER", "STAMP", "Bundle", "build_bundle"]

HANDLER = "handler.handler"
"""What to enter as the function's handler."""

STAMP = "bundle.json"
"""File beside the handler that says what the package was built for."""

_PACKAGE = Path(__file__).parents[1]
_TASK_ROOT, _LAYERS = "/var/task", "/opt"
_MARGIN = 0.8  # of the unzipped limit: a user's own layers count too
_MB = 2**20


@dataclass(frozen=True, slots=True)
class Bundle:
    """A deployment package on disk.

    Attributes
    ----------
    function
        The function's zip.
    layer
        The zip of the layer with NumPy, or None if NumPy is in the function's.
    python, arch
        The runtime it was built for, such as ``"3.13"`` and ``"arm64"``.
    numpy, cloudpickle, version, protocol
        Versions of NumPy, of cloudpickle (empty if it is not in it), of this package and of the protocol in it.
    bytecode
        Version of the Python that compiled it; empty if only sources are in it.
    left_out
        Kind -> bytes of NumPy that are not in it.
    """

    function: Archive
    layer: Archive | None
    python: str
    arch: str
    numpy: str
    cloudpickle: str
    version: str
    protocol: int
    bytecode: str
    left_out: Mapping[str, int]

    @property
    def path(self) -> Path:
        """The function's zip."""
        return self.function.path

    @property
    def sha256(self) -> str:
        """Hash of the function's zip, in hexadecimal."""
        return self.function.sha256

    @property
    def code_sha256(self) -> str:
        """Hash of the function's zip as Lambda reports it in ``CodeSha256``."""
        return self.function.code_sha256

    @property
    def archives(self) -> tuple[Archive, ...]:
        """All zips: the function's first."""
        return (self.function,) if self.layer is None else (self.function, self.layer)

    @property
    def zipped_bytes(self) -> int:
        """Bytes of all zips."""
        return sum(archive.zipped_bytes for archive in self.archives)

    @property
    def unzipped_bytes(self) -> int:
        """Bytes of what is in them."""
        return sum(archive.unzipped_bytes for archive in self.archives)

    def summary(self, limits: Limits = DEFAULT_LIMITS) -> str:
        """Say in a few lines what was built, how large it is, and what was left out."""
        compiled = f"byte code of Python {self.bytecode}"
        without = f"no byte code (no Python {self.python} on this machine): a cold start takes longer by about 0.15 s"
        functions = f"cloudpickle {self.cloudpickle}" if self.cloudpickle else "no cloudpickle: built-in losses only"
        left_out = ", ".join(f"{kind} {size / _MB:.1f} MB" for kind, size in self.left_out.items())
        lines = [_described(archive, limits) for archive in self.archives]
        lines += [
            f"{self.unzipped_bytes / _MB:.1f} MB unzipped ({self.unzipped_bytes / limits.code_bytes:.0%} of the limit)",
            f"for runtime python{self.python}, architecture {self.arch}, handler {HANDLER}",
            f"holds serverless_gc {self.version} (protocol {self.protocol}), numpy {self.numpy}, {functions}",
            compiled if self.bytecode else without,
            f"left out of numpy: {left_out}",
        ]
        return "\n".join(lines)


def _described(archive: Archive, limits: Limits) -> str:
    share = archive.zipped_bytes / limits.code_zip_bytes
    return (
        f"{archive.path}\n"
        f"  {archive.zipped_bytes / _MB:.1f} MB zipped ({share:.0%} of the limit), {archive.n_files} files\n"
        f"  sha256      {archive.sha256}\n"
        f"  CodeSha256  {archive.code_sha256}"
    )


def build_bundle(
    output: str | os.PathLike[str],
    *,
    python: str = "3.13",
    arch: str = "arm64",
    numpy: str | None = None,
    as_layer: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    environ: Mapping[str, str] = os.environ,
) -> Bundle:
    """Build the deployment package for AWS Lambda, on any machine.

    Two builds from the same sources with the same interpreter and zlib give the same bytes.

    Parameters
    ----------
    output
        Folder for ``function-python3.13-arm64.zip``, and ``layer-...`` if there is one; made if needed.
    python, arch
        The function's runtime and architecture.
    numpy
        NumPy's version; by default the one pinned for the runtime, whose hash is known beforehand.
    as_layer
        Put NumPy into a layer of its own, so that a new release of this package uploads some kilobytes.
    limits
        Sizes that Lambda accepts.
    environ
        Where interpreters (``PATH``) and the cache of wheels (``SERVERLESS_GC_CACHE_DIR``) are looked up.

    Returns
    -------
    Bundle

    Raises
    ------
    InputError
        If ``python``, ``arch`` or ``numpy`` is not one that can be.
    LimitError
        If Lambda would not accept the sizes.
    ConfigError
        If pip is missing or fails, a shared object is for another machine, or a file cannot be written.

    Examples
    --------
    >>> build_bundle("build", python="2.7")
    Traceback (most recent call last):
    ...
    serverless_gc.errors.InputError: python must be one of 3.11, 3.12, 3.13, 3.14, which Lambda runs; got '2.7'
    """
    target = Target(python, arch)
    wheel = numpy_wheel(target, numpy, environ)
    contents = read_wheel(wheel.path, target.machine)
    # Read from the files that are shipped: importing them would need NumPy, which a builder may not have.
    version = str(runpy.run_path(str(_PACKAGE / "__init__.py"))["__version__"])
    protocol = int(runpy.run_path(str(_PACKAGE / "wire" / "version.py"))["PROTOCOL"])
    pickling = read_cloudpickle()
    stamp = {
        "serverless_gc": version,
        "protocol": protocol,
        "python": python,
        "arch": arch,
        "numpy": wheel.version,
        "cloudpickle": pickling.version,
        "layer": as_layer,
    }
    own = {**_own_files(), **pickling.files, STAMP: (json.dumps(stamp, indent=1) + "\n").encode()}
    interpreter = find_interpreter(python, environ)
    prefix = f"python/lib/python{python}/site-packages/"
    function, layer = _laid_out(own, contents, prefix if as_layer else "", interpreter, environ)
    folder, name = Path(output), f"python{python}-{arch}.zip"
    bundle = Bundle(
        function=write_archive(folder / f"function-{name}", function),
        layer=write_archive(folder / f"layer-{name}", layer) if as_layer else None,
        python=python,
        arch=arch,
        numpy=wheel.version,
        cloudpickle=pickling.version,
        version=version,
        protocol=protocol,
        bytecode=interpreter.version if interpreter else "",
        left_out=contents.left_out,
    )
    _check_sizes(bundle, limits)
    return bundle


def _own_files() -> dict[str, bytes]:
    """Read the handler and the modules that run remotely."""
    modules = [_PACKAGE / "__init__.py", *_PACKAGE.glob("worker/*.py"), *_PACKAGE.glob("wire/*.py")]
    files = {path.relative_to(_PACKAGE.parent).as_posix(): path.read_bytes() for path in modules}
    return {**files, "handler.py": resource_path("lambda/handler.py").read_bytes()}


def _laid_out(
    own: Mapping[str, bytes],
    contents: Contents,
    prefix: str,
    interpreter: Interpreter | None,
    environ: Mapping[str, str],
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the files of the function and of the layer, compiled; without a prefix NumPy is the function's."""
    numpy = {prefix + name: data for name, data in contents.files.items()}
    function, layer = ({**own}, numpy) if prefix else ({**own, **numpy}, {})
    return _compiled(function, _TASK_ROOT, interpreter, environ), _compiled(layer, _LAYERS, interpreter, environ)


def _compiled(
    files: dict[str, bytes], root: str, interpreter: Interpreter | None, environ: Mapping[str, str]
) -> dict[str, bytes]:
    """Add byte code, if there is a compiler."""
    if interpreter is None or not files:
        return files
    sources = {name: data for name, data in files.items() if name.endswith(".py")}
    return files | compile_sources(sources, interpreter, root, environ)


def _check_sizes(bundle: Bundle, limits: Limits) -> None:
    for archive in bundle.archives:
        if archive.zipped_bytes > limits.code_zip_bytes:
            raise LimitError(
                f"{archive.path} has {archive.zipped_bytes:,} bytes, Lambda takes {limits.code_zip_bytes:,} directly"
            )
    room = int(_MARGIN * limits.code_bytes)
    if bundle.unzipped_bytes > room:
        raise LimitError(
            f"the package has {bundle.unzipped_bytes:,} bytes unzipped; Lambda takes {limits.code_bytes:,}, of which "
            f"{room:,} may be used here to leave room for other layers"
        )
