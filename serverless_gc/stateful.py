"""Plug-ins with a memory: what a driver stores next to the model, so that a run can be taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar

from serverless_gc.errors import InputError

__all__ = ["Stateful"]


class Stateful:
    """Base of plug-ins that remember something from update to update.

    ``remembered`` names the attributes; they hold numbers, arrays and containers of these.

    Examples
    --------
    >>> class Counting(Stateful):
    ...     remembered = ("seen",)
    ...
    ...     def __init__(self):
    ...         self.seen = 0
    >>> first, second = Counting(), Counting()
    >>> first.seen = 3
    >>> second.load_state_dict(first.state_dict())
    >>> second.seen
    3
    """

    remembered: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of what is remembered."""
        return {name: deepcopy(getattr(self, name)) for name in self.remembered}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, of a plug-in with the same parameters.

        Raises
        ------
        InputError
            If it is the state of something else.
        """
        if set(state) != set(self.remembered):
            raise InputError(
                f"state must be what {type(self).__name__}.state_dict() returned, with {sorted(self.remembered)}, "
                f"got {sorted(state)}"
            )
        for name in self.remembered:
            setattr(self, name, deepcopy(state[name]))
