"""When the answer of a gradient code is good enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.errors import InputError
from serverless_gc.policies import UntilError
from serverless_gc.prepare import check_number
from serverless_gc.types import WaitPolicy

__all__ = ["OnUndecodable", "Stop"]

OnUndecodable = Literal["raise", "approximate"]


@dataclass(frozen=True, slots=True)
class Stop:
    """When a round's answer is good enough, see `GradientData.value_and_gradient`."""

    max_error: float | None = None
    wait: int | None = None
    on_undecodable: OnUndecodable = "raise"

    def check(self, code: GradientCode) -> None:
        """Raise `InputError` if it is not one that the code can meet."""
        if self.max_error is not None and not 0 <= check_number("max_error", self.max_error) < np.inf:
            raise InputError(f"max_error must be a finite number of at least 0, got {self.max_error!r}")
        if self.on_undecodable not in {"raise", "approximate"}:
            raise InputError(f"on_undecodable must be 'raise' or 'approximate', got {self.on_undecodable!r}")
        if self.max_error is not None or self.wait is not None:
            self.policy(code)

    def policy(self, code: GradientCode) -> WaitPolicy:
        """Make the waiting policy that these say."""
        return UntilError(code, max_error=self.max_error, wait=self.wait)

    @property
    def given(self) -> bool:
        """Whether they say when to close."""
        return self.max_error is not None or self.wait is not None

    @property
    def approximate(self) -> bool:
        """Whether an answer may be approximate because the caller said so."""
        return self.given or self.on_undecodable == "approximate"
