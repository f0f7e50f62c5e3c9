"""What LT and LDPC codes share: tracker, certificate and decoder of a code given by sparse equations."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Certificate, Code, check_message
from serverless_gc.codes.blocks import Output, promoted
from serverless_gc.codes.peeling.equations import Equations, PeelTracker
from serverless_gc.codes.peeling.plan import PeelPlan, plan_peel
from serverless_gc.codes.peeling.residual import Residual
from serverless_gc.codes.peeling.schedule import Order, make_schedule
from serverless_gc.codes.polar.decode import mismatch, sample_columns
from serverless_gc.codes.received import (
    GUARD,
    TYPICAL,
    Received,
    accuracy_warning,
    default_tolerance,
    not_decodable,
    receive,
    refuse_inaccurate,
    refuse_mismatch,
    refuse_non_finite,
    solve_dtype,
    unit_roundoff,
    with_residual,
)
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["INACTIVATION", "PeelingCode", "decodes_when_complete", "index_list"]

INACTIVATION = 128
"""Default size of the dense solve: its test takes a few milliseconds, once."""

_WORTHLESS = 1e-2
"""Predicted relative error at which an answer is refused even if no tolerance was given."""


def index_list(label: str, values: Sequence[int] | Array) -> Array:
    """Return a list of indices, ascending.

    Raises
    ------
    InputError
        If they are not whole numbers.
    """
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{label} must be lists of integers, got {values!r}")
    return np.sort(array.astype(np.int64))


def solvable_residual(equations: Equations, present: Array, known: Array, most: int) -> Residual | None:
    """Return what peeling left over, or None if that is more than ``most`` unknowns or does not determine them."""
    if np.count_nonzero(~known) > most:
        return None
    residual = Residual.of(equations, present, known)
    return residual if residual.full_rank else None


def decodes_when_complete(equations: Equations, inactivation: int) -> bool:
    """Whether all messages together determine the source blocks."""
    present = np.ones(len(equations), dtype=bool)
    known = make_schedule(equations, present, "breadth-first").known
    return bool(known[: equations.k].all()) or solvable_residual(equations, present, known, inactivation) is not None


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Blocks that messages carry unchanged, the others, and how to compute those."""

    direct: dict[int, int]
    lost: list[int]
    plan: PeelPlan
    unknown: tuple[int, ...] = ()
    rounds: int = 0

    def used(self) -> list[int]:
        return sorted({*self.direct.values(), *self.plan.used})

    def errors(self, k: int) -> tuple[float, float, float]:
        """Return the mean squares that rounding of messages and of the decoder lead to, and the largest of them."""
        noise, own = self.plan.noise, self.plan.own
        largest = float((noise + own).max()) if self.lost else 1.0
        return (float(noise.sum()) + len(self.direct)) / k, float(own.sum()) / k, largest


class PeelingCode(Code):
    """A code given by sparse equations with coefficients one.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of source blocks.
    inactivation
        Unknown blocks that peeling may leave to a dense solve; 0 for peeling alone.
    order
        In which order to peel, see `make_schedule`.
    """

    guard = GUARD

    def __init__(self, n_workers: int, k: int, *, inactivation: int, order: Order) -> None:
        super().__init__(n_workers, k)
        self.inactivation = check_whole("inactivation", inactivation, 0)
        if order not in {"breadth-first", "minimum-variance"}:
            raise InputError(f"order must be 'breadth-first' or 'minimum-variance', got {order!r}")
        self.order: Order = order

    @property
    @abstractmethod
    def equations(self) -> Equations:
        """The equations that messages and blocks satisfy."""

    def source_of(self, message: int) -> int | None:
        """Index of the block that ``message`` carries unchanged, or None if it is a sum."""
        check_message(message, self.n_messages)
        block = int(self.equations.carried[message])
        return None if block < 0 else block

    def tracker(self) -> PeelTracker:
        """Make a fresh tracker."""
        return PeelTracker(self.equations, self.inactivation)

    def known_blocks(self, messages: Iterable[int]) -> tuple[int, ...]:
        """Source blocks that these messages already determine."""
        tracker = self.tracker()
        for i in messages:
            tracker.add(i)
        missing = set(tracker.missing())
        return tuple(j for j in range(self.k) if j not in missing)

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        Further messages shorten the chains of eliminations: at the first decodable moment a few percent more can
        improve single precision by orders of magnitude.

        Raises
        ------
        NotDecodableError
            If the messages do not determine every source block.
        """
        return self._certificate(self._pattern(sorted(set(messages))), promoted(np.dtype(dtype)))

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Peel, breadth first unless the code says otherwise, and solve what is left; see `Code.decode`.

        The same set of messages gives bit-identical blocks in whatever order they arrived. Messages that were not
        needed are compared with the answer on a sample of columns.

        Raises
        ------
        InputError
            Also if a message that was combined holds NaN or infinity; names it.
        """
        got = receive(values, self.n_messages)
        pattern = self._pattern(got.ids)
        certificate = self._certificate(pattern, got.dtype)
        refuse_inaccurate(
            self.name, certificate.predicted_error, _WORTHLESS if tolerance is None else tolerance, got.ids
        )
        output = Output.prepare(out, (self.k, *got.shape), got.dtype)
        self._run(pattern, got, output, solve_dtype(got.dtype, certificate))
        surplus = len(got.ids) - self.k
        if surplus > 0:
            residual = self._mismatch(got, output, set(certificate.used), scale)
            limit = max(tolerance or 0.0, default_tolerance(got.dtype), certificate.predicted_error)
            refuse_mismatch(self.name, residual, limit, surplus)
            certificate = with_residual(certificate, residual, surplus)
        return output.finish(), certificate

    def _run(self, pattern: _Pattern, got: Received, output: Output, dtype: np.dtype[Any]) -> None:
        """Fill the output: copy what arrived unchanged, compute the rest."""
        used = pattern.used()
        rows = dict(zip(used, got.rows(used, got.dtype), strict=True))
        pattern.plan.run(rows, output.rows(range(self.k)), dtype, pattern.direct)
        refuse_non_finite(got, [output.array] if 2 * len(pattern.lost) > self.k else output.rows(pattern.lost), 0.0)

    def _mismatch(self, got: Received, output: Output, used: set[int], scale: float) -> float:
        """Encode a sample of columns again and compare with the messages that the answer was not made of."""
        compared = [i for i in got.ids if i not in used]
        compared = compared or [i for i in got.ids if self.equations.carried[i] < 0]
        if not compared:
            return 0.0
        blocks = output.array.reshape(self.k, -1)
        columns = sample_columns(blocks.shape[1])
        expected = self.encode(np.ascontiguousarray(blocks[:, columns]), messages=compared)
        received = np.stack([got.values[i].reshape(-1)[columns] for i in compared])
        return mismatch(expected, received, scale)

    def _pattern(self, ids: Sequence[int]) -> _Pattern:
        """Work out how to compute every block."""
        direct, lost = self._direct(ids)
        present = self.equations.present(ids)
        schedule = make_schedule(self.equations, present, self.order)
        residual = None
        if not schedule.known[lost].all():
            residual = solvable_residual(self.equations, present, schedule.known, self.inactivation)
            if residual is None:
                raise self._not_decodable(ids)
        return _Pattern(direct, lost, plan_peel(self.equations, schedule, lost, residual))

    def _partial_pattern(self, ids: Sequence[int], rounds: int | None) -> _Pattern:
        """Work out how to compute the blocks that so many rounds of peeling determine."""
        direct, lost = self._direct(ids)
        schedule = make_schedule(self.equations, self.equations.present(ids), "breadth-first", rounds)
        found = [j for j in lost if schedule.known[j]]
        unknown = tuple(j for j in lost if not schedule.known[j])
        return _Pattern(direct, found, plan_peel(self.equations, schedule, found), unknown, len(schedule.bounds) - 2)

    def _direct(self, ids: Sequence[int]) -> tuple[dict[int, int], list[int]]:
        """Return which message carries which block unchanged, and the other blocks."""
        messages = np.asarray(ids, dtype=np.int64)
        for i in messages[(messages < 0) | (messages >= self.n_messages)][:1].tolist():
            check_message(i, self.n_messages)
        carried = self.equations.carried[messages]
        blocks, first = np.unique(carried, return_index=True)
        direct = {j: i for j, i in zip(blocks.tolist(), messages[first].tolist(), strict=True) if j >= 0}
        return direct, [j for j in range(self.k) if j not in direct]

    def _not_decodable(self, ids: Sequence[int]) -> Exception:
        tracker = self.tracker()
        for i in ids:
            tracker.add(i)
        hint = "wait for more results"
        if len(ids) == self.n_messages:
            hint = "nothing more can come: make the code with more redundancy"
        return not_decodable(self.name, len(ids), tracker.missing(), hint)

    def _certificate(self, pattern: _Pattern, dtype: np.dtype[Any]) -> Certificate:
        used = tuple(pattern.used())
        if not pattern.lost:
            return Certificate("systematic", used=used)
        noise, own, largest = pattern.errors(self.k)
        roundoff = TYPICAL * unit_roundoff(dtype)
        predicted = roundoff * (noise + own) ** 0.5
        warning = accuracy_warning(predicted, dtype)
        if warning:  # then the sums are taken in double precision
            predicted = math.hypot(noise**0.5 * roundoff, own**0.5 * unit_roundoff(np.dtype(np.float64)))
        if not np.isfinite(pattern.plan.condition):
            predicted = np.inf
        return Certificate(
            "inactivation" if pattern.plan.unknowns else "peel",
            used=used,
            amplification=max(largest**0.5, pattern.plan.condition),
            predicted_error=predicted,
            unknowns=pattern.plan.unknowns,
            warning=warning,
        )
