"""LDPC codes over the reals: sparse checks, decoded by peeling, wholly or as far as it goes.

References
----------
R. K. Maity, A. S. Rawat and A. Mazumdar, *Robust Gradient Descent via Moment Encoding with LDPC Codes*, 2018 (arXiv
1805.08327). R. Gallager, *Low-Density Parity-Check Codes*, 1963.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import check_message
from serverless_gc.codes.blocks import Output, as_rows, check_blocks, combine, put
from serverless_gc.codes.peeling.code import INACTIVATION, PeelingCode, index_list
from serverless_gc.codes.peeling.equations import Equations, pack
from serverless_gc.codes.peeling.ldpc_graph import (
    parity_matrix,
    regular_checks,
    staircase_checks,
    staircase_energy,
    staircase_sets,
)
from serverless_gc.codes.peeling.schedule import Order
from serverless_gc.codes.peeling.sums import add_up
from serverless_gc.codes.received import receive
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["Anytime", "Ensemble", "LDPCCode"]

Ensemble: TypeAlias = Literal["staircase", "regular"]


@dataclass(frozen=True, slots=True)
class Anytime:
    """What a decode with a limited number of rounds knows.

    Attributes
    ----------
    blocks
        Source blocks, shape ``(k, ...)``; unknown ones are zero.
    unknown
        Source blocks that are not known, ascending.
    rounds
        Rounds that determined anything.
    """

    blocks: Array
    unknown: tuple[int, ...]
    rounds: int

    @property
    def known_fraction(self) -> float:
        """Part of the source blocks that is known.

        Under independent losses the expected answer is the exact one times this: divide a step size by it to
        make up for what is missing.
        """
        return 1 - len(self.unknown) / len(self.blocks)


class LDPCCode(PeelingCode):
    """Systematic low-density parity-check code: workers ``0 .. k-1`` hold the blocks, the others sparse parities.

    Every check says that a few symbols add up to zero, so one that is missing is minus the sum of the others.

    Parameters
    ----------
    n_workers, k
        Numbers of coded symbols and of source blocks, ``1 <= k < n_workers``.
    ensemble
        ``"staircase"``: parity ``i`` is minus the sum of parity ``i - 1`` and of a few blocks; encoded in about
        ``column_weight + 1`` additions a block. ``"regular"``: Gallager's ensemble, in which every symbol is in
        ``column_weight`` checks of equal size, for comparison with theory; its parities are dense combinations.
    column_weight
        Checks each block is in (each symbol, of the regular ensemble), at most ``n_workers - k``. By default 3, or
        less where there are not 4 checks.
    seed
        Seed of the draw. A manifest stores the checks themselves.
    inactivation
        Unknown symbols that peeling may leave to a dense solve; 0 for peeling alone.
    order
        ``"breadth-first"`` or ``"minimum-variance"``.
    checks
        Explicit checks instead of a draw: ``n_workers - k`` lists of symbols.

    Raises
    ------
    InputError
        If ``k >= n_workers``, ``column_weight`` is out of range, no regular graph with these sizes exists, or the
        checks do not determine the parities.

    Examples
    --------
    >>> import numpy as np
    >>> code = LDPCCode(6, 3, checks=[(0, 1, 3), (1, 2, 3, 4), (0, 2, 4, 5)])
    >>> code.encode(np.array([1.0, 2.0, 3.0]))
    array([ 1.,  2.,  3., -3., -2., -2.])
    >>> decoded, certificate = code.decode({1: np.array(2.0), 3: np.array(-3.0), 4: np.array(-2.0)})
    >>> decoded, certificate.method
    (array([1., 2., 3.]), 'peel')
    """

    name = "ldpc"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        ensemble: Ensemble = "staircase",
        column_weight: int | None = None,
        seed: int = 0,
        inactivation: int = INACTIVATION,
        order: Order = "breadth-first",
        checks: Sequence[Sequence[int] | Array] | None = None,
    ) -> None:
        super().__init__(n_workers, k, inactivation=inactivation, order=order)
        n_checks = self.n_workers - self.k
        if n_checks < 1:
            raise InputError(f"k must be less than n_workers={self.n_workers}, got {self.k}: there must be a check")
        if ensemble not in {"staircase", "regular"}:
            raise InputError(f"ensemble must be 'staircase' or 'regular', got {ensemble!r}")
        # With every block in every check of a staircase, each second parity would be zero.
        weight = (
            max(1, min(3, n_checks - 1)) if column_weight is None else check_whole("column_weight", column_weight, 1)
        )
        if weight > n_checks:
            raise InputError(f"column_weight must be at most n_workers - k = {n_checks}, got {weight}")
        self.ensemble: Ensemble = ensemble
        self.column_weight = weight
        self.seed = check_whole("seed", seed, 0)
        self._explicit = checks is not None
        if checks is None:
            draw = staircase_checks if ensemble == "staircase" else regular_checks
            with single_blas_thread():
                drawn = draw(self.n_workers, self.k, weight, np.random.default_rng(self.seed))
        else:
            drawn = self._check_lists(checks)
        self._build(drawn)

    def _check_lists(self, checks: Sequence[Sequence[int] | Array]) -> list[list[int]]:
        lists = [index_list("checks", c).tolist() for c in checks]
        if len(lists) != self.n_workers - self.k:
            raise InputError(f"checks must be n_workers - k = {self.n_workers - self.k} lists, got {len(lists)}")
        for i, members in enumerate(lists):
            if len(set(members)) < len(members) or not all(0 <= j < self.n_workers for j in members):
                raise InputError(
                    f"checks must list distinct symbols in 0..{self.n_workers - 1}, check {i} is {members}"
                )
        return lists

    def _build(self, checks: list[list[int]]) -> None:
        """Set the equations: each message is a symbol, each check a sum that is zero."""
        n, k = self.n_workers, self.k
        sets = staircase_sets(checks, k)
        self._parity: FloatArray | None = None
        if sets is not None:
            indptr, indices = pack(sets)
            self._stairs = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(n - k, k))
            energy = staircase_energy(sets, k)
        else:
            with single_blas_thread():
                self._parity = parity_matrix(checks, n, k)
            if self._parity is None:
                raise InputError(
                    "checks must determine the parities k.. from the blocks: their parity part is singular"
                )
            energy = np.square(self._parity).sum(axis=1)
        indptr, indices = pack([*np.arange(n)[:, None], *checks])
        self._equations = Equations(
            indptr, indices, n_variables=n, k=k, n_messages=n, energy=np.concatenate([np.ones(k), energy])
        )

    # -- structure -----------------------------------------------------------------------------------

    @property
    def equations(self) -> Equations:
        """One equation a symbol, then the checks."""
        return self._equations

    @property
    def checks(self) -> tuple[tuple[int, ...], ...]:
        """Symbols of each check, ascending."""
        n = self.n_workers
        return tuple(tuple(self._equations.members(n + i).tolist()) for i in range(n - self.k))

    def _build_generator(self) -> FloatArray:
        return self.encode(np.eye(self.k))

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Copy the source blocks and sum up the parities; see `Code.encode`.

        Where ``out[i]`` already is block ``i`` nothing is copied. The parities of a staircase follow from one another:
        ask for many at a time.
        """
        ids = range(self.n_workers) if messages is None else messages
        for i in ids:
            check_message(i, self.n_workers)
        arrays, dtype = check_blocks(blocks, self.k)
        output = Output.prepare(out, (len(ids), *arrays[0].shape), dtype)
        for row, i in enumerate(ids):
            if i < self.k:
                put(output.array, row, arrays[i])
        places = [row for row, i in enumerate(ids) if i >= self.k]
        if places:
            parities = [ids[row] - self.k for row in places]
            rows, targets = as_rows(blocks, arrays, dtype), output.rows(places)
            if self._parity is not None:
                combine(self._parity[parities], rows, targets)
            else:
                add_up(self._stairs[: max(parities) + 1], rows, targets, places=parities, chained=True)
        return output.finish()

    # -- as far as it goes ---------------------------------------------------------------------------

    def decode_anytime(
        self, values: Mapping[int, Array], *, rounds: int | None = None, out: Array | None = None
    ) -> Anytime:
        """Decode what these messages determine, in a few rounds of peeling; the rest is zero.

        A round uses all checks that had one unknown symbol when it began. With the rows of a moment matrix as blocks
        (`interleave`), the answer with zeros for what is unknown is a stochastic gradient.

        Parameters
        ----------
        values
            Message id to its value.
        rounds
            At most so many; 0 takes just what arrived unchanged, None goes on as long as there is progress.
        out
            Where to write, shape ``(k, ...)``; allocated when None.

        Raises
        ------
        NotDecodableError
            If there is no message at all: not even a shape is known.
        InputError
            If ``rounds`` is negative, a message id is unknown, shapes differ or a message holds NaN or infinity.
        """
        most = None if rounds is None else check_whole("rounds", rounds, 0)
        got = receive(values, self.n_messages)
        pattern = self._partial_pattern(got.ids, most)
        output = Output.prepare(out, (self.k, *got.shape), got.dtype)
        for j in pattern.unknown:
            output.array[j] = 0
        self._run(pattern, got, output, got.dtype)
        return Anytime(output.finish(), pattern.unknown, pattern.rounds)

    def unknown_after(self, messages: Iterable[int], rounds: int | None = None) -> tuple[int, ...]:
        """Return the source blocks that so many rounds leave unknown; see `decode_anytime`."""
        return self._partial_pattern(sorted(set(messages)), rounds).unknown

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        own = {"inactivation": self.inactivation, "order": self.order}
        if self._explicit:
            return {**own, "checks": [list(c) for c in self.checks]}
        return {"ensemble": self.ensemble, "column_weight": self.column_weight, "seed": self.seed, **own}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs; the checks themselves, as compressed rows."""
        params = {name: value for name, value in self.params().items() if name != "checks"}
        indptr, indices = (a.astype(np.int32) for a in pack(self.checks))
        return {**super().manifest(), "params": params, "indptr": indptr, "indices": indices}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> LDPCCode:
        """Rebuild the code from its manifest alone: the stored checks count, nothing is drawn again."""
        checks = np.split(manifest["indices"], manifest["indptr"][1:-1])
        code = cls(manifest["n_workers"], manifest["k"], **manifest["params"], checks=checks)
        code._explicit = "seed" not in manifest["params"]
        return code

    def __repr__(self) -> str:
        graph = f"ensemble={self.ensemble!r}, column_weight={self.column_weight}"
        return f"LDPCCode(n_workers={self.n_workers}, k={self.k}, {'checks=...' if self._explicit else graph})"
