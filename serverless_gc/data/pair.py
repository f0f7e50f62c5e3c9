"""`EncodedPair`: the coded rows of a matrix and of its transpose, which data sets of one session share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal
from weakref import WeakSet

import numpy as np

from serverless_gc.codes.base import Code
from serverless_gc.data.one_round import OneRound
from serverless_gc.data.strategy import LARGEST_GRAM
from serverless_gc.encode import EncodedMatrix, Scan, Source, scan, store_encoded
from serverless_gc.errors import InputError, ServerlessGCError
from serverless_gc.observe import Report
from serverless_gc.rounds.resources import Location, Owner
from serverless_gc.types import Array

__all__ = ["EncodedPair"]


class EncodedPair:
    """The two encodings of one matrix, each made when first needed and only once.

    ``content`` is the matrix, or of a kept set whose matrix is not here the encodings that are stored, by axis.
    """

    def __init__(
        self,
        owner: Owner,
        content: Source | Mapping[int, EncodedMatrix],
        code: Code,
        location: Location,
        dtype: np.dtype[Any],
        fingerprint: str,
    ) -> None:
        self.owner = owner
        self.code = code
        self.location = location
        self.dtype = dtype
        self.fingerprint = fingerprint
        self._source: Source | None = content if isinstance(content, Source) else None
        self._made: dict[int, EncodedMatrix] = {} if isinstance(content, Source) else dict(content)
        about = content if isinstance(content, Source) else content[0]
        self.shape: tuple[int, int] = about.shape
        self.holders: WeakSet[Any] = WeakSet()
        self._unreported = Report(rounds=0)
        self._locks = (asyncio.Lock(), asyncio.Lock())
        self.moments: dict[bytes, Array] = {}
        self.moments_lock = asyncio.Lock()
        self.one_round = OneRound(owner, about, code, dtype, fingerprint, location.key, lambda: self.matrix(0))
        if about.sparse or self.shape[1] > LARGEST_GRAM:
            self.one_round.release()

    async def matrix(self, axis: Literal[0, 1], scanned: Scan | None = None) -> EncodedMatrix:
        """Return the coded rows of ``X`` (axis 0) or of ``X.T`` (axis 1), encoding and storing them if need be.

        Raises
        ------
        InputError
            If the matrix was changed in place between the encoding of its rows and that of its columns.
        """
        async with self._locks[axis]:
            if axis not in self._made:
                source = self._source
                if source is None and self._made:
                    raise InputError(
                        f"the kept data set {self.location.name!r} has the rows of X only, and products with X.T need "
                        "its columns too: encode it once more with y and the same name"
                    )
                if source is None:
                    raise ServerlessGCError("the blocks of this data set were let go or deleted; encode it again")
                if scanned is None:
                    scanned = await asyncio.to_thread(scan, source)
                if scanned.fingerprint != self.fingerprint:
                    raise InputError("X was changed in place after session.encode(X); encode it again")
                await self._encode(axis, source, scanned)
            if len(self._made) == 2:
                self._source = None  # both encodings are stored: they need the matrix itself no longer
            return self._made[axis]

    async def _encode(self, axis: Literal[0, 1], source: Source, scanned: Scan) -> None:
        res = await self.owner.resources()
        storing = store_encoded(
            source,
            self.code,
            res.store,
            self.location.prefix(res),
            axis=axis,
            dtype=self.dtype,
            scanned=scanned,
            limits=res.limits,
            on_progress=res.progress.on_encode if res.progress else None,
            resume=bool(self.location.name),
        )
        self._made[axis], cost = await res.timed(storing)
        self._unreported = self._unreported.merge(cost)

    def reported(self, report: Report) -> Report:
        """Add what encoding cost since the last report: it belongs to the call that caused it."""
        unreported, self._unreported = self._unreported, Report(rounds=0)
        return report.merge(unreported)

    @property
    def stored_nnz(self) -> int:
        """Entries stored by the encodings made so far."""
        return sum(encoded.stored_nnz for encoded in self._made.values())

    @property
    def removed(self) -> bool:
        """Whether its blocks were deleted, or let go, for good."""
        return self._source is None and not self._made

    def release(self) -> None:
        """Forget the matrix itself: nothing more will be encoded of it."""
        self._source = None
        self.one_round.release()

    async def remove(self) -> None:
        """Delete the stored blocks, or let them go if they are kept."""
        res = await self.owner.resources()
        made, self._made, self._source = self._made, {}, None
        if not self.location.name:
            for encoded in made.values():
                await res.discard(encoded.objects())
        await self.one_round.remove()
