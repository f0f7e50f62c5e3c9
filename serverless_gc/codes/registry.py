"""Codes by name. Classes are imported when first used, so that listing names costs nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Code, CodeKind
from serverless_gc.errors import InputError
from serverless_gc.refusals import did_you_mean, unknown_name

__all__ = [
    "CodeInfo",
    "available",
    "code_class",
    "completed",
    "from_manifest",
    "get",
    "parameters",
    "per_worker",
    "rate",
    "register",
]

Sizes: TypeAlias = Callable[[int | None, int | None], tuple[int, int]]
"""Completes the pair (n_workers, k) where one or both are None."""

_DEFAULT_WORKERS = 16


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """What the registry knows of a code without importing it.

    Attributes
    ----------
    name
        For `get`.
    kind
        ``"data"``, ``"gradient"``, ``"matmul"`` or ``"multi-message"``.
    exact
        Whether a decoded answer equals the uncoded one up to rounding.
    summary
        One sentence.
    """

    name: str
    kind: CodeKind
    exact: bool
    summary: str


@dataclass(frozen=True, slots=True)
class _Entry:
    info: CodeInfo
    target: str | type[Code]
    sizes: Sizes | None
    listed: bool


def rate(numerator: int, denominator: int) -> Sizes:
    """Make the rule that completes sizes to ``k = n_workers * numerator / denominator``, rounded to more workers.

    Examples
    --------
    >>> complete = rate(3, 4)
    >>> complete(20, None), complete(None, 10), complete(None, None)
    ((20, 15), (14, 10), (16, 12))
    """

    def complete(n_workers: int | None, k: int | None) -> tuple[int, int]:
        if n_workers is None:
            n_workers = _DEFAULT_WORKERS if k is None else -(-k * denominator // numerator)
        return n_workers, max(1, n_workers * numerator // denominator) if k is None else k

    return complete


def per_worker(blocks: int) -> Sizes:
    """Make the rule that completes sizes to so many source blocks a worker, with at most 16 workers chosen.

    Examples
    --------
    >>> complete = per_worker(8)
    >>> complete(4, None), complete(None, 50), complete(None, 1000), complete(None, None)
    ((4, 32), (7, 50), (16, 1000), (16, 128))
    """

    def complete(n_workers: int | None, k: int | None) -> tuple[int, int]:
        if n_workers is None:
            n_workers = _DEFAULT_WORKERS if k is None else min(-(-k // blocks), _DEFAULT_WORKERS)
        return n_workers, n_workers * blocks if k is None else k

    return complete


_THREE_QUARTERS = rate(3, 4)
_ENTRIES: dict[str, _Entry] = {}


def register(
    name: str,
    target: str | type[Code],
    *,
    summary: str,
    kind: CodeKind = "data",
    exact: bool = True,
    sizes: Sizes | None = _THREE_QUARTERS,
    listed: bool = True,
) -> None:
    """Make a code known by name.

    Parameters
    ----------
    name
        For `get`; must be free.
    target
        The class, or ``"module:Class"`` to import it when first used. It is called with ``n_workers``, ``k`` and
        the parameters, and rebuilt by its ``from_manifest``.
    summary
        One sentence for lists.
    kind, exact
        See `CodeInfo`.
    sizes
        Completes ``(n_workers, k)`` where the caller leaves one out; None if the class derives them itself.
    listed
        Whether `available` offers it: every code that it does can be made without further parameters.

    Raises
    ------
    InputError
        If the name is taken.
    """
    if name in _ENTRIES:
        raise InputError(f"name must be free, {name!r} is registered already: choose another")
    _ENTRIES[name] = _Entry(CodeInfo(name, kind, exact, summary), target, sizes, listed)


def available() -> tuple[CodeInfo, ...]:
    """Return what is known of every code, by name. Imports none of them.

    Examples
    --------
    >>> [info.name for info in available() if info.name in ("mds", "polar")]
    ['mds', 'polar']
    """
    return tuple(_ENTRIES[name].info for name in sorted(_ENTRIES) if _ENTRIES[name].listed)


def code_class(name: str) -> type[Code]:
    """Return the class registered under ``name``, importing it.

    Raises
    ------
    InputError
        If there is none; lists near matches and all names.
    """
    target = _entry(name).target
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        cls: type[Code] = getattr(import_module(module), attribute)
        return cls
    return target


def get(name: str, *, n_workers: int | None = None, k: int | None = None, **params: Any) -> Code:
    """Make a code.

    Parameters
    ----------
    name
        One of the names of `available`.
    n_workers, k
        Number of workers and of source blocks. What is not given follows from the other by a rule of the code: for
        most a rate ``k / n_workers`` of 3/4; as many blocks as workers for ``"uncoded"``, half as many for
        ``"replication"``, 8 a worker for ``"lt"``, one parity a line for grids. With neither given there are 16
        workers, or as many as the code's other parameters say.
    **params
        Parameters of the code, by keyword.

    Raises
    ------
    InputError
        If the name or a parameter is unknown, or a value is refused.

    Examples
    --------
    >>> get("mds", n_workers=8)
    MDSCode(n_workers=8, k=6, parity='orthonormal', seed=0)
    >>> get("replication", k=3)
    ReplicationCode(n_workers=6, k=3)
    """
    cls = code_class(name)
    known = parameters(name)
    for key in params:
        if key not in known:
            near = did_you_mean(key, [*known, "n_workers", "k"])
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise InputError(f"code {name!r} has no parameter {key!r}; {near or takes}")
    make: Callable[..., Code] = cls
    sizes = completed(name, n_workers, k)
    if sizes is None:
        given = {} if n_workers is None else {"n_workers": n_workers}
        if k is not None and "k" in inspect.signature(cls).parameters:
            given["k"] = k
        code = _call(name, make, {**given, **params})
        if k is not None and k != code.k:
            raise InputError(f"k follows from the parameters of {name!r}: it is {code.k}, got {k}")
        return code
    return _call(name, make, {"n_workers": sizes[0], "k": sizes[1], **params})


def completed(name: str, n_workers: int | None, k: int | None) -> tuple[int, int] | None:
    """Return ``(n_workers, k)`` of the code that `get` would make, without making it; None if its class derives them.

    Raises
    ------
    InputError
        If there is no such code, or a number is not positive.

    Examples
    --------
    >>> completed("lt", 100, None)
    (100, 800)
    """
    sizes = _entry(name).sizes
    return None if sizes is None else sizes(_whole("n_workers", n_workers), _whole("k", k))


def parameters(name: str) -> list[str]:
    """Return the parameters of a code besides ``n_workers`` and ``k``.

    Examples
    --------
    >>> parameters("mds")
    ['parity', 'seed']
    """
    return [p for p in inspect.signature(code_class(name)).parameters if p not in {"n_workers", "k"}]


def from_manifest(manifest: Mapping[str, Any]) -> Code:
    """Rebuild a code from its manifest alone.

    Raises
    ------
    InputError
        If it is no manifest, or of an unknown code.

    Examples
    --------
    >>> from_manifest(get("uncoded", k=3).manifest())
    UncodedCode(n_workers=3, k=3)
    """
    if "code" not in manifest:
        raise InputError(f"manifest must name its code under 'code'; its keys are {sorted(manifest)}")
    return code_class(manifest["code"]).from_manifest(manifest)


def _entry(name: str) -> _Entry:
    if name in _ENTRIES:
        return _ENTRIES[name]
    listed = [info.name for info in available()]
    raise InputError(unknown_name("code", name, listed))


def _call(name: str, make: Callable[..., Code], arguments: dict[str, Any]) -> Code:
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        raise InputError(f"code {name!r}: {error}") from None
    return make(**arguments)


def _whole(label: str, value: int | None) -> int | None:
    return None if value is None else check_whole(label, value, 1)
