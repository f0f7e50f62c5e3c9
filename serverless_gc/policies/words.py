"""Checks of parameters, and reasons in words, shared by the policies."""

from __future__ import annotations

from collections.abc import Iterable

from serverless_gc.codes.base import Code
from serverless_gc.errors import InputError
from serverless_gc.types import View, WaitPolicy

__all__ = ["check_code", "check_inner", "given_up", "numbers"]


def check_code(policy: object, code: object) -> None:
    """Raise `InputError` unless ``code`` is a code, and show how a policy that is made from one is given."""
    if not isinstance(code, Code):
        name = type(policy).__name__
        raise InputError(f"{name} is made from a code first, got {code!r}; write policy=lambda code: {name}(code, ...)")


def check_inner(policy: object, inner: object) -> None:
    """Raise `InputError` unless ``inner`` is a waiting policy, and show how a policy that follows one is given."""
    if not isinstance(inner, WaitPolicy):
        name = type(policy).__name__
        raise InputError(
            f"{name} is made from another waiting policy, got {inner!r}; write policy=lambda code: "
            f"{name}(UntilDecodable(code), ...)"
        )


def numbers(values: Iterable[int], limit: int = 20) -> str:
    """List numbers, at most ``limit`` of them.

    Examples
    --------
    >>> numbers([1, 2, 3], limit=2)
    '1, 2, ...'
    """
    listed = list(values)
    return ", ".join(map(str, listed[:limit])) + (", ..." if len(listed) > limit else "")


def given_up(view: View, limit: int = 5) -> str:
    """Say which slots were given up and why, at most ``limit`` of them."""
    failures = sorted(view.failures.items())
    words = [f"slot {slot} {kind}: {message}" for slot, (kind, message) in failures[:limit]]
    if len(failures) > limit:
        words.append(f"{len(failures) - limit} more")
    slots = "slot was" if len(failures) == 1 else "slots were"
    return f"{len(failures)} {slots} given up" + (f" ({'; '.join(words)})" if words else "")
