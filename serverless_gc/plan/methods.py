"""Ways of dealing with stragglers, baselines included: a code, its work, and when it stops waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Code
from serverless_gc.codes.registry import code_class, get
from serverless_gc.errors import InputError
from serverless_gc.plan.rounds import shares
from serverless_gc.policies import Speculate, natural_policy
from serverless_gc.types import FloatArray, WaitPolicy

__all__ = ["SPECULATIVE", "Method", "labelled", "method"]

SPECULATIVE = "speculative"
"""The uncoded computation with backup copies of late tasks."""


@dataclass(frozen=True, slots=True)
class Method:
    """A code and whether late tasks are copied.

    Attributes
    ----------
    name
        The code's, or ``"speculative"``.
    code
        The code.
    speculative
        Whether late tasks are copied, `serverless_gc.policies.Speculate`.
    parameters
        Those of the code that were chosen, beside its size.
    """

    name: str
    code: Code
    speculative: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        """Name and chosen parameters, which tell two of one code and size apart."""
        return labelled(self.name, self.parameters)

    def policy(self, dtype: DTypeLike = np.float64) -> WaitPolicy:
        """Make the policy of a round whose messages are of this dtype."""
        until = natural_policy(self.code, dtype=dtype)
        return Speculate(until) if self.speculative else until

    def work(self, unit: float) -> FloatArray:
        """Return the work of each worker's task, where ``unit`` is the share of the data that counts 1."""
        return shares(self.code) / unit


def labelled(name: str, parameters: Mapping[str, Any]) -> str:
    """Write a name with its parameters.

    Examples
    --------
    >>> labelled("mds", {}), labelled("frc", {"stragglers": 2})
    ('mds', 'frc stragglers=2')
    """
    return " ".join([name, *(f"{key}={value}" for key, value in parameters.items())])


def method(name: str, n_workers: int, k: int | None = None, **params: Any) -> Method:
    """Make a method by name.

    Parameters
    ----------
    name
        Of a code, or ``"speculative"``.
    n_workers
        Number of workers.
    k
        Number of blocks. Where it follows from the number of workers (uncoded, speculative, most gradient codes) it is
        that one, whatever is given: look at the code's ``k``.
    **params
        Of the code.

    Raises
    ------
    InputError
        If the name or a parameter is unknown, a code of blocks cannot be made in this size, or the code multiplies
        two coded matrices.

    Examples
    --------
    >>> method("speculative", 8).code
    UncodedCode(n_workers=8, k=8)
    >>> method("mds", 8, 6).work(unit=1 / 8).round(3).tolist()[:2]
    [1.333, 1.333]
    """
    if name == SPECULATIVE:
        return Method(name, get("uncoded", n_workers=n_workers, **params), speculative=True, parameters=params)
    if name == "uncoded":
        k = None
    try:
        code = get(name, n_workers=n_workers, k=k, **params)
    except InputError:
        if k is None or code_class(name).kind == "data":
            raise
        code = get(name, n_workers=n_workers, **params)  # k follows from the others
    if code.kind == "matmul":
        raise InputError(f"{name!r} multiplies two coded matrices; a method computes with one")
    return Method(name, code, parameters=params)
