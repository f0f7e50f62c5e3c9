"""MDS codes without a systematic part: every worker holds a combination, every decode solves for all blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from serverless_gc.codes.base import Code, check_dense, check_message
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.mds.code import CountTracker
from serverless_gc.codes.mds.points import chebyshev, gaussian, refuse_unstable, vandermonde
from serverless_gc.codes.received import not_decodable
from serverless_gc.errors import InputError
from serverless_gc.inject import check_seed
from serverless_gc.types import FloatArray

__all__ = ["AllOrNothingTracker", "NonsystematicMDSCode", "check_at_most", "require"]


_STRUCTURED: Mapping[str, Callable[[int, int], FloatArray]] = {"chebyshev": chebyshev, "vandermonde": vandermonde}


class AllOrNothingTracker(CountTracker):
    """Decodable at ``needed`` distinct messages; before that none of the ``k`` blocks is known."""

    __slots__ = ("_blocks",)

    def __init__(self, n: int, needed: int, k: int) -> None:
        super().__init__(n, needed)
        self._blocks = k

    def missing(self) -> tuple[int, ...]:
        """All blocks, until enough messages determine them."""
        return () if self.decodable else tuple(range(self._blocks))


def check_at_most(k: int, n_workers: int) -> None:
    """Raise `InputError` if ``k > n_workers``."""
    if k > n_workers:
        raise InputError(f"k must be at most n_workers={n_workers}, got {k}")


def require(name: str, messages: Iterable[int], n: int, needed: int, k: int) -> list[int]:
    """Return the distinct message ids, ascending, if there are ``needed`` of the ``n``.

    Raises
    ------
    InputError
        If an id is unknown.
    NotDecodableError
        If there are fewer.
    """
    ids = sorted(set(messages))
    for i in ids:
        check_message(i, n)
    if len(ids) < needed:
        raise not_decodable(name, len(ids), tuple(range(k)), f"{needed - len(ids)} more results are needed")
    return ids


class NonsystematicMDSCode(LinearCode):
    """Any ``k`` of ``n_workers`` results decode, from one of the constructions of the literature.

    For comparison, and for readers of the papers: `MDSCode` is cheaper to encode and to decode, and at hundreds of
    workers keeps 5 to 12 digits more than the structured constructions.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of blocks, ``k <= n_workers``.
    construction
        ``"gaussian"``: independent normal entries, stable at every size. ``"chebyshev"``: Chebyshev polynomials at
        the Chebyshev points, for at most three stragglers or about 30 workers. ``"vandermonde"``: monomials at
        equispaced points, for ``k <= 8``. Or an explicit generator of shape ``(n_workers, k)``.
    seed
        Of the Gaussian draw; a manifest stores the generator itself.
    allow_unstable
        Accept sizes at which the construction loses most digits.

    Raises
    ------
    InputError
        If ``k > n_workers``, the construction is unknown, or not stable at this size.

    References
    ----------
    K. Lee, M. Lam, R. Pedarsani, D. Papailiopoulos, K. Ramchandran, "Speeding Up Distributed Machine Learning Using
    Codes", 2015, arXiv:1512.02673 (MDS codes for products); M. Fahim, V. R. Cadambe, "Numerically Stable Polynomially
    Coded Computing", 2019, arXiv:1903.08326 (Chebyshev polynomials).

    Examples
    --------
    >>> import numpy as np
    >>> code = NonsystematicMDSCode(5, 3, construction="chebyshev")
    >>> blocks = np.arange(6.0).reshape(3, 2)
    >>> coded = code.encode(blocks)
    >>> decoded, certificate = code.decode({i: coded[i] for i in (0, 2, 4)})
    >>> bool(np.allclose(decoded, blocks)), certificate.unknowns
    (True, 3)
    """

    name: ClassVar[str] = "mds-nonsystematic"

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        construction: Literal["gaussian", "chebyshev", "vandermonde"] | ArrayLike = "gaussian",
        seed: int = 0,
        allow_unstable: bool = False,
    ) -> None:
        Code.__init__(self, n_workers, k)  # checks the sizes, which LinearCode reads off its matrix
        check_at_most(self.k, self.n_workers)
        check_dense(self.n_workers, self.k)
        seed = check_seed(seed)
        self._params: dict[str, Any] = {}
        if not isinstance(construction, str):
            matrix = np.asarray(construction)
            if matrix.shape != (self.n_workers, self.k):
                raise InputError(
                    f"construction must have shape (n_workers, k) = ({n_workers}, {k}), got {matrix.shape}"
                )
        elif construction == "gaussian":
            matrix = gaussian(self.n_workers, self.k, seed)
            self._params = {"construction": "gaussian", "seed": seed}
        elif construction in _STRUCTURED:
            matrix = _STRUCTURED[construction](self.n_workers, self.k)
            refuse_unstable(construction, matrix, allow=allow_unstable)
            self._params = {"construction": construction, **({"allow_unstable": True} if allow_unstable else {})}
        else:
            raise InputError(
                f"construction must be 'gaussian', 'chebyshev', 'vandermonde' or a matrix, got {construction!r}; roots "
                "of unity are codes of their own, 'roots-of-unity' and 'rotation'"
            )
        super().__init__(matrix)

    @property
    def guaranteed_threshold(self) -> int:
        """Results after which every set decodes: ``k``."""
        return self.k

    @property
    def average_threshold(self) -> float:
        """Mean number of results at the first decodable moment: ``k``."""
        return float(self.k)

    def tracker(self) -> AllOrNothingTracker:  # type: ignore[override]  # any tracker is a tracker: the rank is known
        """Make a fresh tracker."""
        return AllOrNothingTracker(self.n_workers, self.k, self.k)

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return dict(self._params) or {"construction": self.generator.tolist()}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the generator itself included."""
        return {**Code.manifest(self), "params": dict(self._params), "generator": self.generator}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> NonsystematicMDSCode:
        """Rebuild the code from its manifest alone: the stored generator counts, nothing is drawn again."""
        code = cls(manifest["n_workers"], manifest["k"], construction=manifest["generator"])
        code._params = dict(manifest["params"])
        return code

    def __repr__(self) -> str:
        extra = "".join(f", {key}={value!r}" for key, value in self._params.items()) or ", construction=..."
        return f"{type(self).__name__}(n_workers={self.n_workers}, k={self.k}{extra})"
