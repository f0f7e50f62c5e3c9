"""Product gradient code: the Kronecker product of two small codes, decoded in two levels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes import registry
from serverless_gc.codes.base import Tracker
from serverless_gc.codes.gradient.approximate import ApproximateCode, ErrorTracker, nearest
from serverless_gc.codes.gradient.base import EXACT, GradientCode, Weights
from serverless_gc.codes.gradient.bibd import BIBDCode
from serverless_gc.codes.gradient.designs import known_designs
from serverless_gc.codes.gradient.spectral import spectral_ratio
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["Factor", "ProductGradientCode", "TwoLevelTracker"]

Factor: TypeAlias = GradientCode | str | Mapping[str, Any]
"""A code, its name, or its name under ``"code"`` with the arguments of `serverless_gc.codes.get`."""

_USUAL_WORKERS = 49


class TwoLevelTracker(ErrorTracker):
    """Decodable when enough rows of workers are, or enough columns.

    Sufficient: now and then the exact solution exists a little earlier, and `ProductGradientCode.weights` finds it.
    """

    __slots__ = ("_columns", "_grid", "_over_columns", "_over_rows")

    def __init__(self, code: ProductGradientCode) -> None:
        super().__init__(code)
        outer, inner = code.outer, code.inner
        self._grid = (outer.n_workers, inner.n_workers)
        self._columns = (
            [inner.tracker() for _ in range(self._grid[0])],
            [outer.tracker() for _ in range(self._grid[1])],
        )
        self._over_rows, self._over_columns = outer.tracker(), inner.tracker()

    @property
    def decodable(self) -> bool:
        """Whether enough rows, or enough columns, are decodable."""
        return self._over_rows.decodable or self._over_columns.decodable

    @property
    def error(self) -> float:
        """``err(F)``; solved for on demand until decodable."""
        return 0.0 if self.decodable else self._code.weights(self._arrived).error

    def _record(self, message: int) -> None:
        row, column = divmod(message, self._grid[1])
        rows, columns = self._columns
        if rows[row].add(column):
            self._over_rows.add(row)
        if columns[column].add(row):
            self._over_columns.add(column)


class ProductGradientCode(ApproximateCode):
    """``B = outer x inner``: worker ``(i, j)`` weighs partition ``(u, v)`` by ``outer[i, u] * inner[j, v]``.

    Of two codes exact for ``s`` and ``t`` stragglers it is exact for any ``(s + 1)(t + 1) - 1``, the most that its load
    allows, and for most larger sets. Worker ``(i, j)`` has the number ``i * inner.n_workers + j``, partitions likewise.

    Parameters
    ----------
    n_workers, k
        Sizes of the product; they follow from the factors if left out. Without factors two block designs are chosen
        whose sizes multiply to ``n_workers``, the Fano plane twice (49 workers) if that is left out too.
    outer, inner
        The factors: codes, names, or ``{"code": name, "n_workers": ..., ...}``. Give both or neither.
    wait
        Arrivals after which to stop by default; exact products do not stop early.

    Raises
    ------
    InputError
        If a factor is no gradient code with one real message a worker, only one factor is given, sizes do not fit, or
        there are no designs of that size.

    References
    ----------
    A. Sakorikar, L. Wang, Soft BIBD and Product Gradient Codes, 2021, arXiv:2105.05231.

    Examples
    --------
    >>> code = ProductGradientCode()
    >>> code.n_workers, code.load, code.exact
    (49, 9, False)
    >>> round(code.weights([7 * i + j for i in range(6) for j in range(5)]).error, 7)
    5.6071429
    """

    name = "product-gradient"

    def __init__(
        self,
        n_workers: int | None = None,
        k: int | None = None,
        *,
        outer: Factor | None = None,
        inner: Factor | None = None,
        wait: int | None = None,
    ) -> None:
        if (outer is None) != (inner is None):
            raise InputError("outer and inner must be given both, or neither for block designs")
        if outer is None or inner is None:
            outer, inner = _designs_for(_USUAL_WORKERS if n_workers is None else n_workers)
        self.outer, self.inner = _factor("outer", outer), _factor("inner", inner)
        n, blocks = self.outer.n_workers * self.inner.n_workers, self.outer.k * self.inner.k
        for label, value, actual in (("n_workers", n_workers, n), ("k", k, blocks)):
            if value not in {None, actual}:
                raise InputError(f"{label} must be the product of those of the factors, {actual}, got {value}")
        super().__init__(n, blocks, wait=wait)
        self.exact = self.outer.exact and self.inner.exact  # type: ignore[misc]  # of this instance, by its factors
        self.load = int(np.count_nonzero(self.outer.generator[0]) * np.count_nonzero(self.inner.generator[0]))

    @property
    def awaited(self) -> int | None:
        """Arrivals after which to stop by default; None for exact products."""
        return None if self.exact else super().awaited

    @property
    def tolerated(self) -> int:
        """``(s + 1)(t + 1) - 1`` for factors that tolerate ``s`` and ``t`` stragglers."""
        return (self.outer.tolerated + 1) * (self.inner.tolerated + 1) - 1 if self._complete else 0

    @cached_property
    def _complete(self) -> bool:
        """Whether all messages together give the exact sum, in both factors."""
        return all(c.exact or c.weights(range(c.n_workers)).error <= EXACT * c.k for c in (self.outer, self.inner))

    @cached_property
    def _spectral_ratio(self) -> float | None:
        """Of the factors': singular values multiply, and the largest over the column sum is ``sqrt(k / n)``."""
        ratios: list[float] = []
        for one, other in ((self.outer, self.inner), (self.inner, self.outer)):
            ratio = spectral_ratio(one.generator)
            if ratio is None:
                return None
            ratios.append(ratio * math.sqrt(other.k / other.n_workers))
        return max(ratios)

    def tracker(self) -> Tracker:
        """Make a fresh tracker: two levels of the factors' own if they are exact, else the running error."""
        return TwoLevelTracker(self) if self.exact else super().tracker()

    def _build_generator(self) -> Array:
        return np.kron(self.outer.generator, self.inner.generator)

    # -- decoding ------------------------------------------------------------------------------------

    def _solve(self, arrived: Array) -> Weights:
        grid = np.zeros((self.outer.n_workers, self.inner.n_workers), bool)
        grid.ravel()[arrived] = True
        if self._complete:
            a = _two_levels(grid, self.outer, self.inner)
            if a is None:
                across = _two_levels(grid.T, self.inner, self.outer)
                a = None if across is None else across.T
            if a is not None:
                return self._weighted(arrived, a.ravel()[arrived], "optimal")
        rows, columns = np.flatnonzero(grid.any(axis=1)), np.flatnonzero(grid.any(axis=0))
        if len(arrived) and len(arrived) == len(rows) * len(columns):
            a = np.outer(self.outer.weights(rows).a, self.inner.weights(columns).a)
            return self._weighted(arrived, a.ravel()[arrived], "optimal")
        return super()._solve(arrived)

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        factors = {
            label: {"code": code.name, "n_workers": code.n_workers, "k": code.k, **code.params()}
            for label, code in (("outer", self.outer), ("inner", self.inner))
        }
        return {**factors, **super().params()}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs: the manifests of the factors."""
        factors = {"outer": self.outer.manifest(), "inner": self.inner.manifest()}
        return {**super().manifest(), "params": super().params(), **factors}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> ProductGradientCode:
        """Rebuild the code from its manifest alone."""
        outer, inner = (_factor(label, registry.from_manifest(manifest[label])) for label in ("outer", "inner"))
        return cls(manifest["n_workers"], manifest["k"], outer=outer, inner=inner, **manifest["params"])

    def __repr__(self) -> str:
        return f"ProductGradientCode(outer={self.outer!r}, inner={self.inner!r})"


def _two_levels(grid: Array, outer: GradientCode, inner: GradientCode) -> FloatArray | None:
    """Decode every row that can be by the inner code, then those by the outer one; None if that is not exact."""
    a = np.zeros(grid.shape)
    whole = []
    for i, arrived in enumerate(grid):
        row = inner.weights(np.flatnonzero(arrived).tolist())
        if row.error <= EXACT * inner.k:
            a[i] = row.a
            whole.append(i)
    across = outer.weights(whole)
    return a * across.a[:, None] if across.error <= EXACT * outer.k else None


def _factor(label: str, factor: Any) -> GradientCode:
    if isinstance(factor, str):
        factor = registry.get(factor)
    elif isinstance(factor, Mapping):
        if "code" not in factor:
            raise InputError(f"{label} must name its code under 'code', its keys are {sorted(factor)}")
        factor = registry.get(factor["code"], **{key: value for key, value in factor.items() if key != "code"})
    if not isinstance(factor, GradientCode):
        raise InputError(f"{label} must be a gradient code or the name of one, got {factor!r}")
    if factor.n_messages != factor.n_workers or factor.fold != 1 or np.iscomplexobj(factor.generator):
        raise InputError(f"{label} must have one real message a worker, {factor.name!r} has not: take another code")
    return factor


def _designs_for(n_workers: int) -> tuple[GradientCode, GradientCode]:
    """Two block designs whose sizes multiply to ``n_workers``, as equal as possible."""
    n = check_whole("n_workers", n_workers, 1)
    sizes = [v for v in range(3, n) if known_designs(v)]
    for v in reversed(sizes):
        if v * v <= n and n % v == 0 and n // v in sizes:
            return BIBDCode(v), BIBDCode(n // v)
    small = [v for v in range(3, max(8, n // 4 + 8)) if known_designs(v)]
    products = sorted({v * w for v in small for w in small if v * w <= 2 * max(n, 49)})
    raise InputError(
        f"n_workers must be the product of two sizes of block designs unless outer and inner are given, got {n}: take "
        f"one of {nearest(n, products)}"
    )
