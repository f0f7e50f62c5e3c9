"""The delays of a training, for a diagnosis of its stragglers and for planning the next one."""

from __future__ import annotations

from collections import deque
from typing import Literal

from serverless_gc.observe import Report
from serverless_gc.stragglers import Trace

__all__ = ["Delays"]

_MOST = 4096
"""Attempts that are remembered, of the newest rounds."""


class Delays:
    """Remembers how long the attempts of the newest rounds took.

    Parameters
    ----------
    leftover
        What becomes of late tasks. Where they are kept, rounds overlap.
    """

    def __init__(self, leftover: Literal["keep", "cancel"]) -> None:
        self._leftover = leftover
        self._reports: deque[Report] = deque()
        self._attempts = 0

    def add(self, report: Report) -> None:
        """Remember the rounds of one gradient."""
        self._reports.append(report)
        self._attempts += len(report.spans)
        while self._attempts - len(self._reports[0].spans) >= _MOST:
            self._attempts -= len(self._reports.popleft().spans)

    def trace(self) -> Trace | None:
        """Return the record; None if no result arrived.

        The rounds of one gradient are of different kinds: a worker does other work in each.
        """
        kinds: list[int] = []
        known: dict[tuple[str, int, int], int] = {}
        for report in self._reports:
            how, rounds = report.strategy.partition(":")[0], len({span.round for span in report.spans})
            kinds += [known.setdefault((how, rounds, place), len(known)) for place in range(rounds)]
        if not any(span.fate in {"used", "surplus"} for report in self._reports for span in report.spans):
            return None
        overlapping = self._leftover == "keep"
        return Trace.from_reports(self._reports, kinds=kinds, leftover=self._leftover, overlapping=overlapping)
