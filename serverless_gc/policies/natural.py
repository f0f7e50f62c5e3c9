"""The rule that a code waits by unless told otherwise."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Code
from serverless_gc.codes.gradient.base import GradientCode
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.policies.decodable import UntilDecodable
from serverless_gc.policies.error import UntilError
from serverless_gc.policies.tree import UntilTree
from serverless_gc.types import WaitPolicy

__all__ = ["approximate_policy", "natural_policy"]


def natural_policy(code: Code, tolerance: float | None = None, dtype: DTypeLike = np.float64) -> WaitPolicy:
    """Return the rule that a code waits by unless told otherwise.

    Exact codes wait until they can decode, in a tree from the leaves up. Ill-conditioned ones, or all if there is a
    ``tolerance``, wait on while the predicted error of messages of this ``dtype`` is too large: for a few results to
    improve it, and for all that can come while it is above ``tolerance``, or doubtful if there is none. Approximate
    codes wait for as many results as they say (`GradientCode.awaited`), or until the answer is exact.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> natural_policy(get("mds", n_workers=4, k=3))  # doctest: +ELLIPSIS
    <serverless_gc.policies.decodable.UntilDecodable object at ...>
    """
    if isinstance(code, CodedReduceCode):
        return UntilTree(code)
    if isinstance(code, GradientCode) and not code.exact:
        return approximate_policy(code, wait=code.awaited or code.n_workers)
    return UntilDecodable(code, tolerance=tolerance, bound=tolerance, dtype=dtype)


def approximate_policy(code: GradientCode, *, max_error: float | None = None, wait: int | None = None) -> WaitPolicy:
    """Return the rule that takes an approximate answer: see `UntilError`, and `UntilTree` for a tree.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> type(approximate_policy(get("coded-reduce", n_workers=12), wait=2)).__name__
    'UntilTree'
    """
    if isinstance(code, CodedReduceCode):
        return UntilTree(code, max_error=max_error, wait=wait)
    return UntilError(code, max_error=max_error, wait=wait)
