"""A waiting policy for all rounds of a stretch of code, whatever objects compute in it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from serverless_gc.codes.base import Code
from serverless_gc.types import WaitPolicy

__all__ = ["PolicyFactory", "asked_policy", "waiting"]

PolicyFactory: TypeAlias = Callable[[Code], WaitPolicy]

_ASKED: contextvars.ContextVar[PolicyFactory | None] = contextvars.ContextVar("serverless_gc_policy", default=None)


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
