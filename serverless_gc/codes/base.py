"""What every code is: a linear map ``G``, a placement, a tracker and a decoder.

Unknowns are ``k`` source blocks stacked in ``u``; message ``i`` is ``G[i] @ u``. A set of arrived messages
is decodable when the wanted values lie in the row space of ``G[arrived]``. Codes work on blocks as opaque
arrays of one fixed shape: whatever is linear in the block decodes the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.support import Support
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = [
    "Certificate",
    "Certifier",
    "Code",
    "CodeKind",
    "Tracker",
    "Verdict",
    "check_dense",
    "check_message",
]

DENSE_BYTES = 2 * 10**9
"""Largest matrix of coefficients: one more would be copied while it is factored, and fill the memory of a laptop."""

CodeKind = Literal["data", "gradient", "matmul", "multi-message"]


class Verdict:
    """Answer of a tracker: truthy when the arrived messages determine the answer."""

    __slots__ = ("_missing", "decodable")

    def __init__(self, decodable: bool, missing: Callable[[], tuple[int, ...]] | None = None) -> None:
        self.decodable = decodable
        self._missing = missing

    def __bool__(self) -> bool:
        return self.decodable

    @property
    def missing(self) -> tuple[int, ...]:
        """Source blocks not determined yet, as of now; empty when decodable. Evaluated on demand."""
        return () if self.decodable or self._missing is None else self._missing()

    def __repr__(self) -> str:
        return "Verdict(decodable=True)" if self.decodable else f"Verdict(decodable=False, missing={self.missing})"


class Tracker(ABC):
    """Incremental decodability test. Looks at structure only, never at values.

    Idempotent (the same message twice changes nothing), monotone (once true, stays true) and
    independent of the order of arrival.
    """

    __slots__ = ()

    @abstractmethod
    def add(self, message: int) -> Verdict:
        """Record one arrived message.

        Raises
        ------
        InputError
            If ``message`` is not a message id of the code.
        """

    @property
    @abstractmethod
    def decodable(self) -> bool:
        """Whether the messages added so far determine the answer."""

    @abstractmethod
    def missing(self) -> tuple[int, ...]:
        """Source blocks that are not determined by the messages added so far."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """How an answer was obtained and how far it can be trusted.

    Attributes
    ----------
    method
        What ran: ``"systematic"`` (nothing to solve), ``"sc"``, ``"peel"``, ``"inactivation"``, ``"lu"``,
        ``"lstsq"``, ``"copy"``.
    used
        Message ids that entered the answer.
    amplification
        Largest factor by which rounding in a message can grow in a decoded block: a condition number or an
        upper estimate of it; 1.0 when nothing was solved.
    predicted_error
        Predicted relative error of the answer.
    residual
        Mismatch of the surplus messages with the decoded answer, relative to the messages or to the ``scale`` given;
        None when there was no surplus.
    surplus_checked
        How many surplus messages were compared.
    unknowns
        Size of the dense system that was solved (0 for peeling alone).
    warning
        What a careful user should know, or an empty string.
    error
        Squared error ``||a @ B - 1||**2`` of the combination of a gradient code; 0 where the answer is exact.
    weights
        What each used message was multiplied by, where the answer is one weighted sum of them.
    """

    method: str
    used: tuple[int, ...] = ()
    amplification: float = 1.0
    predicted_error: float = 0.0
    residual: float | None = None
    surplus_checked: int = 0
    unknowns: int = 0
    warning: str = ""
    error: float = 0.0
    weights: Mapping[int, Any] = field(default_factory=dict)


@runtime_checkable
class Certifier(Protocol):
    """A code that can say, before any value is fetched, how far an answer could be trusted.

    A wait policy asks it from the first decodable moment on and waits for more results while the predicted error is
    too large.
    """

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Return the certificate, without residual, of a decode from these messages.

        Raises
        ------
        NotDecodableError
            If the messages do not determine every source block.
        """
        ...


@dataclass(frozen=True)
class _Cache:
    generator: list[FloatArray] = field(default_factory=list)


class Code(ABC):
    """A code over ``k`` source blocks for ``n_workers`` workers.

    ``publish`` says after how many messages each a worker with several publishes them, unless the caller says
    otherwise: 0, not before all are done, for codes that were not made for it.

    Subclasses are immutable after construction: trackers and decodes share nothing mutable, so one code serves
    many rounds and threads.
    """

    name: ClassVar[str]
    kind: ClassVar[CodeKind] = "data"
    exact: ClassVar[bool] = True
    guard: ClassVar[float | None] = None
    """Predicted error above which a round by default waits for a few more results, and for all that can come while the
    answer would be doubtful: in double precision; in single precision it is at least 1e-4 (`guarded_error`). None for
    codes whose answers are as accurate as the messages, of which no round asks a prediction."""
    publish: ClassVar[int] = 0
    needs_whole_rows: ClassVar[bool] = False
    """Whether messages depend on where in a row an entry is: `encode` then takes matrices with all their columns, and
    not any stretch of their entries."""

    def __init__(self, n_workers: int, k: int) -> None:
        self.n_workers = check_whole("n_workers", n_workers, 1)
        self.k = check_whole("k", k, 1)
        self._cache = _Cache()

    # -- structure -----------------------------------------------------------------------------------

    @property
    def n_messages(self) -> int:
        """Number of messages all workers together can send; one a worker unless a code says otherwise."""
        return self.n_workers

    @property
    def target(self) -> Literal["blocks", "sum"]:
        """What `decode` gives: all ``k`` source blocks, shape ``(k, ...)``, or only a sum of the shape of one."""
        return "blocks"

    def placement(self, worker: int) -> tuple[int, ...]:
        """Message ids that ``worker`` computes, in the order it computes them."""
        if not 0 <= worker < self.n_workers:
            raise InputError(f"worker must be in 0..{self.n_workers - 1}, got {worker}")
        return (worker,)

    @property
    def support(self) -> Support | None:
        """Which columns of the blocks each message has entries in; None if in all of them.

        `encode` gives whole blocks all the same. Only these columns of them are stored, and only these entries of an
        operand are sent to the worker that multiplies by it.
        """
        return None

    def width(self, n_cols: int) -> int:
        """Most columns that a message is stored with, and entries of an operand that it needs, out of ``n_cols``."""
        return n_cols if self.support is None else self.support.width(n_cols)

    @property
    def generator(self) -> FloatArray:
        """Generator matrix, shape ``(n_messages, k)``, read-only."""
        if not self._cache.generator:
            check_dense(self.n_messages, self.k)
            g = self._build_generator()
            g.setflags(write=False)
            self._cache.generator.append(g)
        return self._cache.generator[0]

    @abstractmethod
    def _build_generator(self) -> FloatArray:
        """Build the dense generator; called once."""

    def combination(self, message: int) -> tuple[Array, Array]:
        """Blocks that ``message`` combines, ascending, and their coefficients: one row of the generator without zeros.

        Codes over so many blocks that the dense `generator` would not fit answer this without it.
        """
        row = self.generator[message]
        blocks = np.flatnonzero(row)
        return blocks, row[blocks]

    @property
    def growth(self) -> float:
        """Largest factor by which an entry of a message can exceed those of the blocks: an absolute row sum."""
        return max(float(np.abs(self.combination(i)[1]).sum()) for i in range(self.n_messages))

    def source_of(self, message: int) -> int | None:
        """Index of the source block that ``message`` carries unchanged, or None if it is a combination."""
        row = self.generator[message]
        nonzero = np.flatnonzero(row)
        if nonzero.size == 1 and row[nonzero[0]] == 1.0:
            return int(nonzero[0])
        return None

    # -- the three jobs ------------------------------------------------------------------------------

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Encode blocks: ``out[i] = sum_j G[messages[i], j] * blocks[j]``.

        Parameters
        ----------
        blocks
            ``k`` arrays of one shape, or one array of shape ``(k, ...)``. Integers, bool and float16 are promoted
            to float64 first.
        out
            Where to write, shape ``(len(messages), ...)``; allocated when None.
        messages
            Which messages to compute; all of them by default.

        Raises
        ------
        InputError
            If the number of blocks is not ``k`` or their shapes differ.
        """
        stacked = stack_blocks(blocks, self.k)
        ids = range(self.n_messages) if messages is None else messages
        g = self.generator[list(ids)]
        flat = stacked.reshape(self.k, -1)
        kept = flat.dtype if g.dtype.kind == "f" else np.result_type(g, flat)
        coded = g.astype(kept, copy=False) @ flat
        coded = coded.reshape((len(ids), *stacked.shape[1:]))
        if out is None:
            return coded
        out[...] = coded
        return out

    @abstractmethod
    def tracker(self) -> Tracker:
        """Make a fresh tracker."""

    @abstractmethod
    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Reconstruct the source blocks from arrived messages.

        Parameters
        ----------
        values
            Message id to its value; all of one shape. The arrays are not modified.
        out
            Where to write, shape ``(k, ...)``; allocated when None. ``values[i]`` may *be* ``out[j]`` for a
            message that carries block ``j`` unchanged: then nothing is copied.
        tolerance
            Largest acceptable predicted relative error; None for the dtype's default.
        scale
            Size of the terms that were summed in one entry of a message (root mean square), where that is larger than
            the entries themselves: a gradient near its minimum is a small difference of large terms, and its rounding
            error is relative to those. Surplus messages are compared relative to this.

        Returns
        -------
        array, certificate
            The ``k`` source blocks, shape ``(k, ...)``, and how they were obtained.

        Raises
        ------
        NotDecodableError
            If the messages do not determine every source block; names the missing ones.
        DecodeError
            If the predicted error exceeds ``tolerance``.
        InputError
            If a message id is unknown or shapes differ.
        """

    def suspects(self, values: Mapping[int, Array]) -> tuple[int, ...]:
        """Name the message that is wrong, after `decode` raised `WrongResult`.

        Returns
        -------
        tuple
            The id of the one message without which all others agree; empty if none or several would do.
        """
        from serverless_gc.codes.suspects import locate  # needed after a wrong result only

        return locate(self.generator, values)

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code by `serverless_gc.codes.get` (JSON types only)."""
        return {}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs: JSON types and NumPy arrays. Random codes include their generator."""
        return {
            "code": self.name,
            "version": 1,
            "n_workers": self.n_workers,
            "k": self.k,
            "params": self.params(),
        }

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Code:
        """Rebuild the code from its manifest alone."""
        return cls(manifest["n_workers"], manifest["k"], **manifest.get("params", {}))

    def __repr__(self) -> str:
        extra = "".join(f", {key}={value!r}" for key, value in self.params().items())
        return f"{type(self).__name__}(n_workers={self.n_workers}, k={self.k}{extra})"


def check_message(message: int, n_messages: int) -> None:
    """Raise `InputError` unless ``0 <= message < n_messages``."""
    if not 0 <= message < n_messages:
        raise InputError(f"message id must be in 0..{n_messages - 1}, got {message}")


def check_dense(rows: int, columns: int) -> None:
    """Raise `InputError` if a dense matrix of coefficients of this shape would be too large to work with.

    Examples
    --------
    >>> check_dense(25_000, 75_000)
    Traceback (most recent call last):
    ...
    serverless_gc.errors.InputError: the code needs a dense matrix of 25,000 x 75,000 coefficients, 15.0 GB, more than \
    2 GB: take fewer workers, or a code of sums of few blocks, such as 'polar' or 'lt'
    """
    size = 8 * rows * columns
    if size > DENSE_BYTES:
        raise InputError(
            f"the code needs a dense matrix of {rows:,} x {columns:,} coefficients, {size / 1e9:.1f} GB, more than "
            f"{DENSE_BYTES / 1e9:.0f} GB: take fewer workers, or a code of sums of few blocks, such as 'polar' or 'lt'"
        )


def stack_blocks(blocks: Sequence[Array] | Array, k: int) -> Array:
    """Return blocks as one array of shape ``(k, ...)``, promoted to a dtype in which sums are safe."""
    if len(blocks) != k:
        raise InputError(f"expected k={k} blocks, got {len(blocks)}")
    if not isinstance(blocks, np.ndarray):
        arrays = [np.asarray(b) for b in blocks]
        shapes = {a.shape for a in arrays}
        if len(shapes) > 1:
            raise InputError(f"all blocks must have one shape, got {sorted(shapes)}")
        blocks = np.stack(arrays)
    if blocks.dtype.kind in "biu" or blocks.dtype == np.float16:
        blocks = blocks.astype(np.float64)
    if blocks.dtype.kind not in "fc":
        raise InputError(f"blocks must be numeric, got dtype {blocks.dtype}")
    return blocks
