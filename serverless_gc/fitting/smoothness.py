"""How smooth an objective is, from a few coded products: what a step length is chosen by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import numpy as np

from serverless_gc.data.coded import CodedData
from serverless_gc.data.encoded import EncodedData
from serverless_gc.data.gradient import GradientData
from serverless_gc.data.polynomial import PolynomialData
from serverless_gc.observe import Report
from serverless_gc.prepare import find_loss
from serverless_gc.types import Array, FloatArray

__all__ = ["CURVATURE", "Data", "largest_eigenvalue", "smoothness"]

Data: TypeAlias = CodedData | GradientData | EncodedData | PolynomialData

CURVATURE = {"squared": 1.0, "logistic": 0.25, "softmax": 0.5, "huber": 1.0, "squared_hinge": 2.0}
"""Largest second derivative of a loss with respect to ``X w``; the others have none."""

LOOKS = 8
"""Products with ``X.T X`` for an estimate of its largest eigenvalue."""


async def largest_eigenvalue(apply: Callable[[FloatArray], Awaitable[FloatArray]], p: int, looks: int = LOOKS) -> float:
    """Estimate the largest eigenvalue of a positive semi-definite ``(p, p)`` matrix from above, by Lanczos' method.

    The residual of the Ritz pair is added: the sum exceeds an eigenvalue, in practice the largest one.

    Parameters
    ----------
    apply
        Multiplies by the matrix.
    p
        Its size.
    looks
        Products to make at most.

    Examples
    --------
    >>> import asyncio
    >>> async def apply(v):
    ...     return np.array([1.0, 4.0, 2.0]) * v
    >>> round(asyncio.run(largest_eigenvalue(apply, 3)), 9)
    4.0
    """
    v = np.random.default_rng(0).standard_normal(p)
    basis = [v / np.linalg.norm(v)]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(looks, p)):
        u = await apply(basis[-1])
        diagonal.append(float(u @ basis[-1]))
        known = np.array(basis)
        for _ in range(2):  # once loses orthogonality
            u = u - known.T @ (known @ u)
        beside.append(float(np.linalg.norm(u)))
        if beside[-1] <= 1e-12 * max(diagonal):
            beside[-1] = 0.0
            break
        basis.append(u / beside[-1])
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1))
    residual = beside[-1] * abs(float(vectors[-1, -1])) if len(diagonal) < p else 0.0
    return float(values[-1]) + residual


async def smoothness(
    data: Data, loss: Any, *, l2: float, scale: float, sample_weight: Any, deadline: float | None
) -> tuple[float, Report] | None:
    """Bound the largest eigenvalue of the Hessian, wherever it is taken.

    Parameters
    ----------
    data
        The data.
    loss
        A name, a loss object, or a function.
    l2, sample_weight
        Of the objective.
    scale
        What the sum over the rows is multiplied by.
    deadline
        Seconds for each product.

    Returns
    -------
    (float, Report) or None
        None where no bound is known: the loss is a function, or its curvature has none.
    """
    if callable(loss) and not hasattr(loss, "residual"):
        return None
    curvature = CURVATURE.get(find_loss(loss).name)
    if curvature is None:
        return None
    cost = Report(rounds=0)

    def spent(report: Report) -> None:
        nonlocal cost
        cost = cost.merge(report)

    apply = _products(data, spent, deadline) if isinstance(data, CodedData) else await _slopes(data, spent, deadline)
    largest = await largest_eigenvalue(apply, data.n_cols)
    heaviest = 1.0 if sample_weight is None else float(np.max(sample_weight))
    return curvature * heaviest * scale * largest + l2, cost


def _products(
    data: CodedData, spent: Callable[[Report], None], deadline: float | None
) -> Callable[[FloatArray], Awaitable[FloatArray]]:
    async def apply(v: FloatArray) -> FloatArray:
        z, first = await data.matvec_async(v, with_report=True, deadline=deadline)
        u, second = await data.rmatvec_async(z.conj(), with_report=True, deadline=deadline)
        spent(first)
        spent(second)
        return np.asarray(u.real, dtype=float)

    return apply


async def _slopes(
    data: GradientData | EncodedData | PolynomialData, spent: Callable[[Report], None], deadline: float | None
) -> Callable[[FloatArray], Awaitable[FloatArray]]:
    """Multiply by ``X.T X`` through gradients of the squared loss: at a point, less that at the origin."""
    options: dict[str, Any] = {} if data.code.exact else {"wait": data.code.n_workers}  # the same workers every time

    async def slope(v: Array) -> FloatArray:
        g, report = await data.gradient_async(v, loss="squared", with_report=True, deadline=deadline, **options)
        spent(report)
        return np.asarray(g.real, dtype=float)

    # What is kept under a name may have been opened without y.
    y = data.moments[0] if isinstance(data, PolynomialData) else None if isinstance(data, EncodedData) else data.y
    outputs = None if y is None or y.ndim == 1 else y.shape[1]
    at_origin = await slope(np.zeros(data.n_cols if outputs is None else (data.n_cols, outputs)))

    async def apply(v: FloatArray) -> FloatArray:
        point = v if outputs is None else np.repeat(v[:, None], outputs, axis=1)
        difference = (await slope(point)) - at_origin
        return difference if outputs is None else difference[:, 0]

    return apply
