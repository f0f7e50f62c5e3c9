"""BIBD gradient code: any two workers share as many partitions, so the error depends only on how many straggle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Tracker
from serverless_gc.codes.gradient.approximate import ApproximateCode, CountedErrors
from serverless_gc.codes.gradient.base import Weights
from serverless_gc.codes.gradient.designs import Design, Parameters, check_design, find_design
from serverless_gc.codes.gradient.drawn import pack_counts, unpack_counts
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["BIBDCode"]

_USUAL_WORKERS = 21


class BIBDCode(ApproximateCode):
    """Workers are the points of a balanced incomplete block design, partitions its blocks.

    Every set of as many stragglers costs the same, so an adversary gains nothing; the best weights are one number.
    For the one-step error no code of that load has a better worst case; for the optimal error some have, at few
    stragglers.

    Parameters
    ----------
    n_workers, k
        Number of points and of blocks; what is left out follows from the design, 21 points if all is.
    design
        ``"difference-set"``, ``"projective-plane"``, ``"affine-plane"``, ``"quadratic-residues"``, or an incidence
        matrix of shape ``(points, blocks)``; if None the first of these families that has the size.
    load
        Partitions of a worker, to choose among designs of one size.
    reverse
        Workers are the blocks and partitions the points. From an affine plane of order ``p`` the answer is then exact
        whichever ``p`` workers straggle, with weights 0 and 1.
    wait
        Arrivals after which to stop by default.

    Raises
    ------
    InputError
        If no such design is known (lists the nearest sizes), or the matrix is none.

    References
    ----------
    S. Kadhe, O. O. Koyluoglu, K. Ramchandran, Gradient Coding Based on Block Designs for Mitigating Adversarial
    Stragglers, 2019, arXiv:1904.13373.

    Examples
    --------
    >>> code = BIBDCode(7)
    >>> code.load, code.weights(range(5)).a.round(4).tolist(), round(code.worst_error(2), 4)
    (3, [0.4286, 0.4286, 0.4286, 0.4286, 0.4286, 0.0, 0.0], 0.5714)
    """

    name = "bibd"

    def __init__(
        self,
        n_workers: int | None = None,
        k: int | None = None,
        *,
        design: str | ArrayLike | None = None,
        load: int | None = None,
        reverse: bool = False,
        wait: int | None = None,
    ) -> None:
        for label, size in (("n_workers", n_workers), ("k", k)):
            if size is not None:
                check_whole(label, size, 1)
        self.reverse = bool(reverse)
        if design is None or isinstance(design, str):
            self._design = _look_up(n_workers, k, design, load, reverse=self.reverse)
        else:
            self._design = check_design(design)
        matrix = self._design.incidence.T if self.reverse else self._design.incidence
        super().__init__(*matrix.shape, wait=wait)
        self.load = int(matrix[0].sum())
        for label, value, actual in (
            ("n_workers", n_workers, self.n_workers),
            ("k", k, self.k),
            ("load", load, self.load),
        ):
            if value not in {None, actual}:
                raise InputError(f"{label} must be that of the design, {actual}, got {value}: leave it out")
        self._matrix = np.ascontiguousarray(matrix)
        self._alike = self._numbers_if_alike()

    @property
    def numbers(self) -> Parameters:
        """Numbers of the design."""
        return self._design.numbers

    @property
    def family(self) -> str | None:
        """Family of the design; None for a given matrix."""
        return self._design.family

    @property
    def tolerated(self) -> int:
        """``p`` for the lines of an affine plane of order ``p``, otherwise 0."""
        return self.numbers.size if self._resolvable else 0

    @property
    def _resolvable(self) -> bool:
        return self.reverse and self.family == "affine-plane"

    def _numbers_if_alike(self) -> tuple[int, int] | None:
        """Load and common intersection of workers, if these are the same for all of them."""
        numbers = self.numbers
        # The dual of a symmetric design is one of the same numbers.
        if self.reverse and numbers.points != numbers.blocks:
            return None
        return numbers.replication, numbers.pairs

    # -- bounds --------------------------------------------------------------------------------------

    def expected_error(self, arrived: int) -> float | None:
        """Error of every set of so many arrivals: ``b - f r**2 / (r - l + l f)``; None for reversed roles."""
        if self._alike is None:
            return super().expected_error(arrived)
        self._check_count("arrived", arrived)
        load, common = self._alike
        error = self.k - arrived * load**2 / (load - common + common * arrived) if arrived else float(self.k)
        return error if error > 1e-13 * self.k else 0.0

    def worst_error(self, stragglers: int) -> float | None:
        """Error of every set of so many stragglers; for reversed roles the spectral certificate, 0 if tolerated."""
        if self._alike is None:
            return super().worst_error(stragglers)
        self._check_count("stragglers", stragglers)
        return self.expected_error(self.n_workers - stragglers)

    # -- decoding ------------------------------------------------------------------------------------

    def tracker(self) -> Tracker:
        """Make a fresh tracker: a count where workers are alike."""
        if self._alike is None:
            return super().tracker()
        errors = [self.expected_error(f) for f in range(self.n_workers + 1)]
        return CountedErrors(self, [error for error in errors if error is not None])

    def _build_generator(self) -> FloatArray:
        return self._matrix

    def _solve(self, arrived: Array) -> Weights:
        if self._alike is not None and len(arrived):
            load, common = self._alike
            return self._weighted(
                arrived, np.full(len(arrived), load / (load + common * (len(arrived) - 1))), "optimal"
            )
        if self._resolvable:
            # A parallel class, p consecutive lines, covers every point once.
            classes = arrived // self.numbers.size
            full = np.flatnonzero(np.bincount(classes, minlength=1) == self.numbers.size)
            if len(full):
                return self._weighted(arrived, (classes == full[0]).astype(np.float64), "optimal")
        return super()._solve(arrived)

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        design = self.family or self._design.incidence.astype(int).tolist()
        reverse = {"reverse": True} if self.reverse else {}
        return {"design": design, **reverse, **super().params()}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs; the incidence matrix if it is of no family."""
        base = super().manifest()
        if self.family is not None:
            return base
        params = {key: value for key, value in self.params().items() if key != "design"}
        shape = list(self._design.incidence.shape)
        return {**base, "params": params, "incidence": pack_counts(self._design.incidence), "shape": shape}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> BIBDCode:
        """Rebuild the code from its manifest alone."""
        params = dict(manifest["params"])
        if "incidence" in manifest:
            rows, columns = manifest["shape"]
            params["design"] = unpack_counts(manifest["incidence"], (rows, columns))
        return cls(manifest["n_workers"], manifest["k"], **params)

    def __repr__(self) -> str:
        reverse = ", reverse=True" if self.reverse else ""
        return f"BIBDCode(n_workers={self.n_workers}, k={self.k}, design={self.family or ...!r}{reverse})"


def _look_up(n_workers: int | None, k: int | None, family: str | None, load: int | None, *, reverse: bool) -> Design:
    if n_workers is None and k is None:
        n_workers = 12 if reverse else _USUAL_WORKERS
    points, blocks = (k, n_workers) if reverse else (n_workers, k)
    try:
        return find_design(points=points, blocks=blocks, load=None if reverse else load, family=family)
    except InputError as error:
        sizes = ", ".join(f"{name}={size}" for name, size in (("n_workers", n_workers), ("k", k)) if size is not None)
        raise InputError(f"{sizes}: {error}") from None
