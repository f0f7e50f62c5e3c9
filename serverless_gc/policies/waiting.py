"""A waiting policy for all rounds of a stretch of code, whatever objects compute in it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, TypeAlias

from serverless_gc.codes.base import Code
from serverless_gc.errors import InputError
from serverless_gc.types import WaitPolicy

__all__ = ["PolicyFactory", "as_factory", "asked_policy", "waiting"]

PolicyFactory: TypeAlias = Callable[[Code], WaitPolicy]

_ASKED: contextvars.ContextVar[PolicyFactory | None] = contextvars.ContextVar("serverless_gc_policy", default=None)


_MEMBERS = ("leftover", "open", "on_arrival", "on_failure", "timer", "on_timer")
"""What a waiting policy has."""

_EXAMPLE = "write policy=FirstK(3), or policy=lambda code: FirstK(code.n_workers - 2)"


def as_factory(policy: Any) -> PolicyFactory | None:
    """Return the function from code to policy that a policy, or such a function, stands for.

    Raises
    ------
    InputError
        If it is neither, or a class that is not made from a code; names what a policy of one's own lacks. What the
        function returns is checked when it is called.

    Examples
    --------
    >>> as_factory("f")
    Traceback (most recent call last):
    ...
    serverless_gc.errors.InputError: policy must be a waiting policy or a function from a code to one, got 'f'; ...
    """
    if policy is None:
        return None
    kind = isinstance(policy, type)
    if not kind and any(hasattr(policy, name) for name in _MEMBERS):
        checked = _checked(policy)
        return lambda _: checked
    if not callable(policy):
        raise InputError(
            f"policy must be a waiting policy or a function from a code to one, got {policy!r}; {_EXAMPLE}"
        )
    try:
        signature(policy).bind(object())
    except TypeError:
        what = f"is the class {policy.__name__}" if kind else f"{policy!r} cannot be called with one argument, the code"
        raise InputError(f"policy {what}, which makes no policy of a code; {_EXAMPLE}") from None
    return lambda code: _checked(policy(code))


def _checked(policy: Any) -> WaitPolicy:
    lacking = [name for name in _MEMBERS if not hasattr(policy, name)]
    if lacking:
        raise InputError(
            f"a {type(policy).__name__} is no waiting policy: it lacks {', '.join(lacking)}, see "
            f"serverless_gc.types.WaitPolicy; {_EXAMPLE}"
        )
    found: WaitPolicy = policy
    return found


@contextmanager
def waiting(policy: PolicyFactory | None) -> Iterator[None]:
    """Have rounds begun inside the block, by this task, wait by this policy; None for what their session says.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> from serverless_gc.policies import WaitAll
    >>> with waiting(lambda code: WaitAll()):
    ...     asked_policy(get("mds", n_workers=4, k=3))
    <serverless_gc.policies.firstk.WaitAll object at ...>
    """
    token = _ASKED.set(policy)
    try:
        yield
    finally:
        _ASKED.reset(token)


def asked_policy(code: Code) -> WaitPolicy | None:
    """Make the policy that the innermost `waiting` block asks for; None if there is none."""
    policy = _ASKED.get()
    return None if policy is None else policy(code)
