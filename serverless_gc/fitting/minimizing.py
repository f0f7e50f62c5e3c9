"""`minimize`: one loop for every method, each step one coded gradient or a few of a line search."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from serverless_gc.background import blocking, homed
from serverless_gc.codes.manifests import manifest_to_bytes
from serverless_gc.data.coded import CodedData, Reduction
from serverless_gc.data.curvature import Curvature
from serverless_gc.data.encoded import EncodedData
from serverless_gc.data.gradient import GradientData
from serverless_gc.data.gradient_call import AnyLoss
from serverless_gc.data.polynomial import PolynomialData
from serverless_gc.errors import InputError
from serverless_gc.fitting.evaluate import Evaluations, check_policy, exact_rounds
from serverless_gc.fitting.loop import Limits, Loop
from serverless_gc.fitting.methods import Fisher, Rule, SecondOrder, plan, words
from serverless_gc.fitting.result import Fit, Iterate
from serverless_gc.fitting.saved import Place
from serverless_gc.fitting.smoothness import Data
from serverless_gc.fitting.stale import StaleLoop
from serverless_gc.optim.line_search import Searching
from serverless_gc.optim.proximal import Prox
from serverless_gc.optim.schedules import Rate
from serverless_gc.policies.waiting import PolicyFactory, as_factory
from serverless_gc.prepare import check_number, check_point, check_seconds, check_whole
from serverless_gc.refusals import unknown_argument
from serverless_gc.types import Array, WaitPolicy

__all__ = ["minimize", "minimize_async"]

_OPTIONS = frozenset().union(
    *(signature(kind.value_and_gradient_async).parameters for kind in (CodedData, GradientData, EncodedData))
)
"""What some kind of data takes."""


@homed
async def minimize_async(
    data: Data,
    w0: Any,
    *,
    method: str | Rule = "nesterov",
    loss: AnyLoss = "squared",
    l2: float = 0.0,
    l1: float = 0.0,
    prox: Prox | None = None,
    reduction: Reduction = "sum",
    sample_weight: Any = None,
    lr: Rate | str | None = None,
    sketch_rows: int | None = None,
    fisher: Fisher = "diagonal",
    damping: float = 0.0,
    policy: WaitPolicy | PolicyFactory | None = None,
    max_rounds: int = 200,
    tolerance: float = 1e-6,
    change: float = 0.0,
    seconds: float | None = None,
    callback: Callable[[Iterate], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1,
    resume: bool = True,
    seed: int = 0,
    **options: Any,
) -> Fit:
    """Minimize a loss over encoded data; every gradient is a coded one.

    Parameters
    ----------
    data
        What `Session.encode` gave, with ``y``.
    w0
        Where to begin: ``(n_cols,)``, ``(n_cols, c)``, or for a function of one's own any shape.
    method
        ``"nesterov"``, ``"gradient-descent"``, ``"momentum"``, ``"adam"``, ``"amsgrad"``, ``"dual-averaging"``,
        ``"lbfgs"``, ``"sketched-newton"``, ``"natural-gradient"``; with ``l1`` or ``prox`` ``"proximal"`` or
        ``"fista"``; or an optimizer of `serverless_gc.optim`. Sketched Newton and natural gradients spend one more
        round a step on the curvature of the loss, see ``data.curvature``, but for diagonal Fisher matrices of gradient
        codes, which come along with gradients. They take real weights ``(n_cols,)``, any named loss but ``"softmax"``,
        and any data code or gradient code.
    loss, l2, reduction, sample_weight
        The objective, as for ``data.value_and_gradient``.
    l1
        Adds ``l1 * ||w||_1``; not divided by the number of rows.
    prox
        Proximal map ``prox(x, step)`` of another part that is not smooth, such as `serverless_gc.optim.box`.
    lr
        Step length: a number, a function of the step's number, ``"lipschitz"`` (one over the curvature, estimated by a
        few coded products beforehand) or ``"backtracking"`` (a line search; ``"gradient-descent"``, ``"nesterov"``,
        ``"proximal"`` and ``"fista"``). None takes the first where the curvature of the loss is bounded, else the
        second; Adam and AMSGrad take their own default. L-BFGS always searches; sketched Newton and natural gradients
        do unless a number is given, whose unit is the full step; where answers are approximate give one, since values
        that err mislead a search.
    sketch_rows
        Rows of the sketch of the Hessian with ``"sketched-newton"``, 10 for each column by default, at most ``n_rows``,
        with which it is exact; a new sketch for every step. With ``"natural-gradient"`` on a data code likewise. A
        worker of a data code returns its columns of the sketch, one of a gradient code all of it: there
        ``fisher="full"``, the same matrix unsketched, is the smaller message.
    fisher
        With ``"natural-gradient"``: ``"diagonal"``, the mean squares of the gradients of single rows, exact with
        gradient codes and estimated by a sketch with data codes; or ``"full"``, ``X.T D X`` with the second derivatives
        of the loss, for gradient codes.
    damping
        With these two: added to the diagonal of the Hessian or Fisher matrix, as ``l2`` is.
    policy
        When rounds stop waiting: a policy, or a function from code to policy, for every round. Exact codes are waited
        for until they can decode all the same, unless ``on_undecodable="approximate"`` is given. With policies that
        keep tasks in flight (`KAsync`, `KBatchAsync`) gradients are stale; for gradient codes.
    max_rounds
        Steps to make at most, those before a resumption included. A step is one coded gradient, more in a line search.
    tolerance
        Stop when the norm of the gradient is at most this times that at the start; 0 for never.
    change
        Stop when a step moves by at most this times the norm of the weights; 0 for only when it does not move at all.
    seconds
        Stop after so many seconds of rounds, on the clock of the backend. A round cut short by this is not accounted.
    callback
        Told each step, in a thread of its own; stops the run by returning True.
    progress
        Show a bar with the objective's value.
    checkpoint
        A file, or a URL ``file://...`` or ``s3://bucket/name``, that keeps the state after steps. If it is there the
        run goes on from it: with the same arguments, to the same weights as without an interruption (bit for bit if the
        same results arrive, as on the simulated backend). Policies, deadlines and limits may differ. With stale
        gradients what was in flight goes on as well on the simulated backend, with the models it was issued for, and
        the weights are the same, unless the policy has a memory of its own (`Stateful`) or leaves results unconsumed.
        Elsewhere the steps made, the weights and the optimizer's state are kept, what was in flight is issued anew
        with the newest model, and the results of the lost attempts are never used; so the steps after a resumption are
        others than they would have been.
    every
        Write it after every so many steps.
    resume
        Whether to take up what is there; else it is overwritten.
    seed
        Of what an asynchronous policy draws, and of sketches.
    **options
        Further options of ``data.value_and_gradient``: ``strategy``, ``on_undecodable``, ``max_error``, ``wait``,
        ``deadline`` of one gradient. With a checkpoint or a line search ``strategy="auto"`` means ``"two-round"``,
        whose rounds do not depend on what was computed before and whose values are as accurate as its gradients.

    Returns
    -------
    Fit
        Weights, history, account and the reason of stopping.

    Raises
    ------
    InputError
        If an argument is wrong or does not go with another, or the checkpoint is of another run.
    NotDecodableError, DeadlineExceeded
        If a round failed; a checkpoint has the steps before it.
    StoreError
        If the checkpoint cannot be read or written.
    numpy.linalg.LinAlgError
        If ``fisher="full"`` meets columns that depend on one another, without ``l2`` or ``damping``.

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> with sgc.Session("simulated") as s:
    ...     data = s.encode(X, X @ [1.0, -2.0, 0.5], code="mds", n_workers=6, k=4)
    ...     fit = sgc.minimize(data, np.zeros(3), method="lbfgs")
    >>> fit.w.round(5), fit.reason
    (array([ 1. , -2. ,  0.5]), 'gradient')
    """
    if not isinstance(data, (CodedData, GradientData, EncodedData, PolynomialData)):
        raise InputError(f"data must be what Session.encode gave, with y; got {type(data).__name__}")
    point = check_point(w0, "w0")
    if point.dtype.kind == "c":
        raise InputError("w0 must be real")
    chosen = plan(method, lr, l1, prox, SecondOrder(l2, damping, fisher))
    needs = getattr(chosen.make(1.0), "needs", "")
    if needs:
        _check_curvature(data, needs, point, chosen.name, loss, reduction, sketch_rows, seed)
    elif sketch_rows is not None:
        raise InputError(f"sketch_rows goes with method='sketched-newton' and 'natural-gradient', got {method!r}")
    limits = _limits(max_rounds, tolerance, change, seconds, every)
    objective: dict[str, Any] = {"loss": loss, "l2": l2, "reduction": reduction, **options}
    if sample_weight is not None:
        objective["sample_weight"] = np.asarray(sample_weight)
    if unknown := {"with_report", "with_squares"} & set(options):
        raise InputError(
            f"{min(unknown)} does not go with minimize: the report is part of the fit, and squares are asked for where "
            "a method needs them"
        )
    taken = set(signature(data.value_and_gradient_async).parameters)
    for word in options:
        if word not in _OPTIONS:
            mine = set(signature(minimize_async).parameters) - {"options"}
            raise InputError(
                unknown_argument("minimize", word, sorted(mine | taken - {"w", "with_report", "with_squares"}))
            )
    if unknown := set(objective) - taken:
        raise InputError(f"{min(unknown)}= does not go with {data.code.name!r}: leave it out or take another code")
    factory = as_factory(policy)
    probe = None if factory is None else factory(data.code)
    if probe is not None:
        check_policy(probe)
    stale = probe is not None and probe.leftover == "keep"
    # One round is less accurate in the value, which searches compare; and when it is chosen depends on the past.
    plain = checkpoint is not None or bool(needs) or isinstance(chosen.make(1.0), Searching)
    if plain and isinstance(data, CodedData) and objective.get("strategy", "auto") == "auto":
        objective["strategy"] = "two-round"
    asked = {"w0": point, "method": method, "lr": lr, "l1": l1, "prox": prox, "seed": seed, **objective}
    if needs:
        asked |= {"sketch_rows": sketch_rows, "fisher": fisher, "damping": damping}
    asked.pop("deadline", None)
    settings = {name: words(value) for name, value in asked.items()}
    settings |= _identity(data)
    loop: Loop = (StaleLoop if stale else Loop)(
        data=data,
        plan=chosen,
        w0=point,
        objective=objective,
        limits=limits,
        settings=settings,
        place=None if checkpoint is None else Place(checkpoint),
        resume=resume,
        callback=callback,
        progress=progress,
        evaluations=Evaluations(
            data,
            objective,
            None if stale else exact_rounds(factory, data, options),
            seconds,
            "keep" if stale else "cancel",
        ),
        policy=factory,
        seed=seed,
        sketch_rows=sketch_rows,
    )
    return await loop.run()


def _check_curvature(
    data: Data, needs: str, w0: Array, method: str, loss: AnyLoss, reduction: str, sketch_rows: int | None, seed: int
) -> None:
    """Raise `InputError` unless the data can tell what a second-order method needs to know."""
    if not isinstance(data, (CodedData, GradientData)):
        raise InputError(
            f"method={method!r} needs the curvature of the loss, which {data.code.name!r} does not give: take "
            "method='lbfgs', or a data code such as 'polar', or a gradient code such as 'frc'"
        )
    shape = (data.n_rows, data.n_cols)
    asked = Curvature.checked(needs, w0, shape, data.y, loss, reduction, sketch_rows, (seed,))
    if isinstance(data, CodedData):
        asked.check_columns()


def _limits(max_rounds: int, tolerance: float, change: float, seconds: float | None, every: int) -> Limits:
    steps, saved = check_whole("max_rounds", max_rounds, 1), check_whole("every", every, 1)
    for name, share in (("tolerance", tolerance), ("change", change)):
        if not 0 <= check_number(name, share) < np.inf:
            raise InputError(f"{name} must be a finite number of at least 0, got {share!r}")
    if seconds is not None:
        check_seconds("seconds", seconds)
    return Limits(steps, float(tolerance), float(change), saved)


def _identity(data: Data) -> dict[str, str]:
    """Say which data and code a run is about."""
    code = words(np.frombuffer(manifest_to_bytes(data.code.manifest()), np.uint8)).split()[-1]
    return {
        "X": data.fingerprint,
        "y": data.targets if isinstance(data, EncodedData | PolynomialData) else words(data.y),
        "code": f"{data.code.name} ({data.code.n_workers} workers, k = {data.code.k}, {code})",
    }


minimize = blocking(minimize_async)
