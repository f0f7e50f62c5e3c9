"""Codes with random coefficients: the best of several draws, kept in the manifest to the last bit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import check_dense
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.gradient.sizes import check_stragglers
from serverless_gc.types import Array, FloatArray

__all__ = ["CoefficientCode", "best_draw"]

_DRAWS = 20


class CoefficientCode(GradientCode):
    """A code whose coefficients are drawn from a seed, or given by the caller.

    The constructor takes ``stragglers``, ``seed`` and ``coefficients``, and calls `_note` with the last two.
    """

    def _note(self, seed: int, coefficients: ArrayLike | None) -> None:
        self._seed = seed
        self._given = None if coefficients is None else np.array(coefficients, dtype=float)

    @property
    @abstractmethod
    def coefficients(self) -> Array:
        """The coefficients in the shape that the constructor takes; read-only."""

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        given = {} if self._given is None else {"coefficients": self._given.tolist()}
        return {"stragglers": self.tolerated, "seed": self._seed, **given}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the coefficients included."""
        return {**super().manifest(), "coefficients": self.coefficients}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Rebuild the code from its manifest alone, with the stored coefficients."""
        params = {**manifest["params"], "coefficients": manifest["coefficients"]}
        code = cls(manifest["n_workers"], manifest["k"], **params)
        if "coefficients" not in manifest["params"]:
            code._given = None
        return code


def best_draw(
    n: int, stragglers: int, seed: int, build: Callable[[FloatArray], FloatArray], draws: int = _DRAWS
) -> FloatArray:
    """Build coefficients from several random matrices that annihilate all ones; keep those of the smallest maximum.

    Parameters
    ----------
    n, stragglers
        The random matrices have shape ``(stragglers, n)``.
    seed
        Draw ``t`` comes from ``default_rng([seed, t])``.
    build
        Makes coefficients of a random matrix.
    draws
        How many are tried.

    Raises
    ------
    InputError
        If ``stragglers`` is not in ``0 ... n - 1``, ``draws`` is less than 1, or the matrices would be too large.
    """
    check_stragglers(stragglers, n)
    tried = (_draw(n, stragglers, seed, t) for t in range(check_whole("draws", draws, 1) if stragglers else 1))
    return min(map(build, tried), key=lambda made: float(np.abs(made).max()))


def _draw(n: int, stragglers: int, seed: int, t: int) -> FloatArray:
    check_dense(stragglers, n)
    h = np.random.default_rng([seed, t]).standard_normal((stragglers, n))
    h[:, -1] = -h[:, :-1].sum(axis=1)
    return h
