"""What a deployment package is built for: a Python version and an architecture of AWS Lambda."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from serverless_gc.errors import ConfigError, InputError

__all__ = ["ARCHITECTURES", "PYTHONS", "Target", "check_shared_object"]

ARCHITECTURES = {"arm64": "aarch64", "x86_64": "x86_64"}
"""Lambda's name of each architecture, and Linux's."""

_AL2023 = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_27", "manylinux2014")  # glibc 2.34
_AL2 = ("manylinux2014",)  # glibc 2.26: the last NumPy with such wheels is 2.2

PYTHONS = {"3.11": _AL2, "3.12": _AL2023, "3.13": _AL2023, "3.14": _AL2023}
"""Python versions of Lambda's managed runtimes, and which wheels run there, best first.

From https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtimes.html, 2026-11.
"""

_MACHINES = {62: "x86_64", 183: "aarch64", 3: "i386", 40: "arm"}
_MAGIC = {
    b"\x7fELF": "ELF",
    b"MZ": "Windows",
    **{magic: "macOS" for word in (0xFEEDFACE, 0xFEEDFACF, 0xCAFEBABE) for magic in (word.to_bytes(4, "big"),)},
    **{word.to_bytes(4, "little"): "macOS" for word in (0xFEEDFACE, 0xFEEDFACF)},
}


@dataclass(frozen=True, slots=True)
class Target:
    """A runtime of AWS Lambda.

    Parameters
    ----------
    python
        Python version, such as ``"3.13"``.
    arch
        ``"arm64"`` or ``"x86_64"``.

    Raises
    ------
    InputError
        If Lambda has no such runtime.

    Examples
    --------
    >>> Target("3.13", "arm64").machine
    'aarch64'
    """

    python: str = "3.13"
    arch: str = "arm64"

    def __post_init__(self) -> None:
        if self.python not in PYTHONS:
            raise InputError(f"python must be one of {', '.join(PYTHONS)}, which Lambda runs; got {self.python!r}")
        if self.arch not in ARCHITECTURES:
            raise InputError(f"arch must be one of {', '.join(ARCHITECTURES)}; got {self.arch!r}")

    @property
    def machine(self) -> str:
        """Linux's name of the architecture, as ``uname -m`` prints it."""
        return ARCHITECTURES[self.arch]

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platform tags of the wheels that run there, best first."""
        return tuple(f"{tag}_{self.machine}" for tag in PYTHONS[self.python])

    @property
    def abi(self) -> str:
        """ABI tag of the wheels that run there."""
        return "cp" + self.python.replace(".", "")


def _described(data: bytes) -> str:
    """Say what a compiled file is, from its first bytes; empty if it is none."""
    kind = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), "")
    if kind != "ELF":
        return kind and f"{kind} code"
    if len(data) < 20:
        return "a truncated ELF file"
    bits = {1: "32-bit ", 2: ""}.get(data[4], "")
    (machine,) = struct.unpack("<H" if data[5] == 1 else ">H", data[18:20])
    return f"{bits}ELF code for {_MACHINES.get(machine, f'machine {machine}')}"


def check_shared_object(name: str, data: bytes, machine: str) -> None:
    """Refuse compiled code that does not run on the machine; other files pass.

    Parameters
    ----------
    name
        Of the file, for the message and its suffix.
    data
        Its content.
    machine
        As ``uname -m`` prints it.

    Raises
    ------
    ConfigError
        If the file is compiled code, or is named so, and is not ELF for that machine.

    Examples
    --------
    >>> check_shared_object("a.so", b"MZ...", "aarch64")
    Traceback (most recent call last):
    ...
    serverless_gc.errors.ConfigError: a.so is Windows code, but the function needs ELF code for aarch64 ...
    """
    found = _described(data)
    named_so = name.endswith((".so", ".dylib", ".pyd", ".dll")) or ".so." in name.rsplit("/", 1)[-1]
    if (found or named_so) and found != f"ELF code for {machine}":
        raise ConfigError(
            f"{name} is {found or 'no compiled code'}, but the function needs ELF code for {machine}: the wheel is "
            "not the one for this architecture, or damaged"
        )
