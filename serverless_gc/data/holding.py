"""What all kinds of encoded data have in common as owners of stored objects: being let go, and being deleted."""

from __future__ import annotations

from typing import Protocol

from serverless_gc.background import blocking, homed
from serverless_gc.encode.kept import delete_kept
from serverless_gc.refusals import Uncopied
from serverless_gc.rounds.resources import Location, Owner

__all__ = ["Holding"]


class _Holder(Protocol):
    """What holds the stored objects of a data set."""

    @property
    def owner(self) -> Owner: ...

    @property
    def location(self) -> Location: ...

    async def remove(self) -> None: ...


class Holding(Uncopied):
    """Stored data that can be let go or deleted; ``_holder`` has the objects."""

    _holder: _Holder

    @property
    def owner(self) -> Owner:
        """The session."""
        return self._holder.owner

    @property
    def name(self) -> str:
        """The name under which it is kept beyond the session; empty if it is not."""
        return self._holder.location.name

    @homed
    async def close_async(self) -> None:
        """Be done with it before the session closes: its objects are deleted now, unless it is kept under a name."""
        await self._holder.remove()

    @homed
    async def delete_async(self) -> None:
        """Delete everything that is stored of it, under a name or not.

        Raises
        ------
        StoreError
            If an object of a kept set could not be deleted.
        """
        await self._holder.remove()
        if self.name:
            await delete_kept((await self.owner.resources()).store, self.name)

    close = blocking(close_async)
    delete = blocking(delete_async)
