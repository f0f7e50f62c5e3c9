"""What policies that wrap another one have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from serverless_gc.policies.words import check_inner
from serverless_gc.types import Act, Array, FollowsSteps, SeesPartials, TaskSpec, Update, View, Wait, WaitPolicy

__all__ = ["Explains", "Following"]


@runtime_checkable
class Explains(Protocol):
    """A policy that can say what it still waits for."""

    def explain(self) -> str:
        """Say what is missing."""
        ...


class Following:
    """Base of policies that follow an inner one: its ``leftover``, and its timer told apart from one's own."""

    leftover: Literal["cancel", "keep"]

    def __init__(self, inner: WaitPolicy) -> None:
        check_inner(self, inner)
        self.inner = inner
        self.leftover = inner.leftover
        self._asked = -1.0

    def explain(self) -> str:
        """Say what the inner policy still waits for; empty if it does not tell."""
        return self.inner.explain() if isinstance(self.inner, Explains) else ""

    @property
    def answerable(self) -> bool:
        """Whether the inner policy says that what arrived determines the answer, though it waits on."""
        return bool(getattr(self.inner, "answerable", False))

    def on_partial(self, view: View, task: TaskSpec, messages: Sequence[int]) -> Act:
        """Ask the inner policy, if it looks at partial results."""
        return self.inner.on_partial(view, task, messages) if isinstance(self.inner, SeesPartials) else Wait()

    def after_step(self, before: Array, after: Array, update: Update) -> None:
        """Tell the inner policy of a step, if it wants to know."""
        if isinstance(self.inner, FollowsSteps):
            self.inner.after_step(before, after, update)

    def _restart(self) -> None:
        self._asked = -1.0

    def _inner_timer(self, view: View) -> float | None:
        """When the inner policy wants to be asked next.

        A time it has had is no news: repeated, it must not hide one's own timer.
        """
        due = self.inner.timer(view)
        return None if due is None or due <= self._asked else due

    def _inner_on_timer(self, view: View) -> Act:
        """Ask the inner policy if it is its time; the timer may have been one's own."""
        due = self._inner_timer(view)
        if due is None or view.now < view.round_start + due:
            return Wait()
        self._asked = due
        return self.inner.on_timer(view)
