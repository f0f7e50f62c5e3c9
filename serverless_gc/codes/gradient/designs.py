"""Balanced incomplete block designs: difference sets, projective and affine planes, or any incidence matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.codes.gradient.approximate import nearest
from serverless_gc.codes.gradient.residues import is_prime, nonzero_squares
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["FAMILIES", "Design", "Parameters", "check_design", "find_design", "known_designs"]

_DIFFERENCE_SETS = {
    7: (0, 1, 3),
    11: (1, 3, 4, 5, 9),
    13: (0, 1, 3, 9),
    21: (3, 6, 7, 12, 14),
    31: (1, 5, 11, 24, 25, 27),
}

FAMILIES = ("difference-set", "projective-plane", "affine-plane", "quadratic-residues")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Numbers of a design.

    Attributes
    ----------
    points, blocks
        How many there are of each.
    replication
        Blocks through a point.
    size
        Points of a block.
    pairs
        Blocks through two points, whichever they are.
    """

    points: int
    blocks: int
    replication: int
    size: int
    pairs: int

    def __str__(self) -> str:
        return f"({self.points},{self.size},{self.pairs})"


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """A design with its incidence matrix, shape ``(points, blocks)``, and its family, None for a given matrix."""

    numbers: Parameters
    incidence: FloatArray
    family: str | None


def known_designs(points: int) -> dict[str, Parameters]:
    """Return the families that have a design with so many points, and its numbers.

    Examples
    --------
    >>> {family: str(numbers) for family, numbers in known_designs(31).items()}
    {'difference-set': '(31,6,1)', 'projective-plane': '(31,6,1)', 'quadratic-residues': '(31,15,7)'}
    """
    found = {}
    v = points
    if v in _DIFFERENCE_SETS:
        d = len(_DIFFERENCE_SETS[v])
        found["difference-set"] = Parameters(v, v, d, d, d * (d - 1) // (v - 1))
    p = _projective_order(v)
    if is_prime(p) and p * p + p + 1 == v:
        found["projective-plane"] = Parameters(v, v, p + 1, p + 1, 1)
    q = math.isqrt(v)
    if is_prime(q) and q * q == v:
        found["affine-plane"] = Parameters(v, v + q, q + 1, q, 1)
    if is_prime(v) and v % 4 == 3 and v > 3:
        found["quadratic-residues"] = Parameters(v, v, (v - 1) // 2, (v - 1) // 2, (v - 3) // 4)
    return found


def find_design(
    *, points: int | None = None, blocks: int | None = None, load: int | None = None, family: str | None = None
) -> Design:
    """Make the first known design with these numbers.

    Parameters
    ----------
    points, blocks
        How many there must be of each; at least one of the two is given.
    load
        Blocks through a point.
    family
        One of `FAMILIES`.

    Raises
    ------
    InputError
        If none is known; lists the nearest that are.

    Examples
    --------
    >>> find_design(points=9).numbers
    Parameters(points=9, blocks=12, replication=4, size=3, pairs=1)
    """
    if family is not None and family not in FAMILIES:
        raise InputError(f"design must be {', '.join(map(repr, FAMILIES))} or an incidence matrix, got {family!r}")
    target = points if points is not None else blocks
    if target is None:
        raise InputError("points or blocks must be given: there is a design of some size for every family")
    near = []
    for v in range(3, 2 * target + 40):
        for name, numbers in known_designs(v).items():
            if family not in {None, name} or load not in {None, numbers.replication}:
                continue
            if points in {None, v} and blocks in {None, numbers.blocks}:
                return Design(numbers, _incidence(name, v), name)
            near.append(v if points is not None else numbers.blocks)
    wanted = {"points": points, "blocks": blocks, "load": load, "family": family}
    asked = ", ".join(f"{key}={value}" for key, value in wanted.items() if value is not None)
    sizes = f"nearest sizes: {nearest(target, sorted(set(near)))}" if near else "none with that load or of that family"
    raise InputError(f"no block design is known with {asked} ({sizes}): take another size, or give an incidence matrix")


def check_design(matrix: ArrayLike) -> Design:
    """Check that a matrix, points by blocks, is the incidence matrix of a balanced design.

    Raises
    ------
    InputError
        If it is no 0/1 matrix, its columns do not sum alike, or two pairs of points share different numbers of blocks.

    Examples
    --------
    >>> str(check_design([[1, 1, 0], [1, 0, 1], [0, 1, 1]]).numbers)
    '(3,2,1)'
    """
    given = np.asarray(matrix)
    if given.ndim != 2 or len(given) < 2 or not given.size or not np.isin(given, (0, 1)).all():
        raise InputError(f"design must be a 0/1 matrix, points (2 or more) by blocks, got shape {given.shape}")
    incidence = given.astype(np.float64)
    shared = incidence @ incidence.T
    replication, pairs = shared[0, 0], shared[0, 1]
    balanced = (replication - pairs) * np.eye(len(given)) + pairs
    columns = incidence.sum(axis=0)
    if (shared != balanced).any() or (columns != columns[0]).any() or columns[0] == 0:
        raise InputError(
            "design must be balanced: every point in as many blocks, every two points in as many blocks, every block "
            f"of as many points; block sizes range from {columns.min():.0f} to {columns.max():.0f}: take 'soft-bibd' "
            "for sizes without a design"
        )
    v, b = incidence.shape
    return Design(Parameters(v, b, int(replication), int(columns[0]), int(pairs)), incidence, None)


def _projective_order(points: int) -> int:
    return (math.isqrt(4 * points - 3) - 1) // 2


def _incidence(family: str, v: int) -> FloatArray:
    if family == "projective-plane":
        return _projective_plane(_projective_order(v))
    if family == "affine-plane":
        return _affine_plane(math.isqrt(v))
    differences = _DIFFERENCE_SETS[v] if family == "difference-set" else nonzero_squares(v)
    first = np.zeros(v)
    first[list(differences)] = 1.0
    return np.array([np.roll(first, i) for i in range(v)])


def _projective_plane(p: int) -> FloatArray:
    triples = [(1, x, y) for x, y in product(range(p), repeat=2)] + [(0, 1, y) for y in range(p)] + [(0, 0, 1)]
    points: Array = np.array(triples)
    incident: FloatArray = (points @ points.T % p == 0).astype(np.float64)
    return incident


def _affine_plane(p: int) -> FloatArray:
    """Points ``(x, y)`` by lines ``y = m x + c``, one parallel class after the other; ``x = c`` is the last class."""
    x, y = np.divmod(np.arange(p * p), p)
    intercepts = [*((y - m * x) % p for m in range(p)), x]
    return np.concatenate([np.eye(p)[c] for c in intercepts], axis=1)
