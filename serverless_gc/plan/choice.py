"""What a planner chooses among: a code in one size with what it takes, or why it was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from serverless_gc.codes.base import Code
from serverless_gc.plan.cost import Cost
from serverless_gc.plan.methods import labelled

__all__ = ["GOALS", "Choice", "Goal", "Refusal"]

Goal = Literal["mean time", "p99", "cost"]
GOALS: tuple[Goal, ...] = ("mean time", "p99", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A code in one size, and what one computation with it takes.

    Attributes
    ----------
    name
        Of the code, or ``"speculative"``.
    parameters
        Of the code, beside its size.
    code
        The code, for ``Session.encode(code=...)``.
    mean, p99
        Seconds of a computation: invocation, delays, decoding, and its part of the encoding that is done once.
    standard_error
        Of the mean.
    cost
        In dollars.
    awaited
        Results awaited in a round, on average.
    work
        Passes over the data that the tasks make together.
    encode, decode
        Seconds that the driver spends on coding: once, and in each computation. Measured on this machine.
    error
        Predicted relative error of the answer, the worst of some random orders: of rounding, or of an approximation,
        see `serverless_gc.codes.threshold.predicted_errors`. None if the code cannot tell.
    """

    name: str
    parameters: Mapping[str, Any] = field(hash=False)
    code: Code
    mean: float
    p99: float
    standard_error: float
    cost: Cost
    awaited: float
    work: float
    encode: float
    decode: float
    error: float | None

    def by(self, goal: Goal) -> float:
        """Return the figure that the goal wants small."""
        return {"mean time": self.mean, "p99": self.p99, "cost": self.cost.total}[goal]

    @property
    def label(self) -> str:
        """Name and parameters."""
        return labelled(self.name, self.parameters)

    @property
    def title(self) -> str:
        """Name, size and parameters."""
        chosen = "".join(f", {key}={value}" for key, value in self.parameters.items())
        return f"{self.name}({self.code.n_workers}, {self.code.k}{chosen})"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A code that was left out: which limit it would break, and why."""

    name: str
    n_workers: int
    k: int
    limit: str
    why: str
