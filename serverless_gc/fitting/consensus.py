"""What a decentralized training found, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serverless_gc.fitting.result import Account
from serverless_gc.observe import Report
from serverless_gc.types import Array, FloatArray

__all__ = ["DecentralizedFit", "Traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the workers asked of the store.

    Attributes
    ----------
    gets, puts
        Requests for states and mail; partitions are read besides, and kept by warm workers.
    bytes_read, bytes_written
        Of all objects, partitions included.
    rebuilt
        Messages that were not there and were made again from their sender's state.
    resumed
        Repeated rounds whose state an earlier attempt had stored.
    """

    gets: int = 0
    puts: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    rebuilt: int = 0
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class DecentralizedFit:
    """What nodes found that share models with their neighbours alone.

    Attributes
    ----------
    w
        The mean of the nodes' models, of the shape of ``w0``.
    models
        The model of each node, or with ``"lasgd"`` of each group, ``(n, *w0.shape)``.
    rounds
        Rounds that each node made; with ``"lasgd"`` averages of the groups.
    method
        The scheme.
    gradient_norms
        ``(rounds, n)``: norm of the last gradient of each round of each node or group.
    account
        What it cost in all.
    traffic
        Requests of the workers for states and mail; nothing with ``"lasgd"``, whose models the driver keeps.
    report
        Account of the attempts, without single ones.
    """

    w: Array
    models: Array
    rounds: int
    method: str
    gradient_norms: FloatArray
    account: Account
    traffic: Traffic
    report: Report

    @property
    def disagreement(self) -> float:
        """Largest distance of a model from their mean."""
        return float(max(np.linalg.norm(model - self.w) for model in self.models))

    def summary(self) -> str:
        """Say what was found and what it cost, like a report."""
        traffic = self.traffic
        moved = f"{traffic.bytes_read / 1e6:.3g} MB read, {traffic.bytes_written / 1e6:.3g} MB written"
        lost = f"; {traffic.rebuilt} lost messages made again" if traffic.rebuilt else ""
        return "\n".join(
            [
                f"{self.method}, {len(self.models)} models: {self.rounds} rounds each",
                f"  models   at most {self.disagreement:.3g} from their mean of norm {np.linalg.norm(self.w):.3g}",
                str(self.account),
                f"  store    {traffic.gets} GET and {traffic.puts} PUT by workers, {moved}{lost}",
            ]
        )

    def __str__(self) -> str:
        return self.summary()
