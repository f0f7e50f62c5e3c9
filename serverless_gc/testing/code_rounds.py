"""Laws of whole rounds: a session cuts, encodes and stores, workers compute, and what arrived is decoded."""

# ruff: noqa: D102 - the names of the tests are sentences

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_array, issparse

from serverless_gc.background import blocking, homed
from serverless_gc.codes.base import Code
from serverless_gc.codes.matmul import MatmulCode
from serverless_gc.encode import Partition, SparseFillWarning
from serverless_gc.errors import InputError, NotDecodableError
from serverless_gc.inject import Faults
from serverless_gc.matmul import multiply
from serverless_gc.policies import FirstK
from serverless_gc.session import Session
from serverless_gc.testing.code_hooks import CodeHooks, filled, messages_of, near
from serverless_gc.types import Array

__all__ = ["TARGET", "RoundLaws"]

TARGET = 1.0
"""All targets of the least squares whose gradients are asked for."""


class RoundLaws(CodeHooks):
    """Laws that hold for a user who gives the code to a `Session`, on its default backend."""

    def test_rounds_give_the_product(self) -> None:
        code = self.make_code()
        rng = np.random.default_rng(16)
        with _session(code) as session:
            for dtype, rows in itertools.product(self.dtypes, _lengths(code.k)):
                A = (rng.normal(size=(rows, 5)) * 4).astype(dtype)
                for operand in self.operands(code, A):
                    single = A.dtype == np.float32
                    self._compare(session, code, A, operand, accuracy=1e-3 if single else self.accuracy)

    def test_rounds_take_matrices_that_are_mostly_zero(self) -> None:
        code = self.make_code()
        rng = np.random.default_rng(17)
        rows = 3 * code.k - 1
        A = rng.normal(size=(rows, 5)) * (rng.random((rows, 5)) < 0.3)
        A[: 2 * rows // 3] = 0.0
        with _session(code) as session, warnings.catch_warnings():
            warnings.simplefilter("ignore", SparseFillWarning)
            for operand in self.operands(code, A):
                self._compare(session, code, A, operand)
                self._compare(session, code, np.zeros_like(A), operand)
                for form in (csr_array, csc_matrix):
                    if self.sparse and code.kind != "matmul":
                        self._compare(session, code, form(A), operand)
                    else:
                        with pytest.raises(InputError, match=r"sparse|dense"):
                            self.ask(session, code, form(A), operand)

    def test_rounds_do_without_a_worker_that_sends_nonsense(self) -> None:
        code = self.make_code()
        if code.n_workers == 1:
            pytest.skip("there is no other worker")
        A = np.random.default_rng(18).normal(size=(2 * code.k, 5))
        others = messages_of(code, range(1, code.n_workers))
        operand = next(self.operands(code, A))
        with _session(code, awaited=code.n_workers - 1, inject=Faults(non_finite=[0]), max_attempts=1) as session:
            if filled(code, others).decodable or not code.exact:
                self._compare(session, code, A, operand, messages=others)
            else:
                with pytest.raises(NotDecodableError):
                    self.ask(session, code, A, operand)

    # -- what codes of other shapes replace ----------------------------------------------------------

    def operands(self, code: Code, A: Array) -> Iterator[Array]:
        """Return what ``A`` is multiplied by, of its kind of numbers: a vector, and where it may be a matrix."""
        rng = np.random.default_rng(19)
        whole = A.dtype.kind in "biu"
        for shape in [(5,)] * (code.kind != "matmul") + [(5, 3)] * (not _of_sums(code)):
            x = rng.normal(size=shape) * 4
            if A.dtype.kind == "c":
                x = x + 1j * rng.normal(size=shape)
            yield x.astype(np.int64 if whole else A.dtype)

    def ask(self, session: Session, code: Code, A: Any, x: Array) -> Array:
        """Compute ``A @ x`` in one round, or the gradient at ``x`` of least squares with the targets `TARGET`."""
        answer: Array
        if isinstance(code, MatmulCode):
            answer, _ = blocking(homed(multiply))(session, A, x, code, None)
            return answer
        targets = np.full(A.shape[0], TARGET) if _of_sums(code) else None
        data: Any = session.encode(A, targets, code=code, dtype=_stored(A), allow_fill=True)
        answer = data.matvec(x) if targets is None else data.gradient(x)
        return answer

    def parts(self, code: Code, A: Array, x: Array) -> Array:
        """Return the ``k`` parts of the answer, of which each answer of an approximate code is a combination."""
        part = Partition(len(A), code.k)
        if _of_sums(code):
            rows = (A[slice(*part.range(i))] for i in range(code.k))
            return np.array([block.T @ (block @ x - TARGET) for block in rows])
        product = A @ x
        return np.pad(product, [(0, part.n_padding), *[(0, 0)] * (product.ndim - 1)]).reshape(code.k, -1)

    # -- helpers -------------------------------------------------------------------------------------

    def _compare(
        self,
        session: Session,
        code: Code,
        A: Any,
        x: Array,
        *,
        accuracy: float | None = None,
        messages: Sequence[int] | None = None,
    ) -> None:
        """Compare a round with NumPy; an approximate answer from these messages is as near as the code promises."""
        dense: Array = (A.toarray() if issparse(A) else A) + 0.0  # type: ignore[attr-defined]  # what scipy calls sparse
        wanted = dense.T @ (dense @ x - TARGET) if _of_sums(code) else dense @ x
        answer = self.ask(session, code, A, x)
        assert answer.shape == wanted.shape
        promised = 0.0
        if not code.exact:
            sent = self.sent(code, self.blocks(code))
            ids = range(code.n_messages) if messages is None else messages
            _, certificate = code.decode({i: sent[i] for i in ids})
            promised = self.promise(code, self.parts(code, dense, x), certificate)
        near(answer, wanted, promised=promised, accuracy=self.accuracy if accuracy is None else accuracy)


def _session(code: Code, awaited: int | None = None, **options: Any) -> Session:
    """Make a session in which approximate answers are of a known number of results: how near they are follows."""
    if not code.exact:
        options["policy"] = FirstK(code.n_workers if awaited is None else awaited)
    return Session(**options)


def _of_sums(code: Code) -> bool:
    """Whether sessions take the code for gradients, and not for products."""
    return code.kind != "matmul" and (code.kind == "gradient" or code.target == "sum")


def _lengths(k: int) -> list[int]:
    """Numbers of rows: divisible, not divisible, and one row a block."""
    return sorted({k, 3 * k - 1, 3 * k})


def _stored(A: Any) -> type[np.floating[Any]]:
    return np.float32 if A.dtype == np.float32 else np.float64
