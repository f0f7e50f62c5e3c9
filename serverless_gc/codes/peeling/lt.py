"""LT codes: many sparse random sums, so that whatever slow workers finish counts.

References
----------
M. Luby, *LT codes*, FOCS 2002. A. Mallick, M. Chaudhari, U. Sheth, G. Palanikumar and G. Joshi, *Rateless Codes for
Near-Perfect Load Balancing in Distributed Matrix-Vector Multiplication*, 2018-2020 (arXiv 1804.10331).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import check_message
from serverless_gc.codes.blocks import Output, as_rows, check_blocks
from serverless_gc.codes.peeling.code import INACTIVATION, PeelingCode, decodes_when_complete, index_list
from serverless_gc.codes.peeling.equations import Equations, pack
from serverless_gc.codes.peeling.schedule import Order
from serverless_gc.codes.peeling.soliton import draw_symbols, robust_soliton
from serverless_gc.codes.peeling.sums import add_up
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["LTCode", "recommended_alpha"]

_MOST_APPENDED = 2.0
"""Symbols appended to a code that did not decode when everything arrived, in multiples of ``k``, before giving up."""


def recommended_alpha(k: int) -> float:
    """Return the redundancy to choose for ``k`` source symbols: 2 up to 200 of them, 1.5 from 1000 on.

    The excess is only computed if workers are slow enough to need it.

    Examples
    --------
    >>> recommended_alpha(100), recommended_alpha(600), recommended_alpha(5000)
    (2.0, 1.75, 1.5)
    """
    return 2.0 - 0.5 * min(max((k - 200) / 800, 0.0), 1.0)


class LTCode(PeelingCode):
    """LT code: messages are coded symbols, each the plain sum of a few random source blocks.

    Every worker computes its run of ``n_messages / n_workers`` consecutive symbols one by one and sends each as it is
    done; slightly more than ``k`` symbols from anyone decode. Meant for hundreds of source blocks or more: below about
    50, another code needs fewer results.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of source blocks (source symbols).
    alpha
        Coded symbols per source symbol, rounded up to a multiple of ``n_workers``; `recommended_alpha` by default.
        Symbols are appended where that many do not decode even if all arrive.
    c, delta
        Parameters of the degrees, see `robust_soliton`.
    seed
        Seed of the draw. A manifest stores the symbols themselves.
    inactivation
        Unknown blocks that peeling may leave to a dense solve: the fewer source blocks, the more results that saves.
        0 for peeling alone.
    order
        ``"breadth-first"``, or ``"minimum-variance"``: about half the error, for some ten times the planning.
    symbols
        Explicit lists of sources instead of a draw; their number must be a multiple of ``n_workers``.

    Raises
    ------
    InputError
        If ``alpha < 1``, ``c <= 0``, ``delta`` is not between 0 and 1, a symbol is empty or names an unknown or
        repeated source, or the code does not decode even when everything arrives.

    Examples
    --------
    >>> import numpy as np
    >>> code = LTCode(n_workers=4, k=100)
    >>> code.n_messages, code.placement(1)[:3]
    (200, (50, 51, 52))
    >>> blocks = np.random.default_rng(0).normal(size=(100, 3))
    >>> coded = code.encode(blocks)
    >>> decoded, certificate = code.decode({i: coded[i] for i in range(150)})
    >>> bool(np.allclose(decoded, blocks)), certificate.method
    (True, 'peel')
    """

    name = "lt"
    publish = 4
    """Symbols that a worker stores at a time: what a slow one has done counts, at few requests more."""

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        alpha: float | None = None,
        c: float = 0.03,
        delta: float = 0.5,
        seed: int = 0,
        inactivation: int = INACTIVATION,
        order: Order = "breadth-first",
        symbols: Sequence[Sequence[int] | Array] | None = None,
    ) -> None:
        super().__init__(n_workers, k, inactivation=inactivation, order=order)
        self.alpha = recommended_alpha(self.k) if alpha is None else float(alpha)
        if not 1 <= self.alpha < math.inf:
            raise InputError(f"alpha must be at least 1, got {alpha}")
        self.c, self.delta = float(c), float(delta)
        self.seed = check_whole("seed", seed, 0)
        mu = robust_soliton(self.k, self.c, self.delta)
        self._explicit = symbols is not None
        self._equations = self._draw(mu) if symbols is None else self._check_symbols(symbols)

    def _draw(self, mu: FloatArray) -> Equations:
        """Draw the symbols, and further ones until all of them together decode."""
        rng = np.random.default_rng(self.seed)
        n = self.n_workers * math.ceil(self.alpha * self.k / self.n_workers)
        most = n + self.n_workers * math.ceil(_MOST_APPENDED * self.k / self.n_workers)
        indptr, indices = draw_symbols(self.k, n, mu, rng)
        while True:
            equations = self._make_equations(indptr, indices)
            if decodes_when_complete(equations, self.inactivation):
                return equations
            if len(equations) >= most:
                raise InputError(
                    f"alpha={self.alpha}, c={self.c}, delta={self.delta}, seed={self.seed} gave no code that decodes: "
                    f"{len(equations)} symbols of k={self.k} blocks do not determine them; choose other values"
                )
            more, sources = draw_symbols(self.k, self.n_workers, mu, rng)
            indptr, indices = np.concatenate([indptr, indptr[-1] + more[1:]]), np.concatenate([indices, sources])

    def _make_equations(self, indptr: Array, indices: Array) -> Equations:
        return Equations(indptr, indices, n_variables=self.k, k=self.k, n_messages=len(indptr) - 1)

    def _check_symbols(self, symbols: Sequence[Sequence[int] | Array]) -> Equations:
        if not len(symbols) or len(symbols) % self.n_workers:
            raise InputError(f"symbols must be a multiple of n_workers={self.n_workers}, got {len(symbols)}")
        indptr, indices = pack([index_list("symbols", s) for s in symbols])
        for i, sources in enumerate(np.split(indices, indptr[1:-1])):
            if not len(sources) or sources[0] < 0 or sources[-1] >= self.k or (np.diff(sources) == 0).any():
                raise InputError(
                    f"symbols must list distinct sources in 0..{self.k - 1}, symbol {i} is {sources.tolist()}"
                )
        equations = self._make_equations(indptr, indices)
        if not decodes_when_complete(equations, self.inactivation):
            raise InputError(f"symbols do not decode even if all {len(symbols)} arrive: append further ones")
        return equations

    # -- structure -----------------------------------------------------------------------------------

    @property
    def equations(self) -> Equations:
        """One equation a symbol."""
        return self._equations

    @property
    def n_messages(self) -> int:
        """Number of coded symbols."""
        return self._equations.n_messages

    def placement(self, worker: int) -> tuple[int, ...]:
        """Symbols that ``worker`` computes, in the order it computes them: its consecutive run."""
        super().placement(worker)
        run = self.n_messages // self.n_workers
        return tuple(range(worker * run, (worker + 1) * run))

    def sources(self, message: int) -> tuple[int, ...]:
        """Source blocks that a symbol sums, ascending."""
        check_message(message, self.n_messages)
        return tuple(self._equations.members(message).tolist())

    def combination(self, message: int) -> tuple[Array, Array]:
        """Blocks that a symbol sums, and ones; see `Code.combination`."""
        check_message(message, self.n_messages)
        blocks = self._equations.members(message)
        return blocks, np.ones(len(blocks))

    @cached_property
    def sparse_generator(self) -> sp.csr_array:
        """Generator as a sparse matrix, shape ``(n_messages, k)``; prefer it to the dense ``generator``."""
        e = self._equations
        return sp.csr_array((np.ones(len(e.indices)), e.indices, e.indptr), shape=(self.n_messages, self.k))

    def _build_generator(self) -> FloatArray:
        dense: FloatArray = self.sparse_generator.toarray()
        return dense

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Sum the blocks of each symbol straight into its place; see `Code.encode`."""
        ids = range(self.n_messages) if messages is None else messages
        for i in ids:
            check_message(i, self.n_messages)
        arrays, dtype = check_blocks(blocks, self.k)
        output = Output.prepare(out, (len(ids), *arrays[0].shape), dtype)
        if len(ids):
            chosen = self.sparse_generator if messages is None else self.sparse_generator[list(ids)]
            add_up(chosen, as_rows(blocks, arrays, dtype), output.rows(range(len(ids))))
        return output.finish()

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        own = {"inactivation": self.inactivation, "order": self.order}
        if self._explicit:
            return {**own, "symbols": [list(self.sources(i)) for i in range(self.n_messages)]}
        return {"alpha": self.alpha, "c": self.c, "delta": self.delta, "seed": self.seed, **own}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs; the symbols themselves, as compressed rows."""
        params = {name: value for name, value in self.params().items() if name != "symbols"}
        symbols = {name: getattr(self._equations, name).astype(np.int32) for name in ("indptr", "indices")}
        return {**super().manifest(), "params": params, **symbols}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> LTCode:
        """Rebuild the code from its manifest alone: the stored symbols count, nothing is drawn again."""
        symbols = np.split(manifest["indices"], manifest["indptr"][1:-1])
        code = cls(manifest["n_workers"], manifest["k"], **manifest["params"], symbols=symbols)
        code._explicit = "alpha" not in manifest["params"]
        return code

    def __repr__(self) -> str:
        return (
            f"LTCode(n_workers={self.n_workers}, k={self.k}, n_messages={self.n_messages}, c={self.c}, "
            f"delta={self.delta})"
        )
