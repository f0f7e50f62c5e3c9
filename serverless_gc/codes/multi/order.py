"""Who computes what in which order, checked."""

from __future__ import annotations

from typing import ClassVar

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Code, CodeKind
from serverless_gc.errors import InputError

__all__ = ["ConsecutiveMessages", "check_load"]


class ConsecutiveMessages(Code):
    """Base of codes whose worker ``i`` sends the messages ``i r .. i r + r - 1``, one by one."""

    kind: ClassVar[CodeKind] = "multi-message"
    publish = 1
    r: int

    @property
    def n_messages(self) -> int:
        """``n_workers * r``."""
        return self.n_workers * self.r

    def placement(self, worker: int) -> tuple[int, ...]:
        """Message ids that ``worker`` computes, in the order it computes them."""
        super().placement(worker)
        return tuple(range(worker * self.r, (worker + 1) * self.r))


def check_load(r: object, most: int, what: str = "k", name: str = "r") -> int:
    """Return the number of messages of a worker, in ``1..most``."""
    number = check_whole(name, r, 1)
    if number > most:
        raise InputError(f"{name} must be at most {what}={most}, got {number}: a worker would do the same work twice")
    return number
