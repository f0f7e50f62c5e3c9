"""Least-squares gradients in one coded round instead of two.

``X.T (X w - y)`` is ``X.T X w - b`` with ``b = X.T y`` fixed. What is left for a round is ``X.T X w``: a product with
the small Gram matrix, or, with a code whose workers may return polynomials of their block, what they compute of the
coded rows of ``X`` themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.codes.lagrange.pcr import PCRCode
from serverless_gc.codes.peeling.moment import PartlyDecoded, deinterleave, interleave
from serverless_gc.data.strategy import LARGEST_GRAM, Choice, Gram, Strategy, choose, make_gram
from serverless_gc.encode import EncodedMatrix, Source, scan, store_encoded
from serverless_gc.errors import InputError
from serverless_gc.observe import Report
from serverless_gc.pipeline import run_round
from serverless_gc.policies import UntilDecodable
from serverless_gc.rounds.jobs import normal_job, product_job
from serverless_gc.rounds.resources import Owner
from serverless_gc.types import Array, WaitPolicy

if TYPE_CHECKING:
    from serverless_gc.codes.peeling.ldpc import LDPCCode

__all__ = ["OneRound"]

OnUndecodable = Literal["raise", "approximate"]
RowsOf = Callable[[], Awaitable[EncodedMatrix]]


class OneRound:
    """What a data set keeps for its least-squares gradients, made when first needed.

    Parameters
    ----------
    owner
        The session.
    content
        The matrix, or an encoding of it if it is not here.
    code, dtype, fingerprint
        Of its encoding.
    prefix
        Where objects go, below the run's prefix.
    rows
        Gives the coded rows of the matrix.
    """

    def __init__(
        self,
        owner: Owner,
        content: Source | EncodedMatrix,
        code: Code,
        dtype: np.dtype[Any],
        fingerprint: str,
        prefix: str,
        rows: RowsOf,
    ) -> None:
        self._owner = owner
        self._source: Source | None = content if isinstance(content, Source) else None
        self._shape, self._sparse = content.shape, content.sparse
        self._code = code
        self._dtype = dtype
        self._fingerprint = fingerprint
        self._prefix = prefix
        self._rows = rows
        self._gradients = 0
        self._gram: Gram | None = None
        self._stored: EncodedMatrix | None = None
        self._changed = False
        self._lock = asyncio.Lock()
        self._unreported = Report(rounds=0)

    async def choose(self, asked: Strategy, *, loss: str, weighted: bool) -> Choice:
        """Choose how to compute a gradient, forming the Gram matrix if that decides.

        Raises
        ------
        InputError
            If what is asked for does not apply, or ``X`` was changed in place.
        """
        async with self._lock:
            choice = self._choice(asked, loss, weighted)
            if choice is None:
                await self._form(asked)
                choice = self._choice(asked, loss, weighted)
            if loss == "squared" and not weighted:
                self._gradients += 1
        if choice is None:  # only without the matrix itself
            return Choice("two-round", "X was changed in place since it was encoded")
        return choice

    def _choice(self, asked: Strategy, loss: str, weighted: bool) -> Choice | None:
        return choose(
            asked,
            loss=loss,
            weighted=weighted,
            sparse=self._sparse,
            shape=self._shape,
            gradients=self._gradients,
            gram=self._gram,
            dtype=self._dtype,
            polynomial=isinstance(self._code, PCRCode),
        )

    async def _form(self, asked: Strategy) -> None:
        """Form the Gram matrix, unless the matrix itself is gone or another one by now."""
        start = time.perf_counter()
        source = self._source
        if source is not None and not self._changed:
            scanned = await asyncio.to_thread(scan, source)
            self._changed = scanned.fingerprint != self._fingerprint
            if not self._changed:
                self._gram = await asyncio.to_thread(make_gram, source)
                self._source = None
                self._report(Report(rounds=0, encode_seconds=time.perf_counter() - start))
                return
        if asked == "gram":
            if self._changed:
                raise InputError("X was changed in place after session.encode(X); encode it again")
            raise InputError(
                f"strategy='gram' needs the matrix itself, which is there only after session.encode (not after "
                f"session.open), if it is dense and has at most {LARGEST_GRAM} columns; here it has {self._shape[1]}"
                f"{', and is sparse' if self._sparse else ''}"
            )

    def _report(self, cost: Report) -> None:
        self._unreported = self._unreported.merge(cost)

    def release(self) -> None:
        """Forget the matrix itself."""
        self._source = None

    async def product(
        self, choice: Choice, w: Array, deadline: float | None, on_undecodable: OnUndecodable = "raise"
    ) -> tuple[Array, Report]:
        """Compute ``X.T X w`` (conjugated for complex data) in one round.

        Parameters
        ----------
        choice
            What `choose` gave.
        w
            ``(p,)`` or ``(p, c)``.
        deadline
            Seconds after which the round fails; the session's by default.
        on_undecodable
            ``"approximate"``: entries that cannot be had in time are NaN. For the Gram matrix under an LDPC code.

        Raises
        ------
        InputError
            If an approximation is asked for where none is defined.
        NotDecodableError, DeadlineExceeded
            If too few results arrived (in time).
        """
        if on_undecodable == "approximate" and not (choice.strategy == "gram" and _is_ldpc(self._code)):
            raise InputError(
                "on_undecodable='approximate' is for gradient codes, and for least squares with code='ldpc' and "
                f"strategy='gram'; here the code is {self._code.name!r}, the strategy {choice.strategy!r}"
            )
        res = await self._owner.resources()
        natural = partial(self._owner.policy_for, deadline=deadline)
        if choice.strategy == "polynomial":
            assert isinstance(self._code, PCRCode)  # noqa: S101 - what the choice says
            rows = await self._rows()
            job = normal_job(rows, self._code.gradient_round, w)
            answer, report = await run_round(res, job, partial(natural, dtype=job.stored))
            return answer, self._with_costs(report)
        matrix = await self._coded()
        job = product_job(matrix, w)
        p, k = len(w), matrix.code.k
        whole = job.finish

        def finish(blocks: Array) -> Array:
            return deinterleave(whole(blocks).reshape(k, -1, *w.shape[1:]), p)

        job = replace(job, label="X.T X w", finish=finish)
        if on_undecodable == "raise":
            answer, report = await run_round(res, job, partial(natural, dtype=job.stored))
            return answer, self._with_costs(report)
        code = matrix.code
        assert _is_ldpc(code)  # noqa: S101 - checked above

        def until_deadline(_: Code) -> WaitPolicy:
            return self._owner.policy_for(code, deadline, inner=UntilDecodable(code), on_expire="close")

        answer, report = await run_round(res, replace(job, code=PartlyDecoded(code)), until_deadline)
        return answer, self._with_costs(report)

    def _with_costs(self, report: Report) -> Report:
        unreported, self._unreported = self._unreported, Report(rounds=0)
        return report.merge(unreported)

    async def _coded(self) -> EncodedMatrix:
        """Return the coded Gram matrix, its rows dealt out to the blocks in turn; encode it if need be."""
        async with self._lock:
            if self._stored is None:
                assert self._gram is not None  # noqa: S101 - the choice says so
                res = await self._owner.resources()
                start = time.perf_counter()
                dealt = interleave(self._gram.matrix, self._code.k)
                self._stored = await store_encoded(
                    dealt.reshape(-1, dealt.shape[-1]),
                    self._code,
                    res.store,
                    f"{res.prefix}/data/{self._prefix}/gram",
                    dtype=self._dtype,
                    limits=res.limits,
                )
                cost = Report(rounds=0, bytes_up=self._stored.nbytes, encode_seconds=time.perf_counter() - start)
                self._report(cost)
            return self._stored

    async def remove(self) -> None:
        """Delete what was stored."""
        self._source = None
        stored, self._stored, self._gram = self._stored, None, None
        if stored is not None:
            res = await self._owner.resources()
            await res.discard(stored.objects())


def _is_ldpc(code: Code) -> TypeGuard[LDPCCode]:
    from serverless_gc.codes.peeling.ldpc import LDPCCode  # with it comes SciPy: a quarter of a second

    return isinstance(code, LDPCCode)
