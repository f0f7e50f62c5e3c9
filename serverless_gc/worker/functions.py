"""A user's function on a worker: verified, unpickled, called on one part of the data, its answer checked.

A function travels as a frame whose first array is its pickle and whose further arrays are what it refers to, so that no
array is ever inside a pickle. It was made by cloudpickle, which unpickling imports; nothing else here needs it.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block, CsrBlock, unpack
from serverless_gc.worker.losses import Loss
from serverless_gc.worker.products import multiply, multiply_transposed

__all__ = ["FunctionError", "FunctionRefused", "SparsePart", "call", "load"]

Array: TypeAlias = NDArray[Any]
Function: TypeAlias = Callable[..., Any]

_KEPT = 4  # functions a thread remembers: what one compiled at its first call it need not compile again
_MOST_TEXT = 500
_remembered = threading.local()  # each thread has copies of its own: functions need not be safe among threads


class FunctionRefused(Exception):
    """A function cannot be run on this worker, whatever the data."""


class FunctionError(Exception):
    """A function raised, or gave back what is no gradient."""


class _Unpickler(pickle.Unpickler):
    """Loads a function whose arrays are beside its pickle."""

    def __init__(self, data: bytes, arrays: Sequence[Array]) -> None:
        super().__init__(io.BytesIO(data))
        self._arrays = arrays

    def persistent_load(self, pid: Any) -> Any:
        kind, which = pid
        if kind == "ufunc":
            return getattr(np, which)
        return self._arrays[which].copy() if kind == "array" else self._arrays[which][()]


def load(block: Block, stamp: Mapping[str, str]) -> Function | Loss:
    """Return the function that a block holds.

    Parameters
    ----------
    block
        Bytes of the function's frame, as an array.
    stamp
        ``"digest"``, the SHA-256 of these bytes as the driver computed it, ``"python"``, the version that pickled them,
        and ``"name"``, as what the function was given.

    Raises
    ------
    FunctionRefused
        If the digest or the version differs, or the function needs a module that is not here. Nothing is unpickled
        before digest and version were compared.
    """
    name = stamp.get("name", "loss")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if stamp["python"] != here:
        raise FunctionRefused(
            f"the function given as {name}= was pickled by Python {stamp['python']} and this worker runs Python "
            f"{here}, which may read it differently. Deploy the worker for the driver's Python: serverless-gc deploy "
            f"--python {stamp['python']}; or run the driver on Python {here}, or use a built-in loss"
        )
    data = b"" if isinstance(block, CsrBlock) else block.tobytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != stamp["digest"]:
        raise FunctionRefused(
            f"the stored function has the SHA-256 {digest}, the driver sent {stamp['digest']}: it is not the one that "
            f"was given as {name}=, and was not loaded. Look who else may write to the bucket"
        )
    known: OrderedDict[str, Function | Loss] = _remembered.__dict__.setdefault("functions", OrderedDict())
    if digest not in known:
        code, *arrays = unpack(data).arrays
        try:
            known[digest] = _Unpickler(code.tobytes(), arrays).load()
        except ModuleNotFoundError as error:
            raise _lacking(error, name) from error
        except Exception as error:
            raise FunctionRefused(f"the function given as {name}= cannot be loaded here: {_said(error)}") from error
        while len(known) > _KEPT:
            known.popitem(last=False)
    known.move_to_end(digest)
    return known[digest]


def _lacking(error: ModuleNotFoundError, given: str = "loss") -> FunctionRefused:
    name = error.name or str(error)
    if name.partition(".")[0] == "cloudpickle":
        return FunctionRefused(
            f"this worker was deployed without cloudpickle, which functions given as {given}= need: install it "
            "beside serverless_gc where you build (pip install cloudpickle), run serverless-gc deploy, or use a "
            "built-in loss"
        )
    return FunctionRefused(
        f"the function given as {given}= needs the module {name!r}, which this worker lacks: write it with NumPy and "
        f"the standard library, or attach a layer that holds {name!r} to the function"
    )


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:_MOST_TEXT]}"


class SparsePart:
    """Rows of a sparse matrix, as functions see them: ``X @ w`` and ``X.T @ r`` without SciPy, which workers lack.

    ``X.data``, ``X.indices``, ``X.indptr`` and ``X.shape`` are those of compressed sparse rows.

    Examples
    --------
    >>> X = SparsePart(CsrBlock(np.array([2.0, 3.0]), np.array([1, 0]), np.array([0, 1, 2]), (2, 2)))
    >>> X @ np.array([1.0, 10.0]), X.T @ np.array([1.0, 10.0]), X.toarray().tolist()
    (array([20.,  3.]), array([30.,  2.]), [[0.0, 2.0], [3.0, 0.0]])
    """

    __array_ufunc__ = None  # an array on the left leaves the product to this class, which refuses it

    def __init__(self, block: CsrBlock, *, transposed: bool = False) -> None:
        self._block = block
        self._transposed = transposed
        self.data, self.indices, self.indptr = block.data, block.indices, block.indptr
        self.shape: tuple[int, int] = block.shape[::-1] if transposed else block.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __matmul__(self, operand: Any) -> Array:
        if not self._transposed:
            return multiply(self._block, np.asarray(operand))
        # The product that workers know is with the conjugate transpose.
        return np.conj(multiply_transposed(self._block, np.conj(np.asarray(operand))))

    @property
    def T(self) -> SparsePart:  # noqa: N802 - what NumPy and SciPy call it
        """The transpose."""
        return SparsePart(self._block, transposed=not self._transposed)

    def toarray(self) -> Array:
        """Return the rows as a dense array."""
        out = np.zeros(self._block.shape, self.data.dtype)
        out[np.repeat(np.arange(len(out)), np.diff(self.indptr)), self.indices] = self.data
        return out.T if self._transposed else out


def call(function: Function, part: Sequence[Block | None], w: Array, where: str, *, value: bool) -> tuple[float, Array]:
    """Call a function on one part of the data and check what it gives back.

    Parameters
    ----------
    function
        ``function(X, y, w) -> gradient`` or ``-> (value, gradient)``; with row weights ``function(X, y, w, weights)``.
    part
        ``X``, ``y`` (None if there are no labels), and the row weights if there are any.
    w
        The point, read-only.
    where
        What part this is, for messages.
    value
        Whether the value is wanted.

    Returns
    -------
    value, gradient
        The value is NaN if it was neither wanted nor given; the gradient has ``w``'s shape.

    Raises
    ------
    FunctionError
        If it raises, or gives back another shape, no numbers, NaN or Inf.
    FunctionRefused
        If it imports a module that is not here.
    """
    X, y, *weights = part
    try:
        answer = function(SparsePart(X) if isinstance(X, CsrBlock) else X, y, w, *weights)
        given, gradient = answer if isinstance(answer, tuple) and len(answer) == 2 else (None, answer)
        gradient = np.asarray(gradient)
        number = np.nan if given is None else float(given)
    except ModuleNotFoundError as error:
        raise _lacking(error) from error
    except (Exception, SystemExit) as error:  # whatever a user's code raises, this task alone ends
        raise FunctionError(f"the loss raised {_said(error)}, on {where}") from error
    if value and given is None:
        raise FunctionError(
            "the loss gave a gradient alone; for its value let it return the pair (value, gradient), "
            f"or ask for the gradient only; on {where}"
        )
    if gradient.dtype.kind not in ("biufc" if w.dtype.kind == "c" else "biuf"):
        raise FunctionError(f"the loss gave a gradient of dtype {gradient.dtype}, numbers are expected; on {where}")
    if gradient.shape != w.shape:
        raise FunctionError(f"the loss gave a gradient of shape {gradient.shape}, w has shape {w.shape}; on {where}")
    told = given is None or np.isfinite(number)
    if not (np.isfinite(gradient).all() and told):
        what = "gradient" if told else "value"
        raise FunctionError(f"the loss gave a {what} that holds NaN or Inf; on {where}")
    return number, gradient
