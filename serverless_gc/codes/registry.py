"""Codes by name. Classes are imported when first used, so that listing names costs nothing."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from serverless_gc.codes.base import Code, CodeKind
from serverless_gc.codes.mds_points import few_stragglers, rotation_sizes
from serverless_gc.codes.points import oversampled
from serverless_gc.codes.product_grids import local_parity_sizes, product_sizes
from serverless_gc.errors import InputError

__all__ = ["CodeInfo", "available", "code_class", "from_manifest", "get", "per_worker", "rate", "register"]

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
        Number of workers and of source blocks. With one of them missing the other is chosen: equal for
        ``"uncoded"``, two copies for ``"replication"``, 8 blocks a worker for ``"lt"``, a rate ``k / n_workers`` of
        3/4 otherwise; with both missing there are 16 workers.
        ``"uncoded"``, two copies for ``"replication"``, one parity a line for grids, a rate ``k / n_workers``
        of 3/4 for most others; with both missing there are 16 workers.
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
    sizes = _entry(name).sizes
    cls = code_class(name)
    known = _parameters(cls)
    for key in params:
        if key not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise InputError(f"code {name!r} has no parameter {key!r}; {takes}")
    make: Callable[..., Code] = cls
    if sizes is None:
        given = {} if n_workers is None else {"n_workers": n_workers}
        if k is not None and "k" in inspect.signature(cls).parameters:
            given["k"] = k
        code = _call(name, make, {**given, **params})
        if k is not None and k != code.k:
            raise InputError(f"k follows from the parameters of {name!r}: it is {code.k}, got {k}")
        return code
    n, blocks = sizes(_whole("n_workers", n_workers), _whole("k", k))
    return _call(name, make, {"n_workers": n, "k": blocks, **params})


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
    near = difflib.get_close_matches(str(name), listed, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise InputError(f"no code is called {name!r}; {hint}there are {', '.join(listed)}")


def _parameters(cls: type[Code]) -> list[str]:
    signature = inspect.signature(cls)
    return [name for name in signature.parameters if name not in {"n_workers", "k"}]


def _call(name: str, make: Callable[..., Code], arguments: dict[str, Any]) -> Code:
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        raise InputError(f"code {name!r}: {error}") from None
    return make(**arguments)


def _whole(label: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < 1):
        raise InputError(f"{label} must be an integer of at least 1, got {value!r}")
    return value


_HOUSE = "serverless_gc.codes"
register(
    "berrut",
    f"{_HOUSE}.berrut:BerrutCode",
    summary="Rational interpolation: approximate answers for any function of a block, from any number of results.",
    exact=False,
    sizes=rate(1, 8),
)
register(
    "bgc",
    f"{_HOUSE}.gradient.bernoulli:BernoulliCode",
    summary="Every worker holds each partition by chance: simple, approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "bibd",
    f"{_HOUSE}.gradient.bibd:BIBDCode",
    summary="Block designs: the error depends only on how many straggle; approximate.",
    kind="gradient",
    exact=False,
    sizes=None,
)
register(
    "entangled",
    f"{_HOUSE}.matmul.polynomial:EntangledCode",
    summary="Matrix products with the inner dimension cut too: p q r + r - 1 results, few blocks.",
    kind="matmul",
    sizes=None,
)
register(
    "erasurehead",
    f"{_HOUSE}.gradient.erasure_head:ErasureHeadCode",
    summary="Fractional repetition, stopped early: least mean error against random stragglers.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "expander",
    f"{_HOUSE}.gradient.expander:ExpanderCode",
    summary="Averages over the neighbours in an expander graph: bounded worst case, approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "graph",
    f"{_HOUSE}.gradient.graph:GraphCode",
    summary="Workers are edges of a graph: best weights in linear time, for any stragglers; approximate.",
    kind="gradient",
    exact=False,
    sizes=None,
)
register(
    "heterogeneous",
    f"{_HOUSE}.gradient.heterogeneous:HeterogeneousCode",
    summary="For known probabilities of straggling: unbiased with the least variance; approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "ignore-stragglers",
    f"{_HOUSE}.gradient.ignore:IgnoreStragglersCode",
    summary="No redundancy, what is missing counts as zero: the baseline of gradient codes.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "khatri-rao",
    f"{_HOUSE}.matmul.khatri_rao:KhatriRaoCode",
    summary="Matrix products, systematic with random parity: any p q results decode.",
    kind="matmul",
    sizes=None,
)
register(
    "lagrange",
    f"{_HOUSE}.lagrange:LagrangeCode",
    summary="Blocks on a polynomial: exact for any polynomial of a block, for few blocks.",
    sizes=oversampled(1),
)
register(
    "ldpc",
    f"{_HOUSE}.ldpc:LDPCCode",
    summary="Sparse checks: cheap at any size, and partly decodable; needs a few percent more results than k.",
    sizes=rate(3, 4),
)
register(
    "linear",
    f"{_HOUSE}.linear:LinearCode",
    summary="Any generator matrix and placement: the slow reference of all others.",
    sizes=None,
    listed=False,
)
register(
    "linear-gradient",
    f"{_HOUSE}.gradient.linear:LinearGradientCode",
    summary="Any encoding matrix of partition gradients: the slow reference of all gradient codes.",
    kind="gradient",
    sizes=None,
    listed=False,
)
register(
    "local-parity",
    f"{_HOUSE}.local_parity:LocalParityCode",
    summary="Small grids with parity per row and column: a repair reads a few blocks only.",
    sizes=local_parity_sizes,
)
register(
    "lt",
    f"{_HOUSE}.lt:LTCode",
    summary="Many sparse random sums a worker, sent one by one: what slow workers finish counts.",
    sizes=per_worker(8),
)
register(
    "lwpd",
    f"{_HOUSE}.projective:ProjectiveCode",
    summary="Derivatives along light directions: messages k times shorter than a gradient, any loss.",
    kind="gradient",
)
register(
    "matdot",
    f"{_HOUSE}.matmul.matdot:MatDotCode",
    summary="Matrix products cut along the inner dimension: 2 k - 1 results, very few blocks.",
    kind="matmul",
    sizes=None,
)
register(
    "mds",
    f"{_HOUSE}.mds:MDSCode",
    summary="Systematic with random orthonormal parity: any k results decode.",
)
register(
    "mds-nonsystematic",
    f"{_HOUSE}.mds_nonsystematic:NonsystematicMDSCode",
    summary="Gaussian, Chebyshev or Vandermonde generators, for comparison with mds.",
)
register(
    "ortho-matdot",
    f"{_HOUSE}.matmul.matdot:OrthoMatDotCode",
    summary="MatDot in an orthonormal basis: accurate for up to 10 blocks.",
    kind="matmul",
    sizes=None,
)
register(
    "pcr",
    f"{_HOUSE}.pcr:PCRCode",
    summary="Least-squares gradients in one round, one weighted sum of results, for few blocks.",
    sizes=oversampled(2),
)
register(
    "polar",
    f"{_HOUSE}.polar:PolarCode",
    summary="Additions only, fast to encode and decode at hundreds of workers; needs a few results more than k.",
)
register(
    "polar-matmul",
    f"{_HOUSE}.matmul.polar:PolarMatmulCode",
    summary="Matrix products with a polar code on each operand: additions only.",
    kind="matmul",
    sizes=None,
)
register(
    "polynomial",
    f"{_HOUSE}.matmul.polynomial:PolynomialCode",
    summary="Matrix products by polynomials in real points: p q results, up to 8 blocks.",
    kind="matmul",
    sizes=None,
)
register(
    "polynomial-complex",
    f"{_HOUSE}.matmul.polynomial:ComplexPolynomialCode",
    summary="Matrix products by polynomials in complex roots of unity: p q results.",
    kind="matmul",
    sizes=None,
)
register(
    "product",
    f"{_HOUSE}.product:ProductCode",
    summary="A grid with parity per row and column: the most accurate, cheapest at a small overhead.",
    sizes=product_sizes,
)
register(
    "product-gradient",
    f"{_HOUSE}.gradient.product:ProductGradientCode",
    summary="Products of two small gradient codes; exact when both are.",
    kind="gradient",
    exact=False,
    sizes=None,
)
register(
    "product-matmul",
    f"{_HOUSE}.matmul.product:ProductMatmulCode",
    summary="Matrix products with parity on each operand: cheapest and most accurate at a small overhead.",
    kind="matmul",
    sizes=None,
)
register(
    "rbgc",
    f"{_HOUSE}.gradient.bernoulli:RegularizedBernoulliCode",
    summary="A Bernoulli code without overloaded workers or partitions; approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "replication",
    f"{_HOUSE}.replication:ReplicationCode",
    summary="Copies of every block; exact for any function of a block.",
    sizes=rate(1, 2),
)
register(
    "roots-of-unity",
    f"{_HOUSE}.mds_rotation:RootsOfUnityCode",
    summary="Complex MDS code on the unit circle, for a few stragglers.",
    sizes=few_stragglers,
)
register(
    "rotation",
    f"{_HOUSE}.mds_rotation:RotationCode",
    summary="The roots of unity over the reals, two messages a worker, for a few stragglers.",
    kind="multi-message",
    sizes=rotation_sizes,
)
register(
    "sbc",
    f"{_HOUSE}.gradient.block_model:StochasticBlockCode",
    summary="Hidden blocks between repetition and chance: hard to attack; approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "short-dot",
    f"{_HOUSE}.short_dot:ShortDotCode",
    summary="Coded rows with zeros: a worker needs a part of x only.",
    sizes=rate(1, 4),
)
register(
    "soft-bibd",
    f"{_HOUSE}.gradient.soft_bibd:SoftBIBDCode",
    summary="Nearly a block design, at any size; approximate.",
    kind="gradient",
    exact=False,
    sizes=rate(1, 1),
)
register(
    "uncoded",
    f"{_HOUSE}.uncoded:UncodedCode",
    summary="One worker a block, all must answer: the baseline.",
    sizes=rate(1, 1),
)
