"""The functions most people need: no logic here, only the way to a session and its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from serverless_gc.background import blocking, homed
from serverless_gc.codes.base import Code
from serverless_gc.data.coded import CodedData, Reduction
from serverless_gc.data.encoded import EncodedData
from serverless_gc.data.gradient import GradientData, OnUndecodable
from serverless_gc.data.polynomial import PolynomialData
from serverless_gc.data.strategy import Strategy
from serverless_gc.errors import InputError
from serverless_gc.matmul import choose_matmul_code, multiply
from serverless_gc.prepare import refuse_gradient_code, refuse_unknown
from serverless_gc.session import Session, current_session, default_session
from serverless_gc.worker.losses import Loss

__all__ = [
    "coded_gradient",
    "coded_gradient_async",
    "coded_matmul",
    "coded_matmul_async",
    "coded_matvec",
    "coded_matvec_async",
]

KEPT_DATA_SETS = 4
"""How many encoded data sets calls without a session of their own keep for the next call."""

_TAKES: dict[type, tuple[frozenset[str], str]] = {
    CodedData: (frozenset({"sample_weight", "strategy", "on_undecodable"}), "a data code, whose answer is exact"),
    GradientData: (
        frozenset({"sample_weight", "max_error", "wait", "on_undecodable", "decoder"}),
        "a gradient code, which takes one round",
    ),
    EncodedData: (frozenset({"wait"}), "encoded optimization"),
    PolynomialData: (frozenset(), "a code for least squares, which takes one round"),
}
"""Options of a gradient that not every kind of code takes, and what to call the kind."""


async def coded_gradient_async(
    X: Any,
    y: Any,
    w: Any,
    code: str | Code = "auto",
    *,
    loss: str | Loss | Callable[..., Any] = "squared",
    reduction: Reduction = "sum",
    l2: float = 0.0,
    sample_weight: Any = None,
    max_error: float | None = None,
    wait: int | None = None,
    on_undecodable: OnUndecodable = "raise",
    decoder: str = "optimal",
    strategy: Strategy = "auto",
    n_workers: int | None = None,
    k: int | None = None,
    backend: str | None = None,
    session: Session | None = None,
    with_report: bool = False,
    deadline: float | None = None,
    **params: Any,
) -> Any:
    """Compute the gradient of a loss from coded blocks, without waiting for stragglers.

    The data are encoded on the first call; a repeated call with the same ``X`` encodes and uploads nothing.

    Parameters
    ----------
    X
        ``(n, p)``: array of any layout and numeric dtype, ``np.memmap``, CSR or CSC, or a data frame.
    y
        ``(n,)`` or ``(n, c)`` targets or labels.
    w
        ``(p,)`` or ``(p, c)``: where to compute the gradient.
    code
        A name of `serverless_gc.codes.available`, a code object, or ``"auto"``: polar for dense data, for sparse
        data a code that does not fill the blocks in. Data codes serve losses of ``X @ w``, gradient codes any loss.
    loss
        ``"squared"`` (``0.5 * ||X w - y||**2``), ``"logistic"``, ``"softmax"``, ``"poisson"``, ``"huber"`` or
        ``"squared_hinge"``; with a gradient code also a function ``loss(X_part, y_part, w) -> gradient``, see
        `GradientData.value_and_gradient`.
    reduction
        ``"sum"`` over the rows or ``"mean"``.
    l2
        Adds ``0.5 * l2 * ||w||**2``.
    sample_weight
        ``(n,)`` weights of the rows.
    max_error, wait, on_undecodable
        With a gradient code: the squared error per partition that is good enough, the number of results to wait for at
        most, and whether to ``"raise"`` or to ``"approximate"`` when neither is reached in time.
    decoder
        With a gradient code: how results are weighted, ``"optimal"``, ``"lstsq"``, ``"one-step"``, ``"algorithmic"`` or
        another of the code's, see `GradientData.value_and_gradient`.
    strategy
        With a data code: one coded round or two, see `CodedData.value_and_gradient`.
    n_workers, k
        Number of workers and of source blocks; by default 16 workers at rate 3/4.
    backend
        ``"local"``, ``"processes"``, ``"aws"`` or ``"simulated"``; default: the ``with`` block's session, then the
        settings.
    session
        Where to run instead.
    with_report
        Also return the `Report`.
    deadline
        Seconds after which the call fails.
    **params
        Further parameters of the code.

    Returns
    -------
    array or (array, Report)
        The gradient, of the shape of ``w``, fresh and writable.

    Raises
    ------
    InputError
        If an argument is wrong; nothing was stored or invoked.
    NotDecodableError, DeadlineExceeded
        If too few results arrived (in time).

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> y, w = np.ones(6), np.array([0.5, -0.5])
    >>> g = sgc.coded_gradient(X, y, w, code="polar", n_workers=8, k=4)
    >>> np.allclose(g, X.T @ (X @ w - y))
    True
    """
    chosen = _session(session, backend)
    refuse_unknown("coded_gradient", code, params, coded_gradient_async, chosen.encode_async)
    if y is None:
        raise InputError("coded_gradient needs y; for a plain product use coded_matvec")
    data = await chosen.encode_async(X, y, code=code, n_workers=n_workers, k=k, **params)
    options: dict[str, Any] = {
        "loss": loss,
        "reduction": reduction,
        "l2": l2,
        "with_report": with_report,
        "deadline": deadline,
    }
    special = {
        "sample_weight": (sample_weight, sample_weight is not None),
        "max_error": (max_error, max_error is not None),
        "wait": (wait, wait is not None),
        "on_undecodable": (on_undecodable, on_undecodable != "raise"),
        "decoder": (decoder, decoder != "optimal"),
        "strategy": (strategy, strategy != "auto"),
    }
    taken, kind = _TAKES[type(data)]
    for name, (value, given) in special.items():
        if name in taken:
            options[name] = value
        elif given:
            raise InputError(f"{name}= does not go with {data.code.name!r}, {kind}: leave it out or take another code")
    result = await data.gradient_async(w, **options)
    await _forget_old(chosen, session)
    return result


async def coded_matvec_async(
    A: Any,
    x: Any,
    code: str | Code = "auto",
    *,
    n_workers: int | None = None,
    k: int | None = None,
    backend: str | None = None,
    session: Session | None = None,
    with_report: bool = False,
    deadline: float | None = None,
    **params: Any,
) -> Any:
    """Compute ``A @ x`` from coded blocks of ``A``, without waiting for stragglers.

    Parameters
    ----------
    A
        ``(m, p)``: array of any layout and numeric dtype, ``np.memmap``, CSR or CSC, or a data frame.
    x
        ``(p,)`` or ``(p, c)``.
    code, n_workers, k, backend, session, with_report, deadline, **params
        As for `coded_gradient`.

    Returns
    -------
    array or (array, Report)
        ``(m,)`` or ``(m, c)``, fresh and writable.

    Raises
    ------
    InputError
        If an argument is wrong; nothing was stored or invoked.
    NotDecodableError, DeadlineExceeded
        If too few results arrived (in time).

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> A = np.arange(20.0).reshape(10, 2)
    >>> sgc.coded_matvec(A, np.array([1.0, 2.0]), code="mds", n_workers=6, k=4).round(9)
    array([ 2.,  8., 14., 20., 26., 32., 38., 44., 50., 56.])
    """
    chosen = _session(session, backend)
    refuse_gradient_code(code)
    refuse_unknown("coded_matvec", code, params, coded_matvec_async, chosen.encode_async)
    data = await chosen.encode_async(A, code=code, n_workers=n_workers, k=k, **params)
    assert isinstance(data, CodedData)  # noqa: S101 - codes that give no products were refused
    result = await data.matvec_async(x, with_report=with_report, deadline=deadline)
    await _forget_old(chosen, session)
    return result


async def coded_matmul_async(
    A: Any,
    B: Any,
    code: str | Code = "khatri-rao",
    *,
    n_workers: int | None = None,
    p: int | None = None,
    q: int | None = None,
    backend: str | None = None,
    session: Session | None = None,
    with_report: bool = False,
    deadline: float | None = None,
    **params: Any,
) -> Any:
    """Compute ``A @ B`` from coded blocks of both, without waiting for stragglers.

    Each worker multiplies one block of ``A`` by one of ``B``. Blocks are stored for this one call and then removed.

    Parameters
    ----------
    A, B
        ``(m, l)`` and ``(l, c)``: dense arrays of any layout and numeric dtype, ``np.memmap``, or data frames.
    code
        ``"khatri-rao"`` (any ``p q`` results decode), another name of kind ``"matmul"`` of
        `serverless_gc.codes.available`, or a code object.
    n_workers
        Number of workers; 16 by default, or as many as ``p`` and ``q`` need.
    p, q
        Into how many blocks the rows of ``A`` and the columns of ``B`` are cut. Codes that cut the inner dimension
        instead, such as ``"ortho-matdot"``, take ``k`` for it.
    backend, session, with_report, deadline
        As for `coded_gradient`.
    **params
        Further parameters of the code.

    Returns
    -------
    array or (array, Report)
        ``(m, c)``, fresh and writable, float64 or complex128.

    Raises
    ------
    InputError
        If an argument is wrong; nothing was stored or invoked.
    NotDecodableError, DeadlineExceeded
        If too few results arrived (in time).

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> A, B = np.arange(12.0).reshape(4, 3), np.arange(15.0).reshape(3, 5)
    >>> np.allclose(sgc.coded_matmul(A, B, n_workers=6, p=2, q=2), A @ B)
    True
    """
    chosen = _session(session, backend)
    refuse_unknown("coded_matmul", code, params, coded_matmul_async)
    made = choose_matmul_code(code, {"n_workers": n_workers, "p": p, "q": q}, params)
    product, report = await homed(multiply)(chosen, A, B, made, deadline)
    return (product, report) if with_report else product


def _session(session: Session | None, backend: str | None) -> Session:
    """Choose where to run: argument, then the ``with`` block around the call, then the settings."""
    if session is not None:
        if backend is not None and backend != session.backend:
            raise InputError(f"backend={backend!r} contradicts the session's {session.backend!r}; give one of them")
        return session
    current = current_session()
    if current is not None and backend in {None, current.backend}:
        return current
    return default_session(backend)


async def _forget_old(chosen: Session, given: Session | None) -> None:
    if given is None and chosen is not current_session():
        await homed(chosen.keep)(KEPT_DATA_SETS)


coded_gradient = blocking(coded_gradient_async)
coded_matmul = blocking(coded_matmul_async)
coded_matvec = blocking(coded_matvec_async)
