"""Close as soon as the code can decode."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Certifier, Code, Tracker, Verdict
from serverless_gc.codes.received import MOST_EXTRA, doubtful_error, guarded_error
from serverless_gc.errors import InputError
from serverless_gc.policies.words import check_code, given_up, numbers
from serverless_gc.types import Abort, Act, Arrival, Close, TaskSpec, View, Wait

__all__ = ["UntilDecodable"]


class UntilDecodable:
    """Close when the arrived messages determine the answer; the companion policy of every code.

    Parameters
    ----------
    code
        The code; slot ``i`` delivers the messages ``code.placement(i)``, in this order if partial results come.
    margin
        Wait for so many results beyond that, as long as any can still come: a parity check on the others. A partial
        result counts as one.
    tolerance
        If the code predicts its accuracy (`serverless_gc.codes.base.Certifier`) and the prediction is above this
        relative error, wait for further results, but not longer than it took until here; None for the code's own
        ``guard``, in single precision at least 1e-4.
    max_extra
        At most so many.
    bound
        While the prediction is above this, wait for whatever can still come, however long and however many: the answer
        would be of little use. By default ``tolerance``, but at least 1e-6, or 1e-3 in single precision. Asked only
        where ``tolerance`` or the code's ``guard`` is set.
    dtype
        Precision of the messages, for which accuracy is predicted.

    Raises
    ------
    InputError
        If ``margin`` or ``max_extra`` is negative, or ``tolerance`` or ``bound`` is not positive.

    Notes
    -----
    Everything that arrived is consumed, and of unfinished tasks the messages that are here. Codes that interpolate are
    accurate from results spread over all workers, and useless from those of neighbours: a few more results, or many,
    mend that, and the prediction knows which arrived. When nothing more can come
    and the answer is not determined, the round is aborted; the reason names the missing blocks.
    """

    leftover: Literal["cancel", "keep"] = "cancel"

    def __init__(
        self,
        code: Code,
        *,
        margin: int = 0,
        tolerance: float | None = None,
        max_extra: int = MOST_EXTRA,
        bound: float | None = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_code(self, code)
        margin, max_extra = check_whole("margin", margin, 0), check_whole("max_extra", max_extra, 0)
        for name, limit in (("tolerance", tolerance), ("bound", bound)):
            if limit is not None and not limit > 0:
                raise InputError(f"{name} must be positive, got {limit}")
        self.code = code
        self.margin = margin
        self.tolerance = guarded_error(code.guard, dtype) if tolerance is None else tolerance
        self.max_extra = max_extra
        self.bound = max(doubtful_error(dtype), tolerance or 0.0) if bound is None else bound
        self._dtype = np.dtype(dtype)
        self._start(())

    def _start(self, slots: Collection[int]) -> None:
        self._outstanding = set(slots)
        self._partial: set[int] = set()  # slots of which only some messages are here
        self._tracker: Tracker = self.code.tracker()
        self._verdict = Verdict(decodable=False)
        self._arrived: dict[int, None] = {}
        self._n_results = 0
        self._beyond = 0  # results since the answer was determined
        self._determined: float | None = None  # seconds from the round's start until it was
        self._predicted = 0.0
        self._ask_at = 0  # messages from which on a new prediction is worth its cost

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Give every slot its task.

        Raises
        ------
        InputError
            If the engine has another number of slots than the code has workers.
        """
        if view.n_slots != self.code.n_workers:
            raise InputError(f"the code is for n_workers={self.code.n_workers}, the engine has {view.n_slots} slots")
        slots = view.idle_slots()
        self._start(slots)
        return [view.new_task(slot) for slot in slots]

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Close if the answer is determined."""
        slot = arrival.task.slot
        self._outstanding.discard(slot)
        self._partial.discard(slot)
        self._n_results += 1
        self._take(self.code.placement(slot))
        return self._decide(view)

    def on_partial(self, view: View, task: TaskSpec, messages: Sequence[int]) -> Act:
        """Close if the answer is determined with these messages of an unfinished task.

        Raises
        ------
        InputError
            If the slot has no such message.
        """
        placed = self.code.placement(task.slot)
        for place in messages:
            if not 0 <= place < len(placed):
                raise InputError(f"slot {task.slot} has messages 0..{len(placed) - 1}, there is none at place {place}")
        self._partial.add(task.slot)
        self._take([placed[place] for place in messages])
        return self._decide(view)

    def _take(self, messages: Sequence[int]) -> None:
        if self._verdict:
            self._beyond += 1
        for message in messages:
            self._arrived[message] = None
            if not self._verdict:
                self._verdict = self._tracker.add(message)

    def on_failure(self, view: View, task: TaskSpec) -> Act:
        """Give up if nothing more can come."""
        self._outstanding.discard(task.slot)
        return self._decide(view)

    def _decide(self, view: View) -> Act:
        if self._verdict:
            if self._determined is None:
                self._determined = view.now - view.round_start
            if self._outstanding and self._wants_more(view):
                return Wait()
            return Close(collect_partials=bool(self._partial))
        if self._outstanding:
            return Wait()
        return Abort(
            f"{self.explain()}: {self._n_results} of {self.code.n_workers} results arrived, {given_up(view)}; "
            "run again, or choose a code with more workers for the same number of blocks",
            "starved",
        )

    def explain(self) -> str:
        """Say which blocks cannot be reconstructed from what arrived."""
        missing = self._tracker.missing()
        return f"{len(missing)} of {self.code.k} blocks cannot be reconstructed (blocks {numbers(missing)})"

    def _wants_more(self, view: View) -> bool:
        if self._beyond < self.margin:
            return True
        if self.tolerance is None or not isinstance(self.code, Certifier):
            return False
        if len(self._arrived) >= self._ask_at:
            self._predicted = self.code.certify(tuple(self._arrived), self._dtype).predicted_error
            # Each prediction costs a factorization: of many more arrivals not every one is looked at.
            self._ask_at = len(self._arrived) + 1 + self._beyond // 8
        if not self._predicted <= self.bound:
            return True
        tired = self._impatient(view) or self._beyond - self.margin >= self.max_extra
        return not tired and self._predicted > self.tolerance

    def _impatient(self, view: View) -> bool:
        return self._determined is not None and view.now >= view.round_start + 2 * self._determined

    @property
    def answerable(self) -> bool:
        """Whether what arrived determines the answer, however accurately."""
        return bool(self._verdict)

    def timer(self, view: View) -> float | None:
        """When waiting for accuracy has taken as long as waiting for the answer."""
        if self._determined is None or self.tolerance is None or self._beyond < self.margin or self._impatient(view):
            return None
        return 2 * self._determined

    def on_timer(self, view: View) -> Act:
        """Close with what is here, if it determines the answer."""
        return self._decide(view) if self._verdict else Wait()
