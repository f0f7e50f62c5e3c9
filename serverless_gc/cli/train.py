"""``serverless-gc train``: the same model by several optimizers and waiting policies, and what each costs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich import box
from rich.table import Table

from serverless_gc.cli.waits import ANY_CODE, GRADIENT_CODE, Waiting, parse_policy
from serverless_gc.cli.words import check_picture, make_console
from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

if TYPE_CHECKING:
    from serverless_gc.codes.base import Code
    from serverless_gc.fitting import Fit, Iterate
    from serverless_gc.inject import Stragglers
    from serverless_gc.observe.descent import Descent
    from serverless_gc.session import Session

__all__ = ["Trained", "ended_above", "suited", "train"]

L2 = 1e-4
L1 = 1e-5
"""Weight of ``||w||_1`` for the methods that are made for it; so small that losses can be compared."""
SEARCHING = ("lbfgs", "natural-gradient", "sketched-newton")
"""Methods that search for their step lengths, and so take exact values."""
_ROUNDING = 1e-12
"""Losses that differ by less are the same."""
ADAPTIVE_LR = 0.05
"""Step length of the methods whose steps do not scale with the gradient."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One training.

    Attributes
    ----------
    method, policy
        What was asked for.
    fit
        What was found.
    loss
        At the weights found, in NumPy.
    course
        The same after each step, with the seconds and the billed seconds until then.
    """

    method: str
    policy: str
    fit: Fit
    loss: float
    course: tuple[tuple[float, float, float], ...] = ()


def train(
    methods: Annotated[
        str, typer.Option(help="Optimizers, separated by commas, or all.")
    ] = "nesterov,adam,lbfgs,sketched-newton",
    policies: Annotated[
        str,
        typer.Option(
            help="Waiting policies: wait-all, backup (wait-all with copies of late tasks), until-decodable, "
            "until-decodable:MORE, speculate, k-sync:K, deadline:SECONDS, cutoff, cutoff-kalman; with a gradient code "
            "also until-error:ERROR, fresh-k:K, k-async:K, k-batch-async:K. Or all, with numbers that suit the workers."
        ),
    ] = "wait-all,until-decodable,k-sync:14,deadline:0.3,speculate",
    code: Annotated[str, typer.Option(help="Name of the code; see serverless-gc codes.")] = "polar",
    workers: Annotated[int, typer.Option(min=2, help="Number of workers.")] = 16,
    k: Annotated[
        int | None, typer.Option(min=1, help="Source blocks or partitions; the code's own if not given.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each training.")] = 25,
    rows: Annotated[int, typer.Option(min=100, help="Flights to use, spread over the year.")] = 12000,
    backend: Annotated[str, typer.Option(help="simulated, local, processes, or aws (a deployed stack).")] = "simulated",
    stragglers: Annotated[float, typer.Option(min=0, max=1, help="Fraction of slow tasks.")] = 0.1,
    slowdown: Annotated[float, typer.Option(min=1, help="How many times longer a slow task takes.")] = 10.0,
    service: Annotated[float, typer.Option(min=0, help="Injected service time where the clock is real.")] = 0.03,
    plot: Annotated[Path | None, typer.Option(help="Draw the loss over billed seconds and over time.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of delays and stragglers.")] = 0,
) -> None:
    """Train a logistic regression on real flights by several optimizers and waiting policies, and compare the costs."""
    from tqdm.auto import tqdm

    from serverless_gc.cli.demo import largest_eigenvalue
    from serverless_gc.cli.flights import load_flights
    from serverless_gc.codes import get
    from serverless_gc.fitting.methods import METHODS
    from serverless_gc.inject import Stragglers

    named = list(METHODS) if methods == "all" else _listed("--methods", methods)
    if unknown := [name for name in named if name not in METHODS]:
        raise InputError(f"--methods must name some of {', '.join(METHODS)}; got {unknown[0]!r}")
    words = suited(get(code, n_workers=workers, k=k)) if policies == "all" else _listed("--policies", policies)
    waits = [parse_policy(word) for word in words]
    pairs, apart = _pairs(named, waits)
    check_picture(plot)
    X, y, _ = load_flights()
    spread = np.linspace(0, len(y) - 1, min(rows, len(y))).astype(int)
    X, y = X[spread], y[spread]
    lr = 1.0 / (0.25 * largest_eigenvalue(X) + L2)
    base = 0.0 if backend == "simulated" else service
    slow = Stragglers(fraction=stragglers, slowdown=slowdown, base=base, seed=seed)
    start = loss_at(X, y, np.zeros(X.shape[1]))
    runs = []
    with tqdm(total=len(pairs), unit="training", disable=not sys.stderr.isatty()) as bar:
        for method, wait in pairs:
            bar.set_description(f"{method}, {wait.word}")
            with _session(backend, slow, seed) as session:  # every training meets the same delays
                data = session.encode(X, y, code=code, n_workers=workers, k=k)
                course = [(start, 0.0, 0.0)]

                def measure(at: Iterate, course: Any = course) -> None:
                    course.append((loss_at(X, y, at.w), at.seconds, at.billed_seconds))

                fit = _train_one(data, method, wait, _length(method, lr), steps, measure)
            runs.append(Trained(method, wait.word, fit, loss_at(X, y, fit.w), tuple(course)))
            bar.update()
    console = make_console()
    clock = ", seconds are those of its clock" if runs[0].fit.report.simulated else ""
    console.print(f"{len(y):,} flights, {X.shape[1]} columns; {code}, {workers} workers; backend {backend}{clock}.")
    least = _least(X, y)
    console.print(_table(runs, least))
    if apart:
        console.print(f"Left out, because these take exact values of one point: {apart}.", soft_wrap=True)
    if worse := [f"{run.method} with {run.policy}" for run in ended_above(runs, start)]:
        console.print(
            f"Ended above the loss of the start, {start:.5f}: {', '.join(worse)}.", soft_wrap=True, highlight=False
        )
    if plot is not None:
        _draw(runs, plot, least)
        console.print(f"Loss over billed seconds and over time: {plot}")


def loss_at(X: FloatArray, y: FloatArray, w: FloatArray) -> float:
    """Compute the mean logistic loss in plain NumPy."""
    z = X @ w
    return float(np.mean(np.logaddexp(0, z) - y * z) + 0.5 * L2 * (w @ w))


def ended_above(runs: Sequence[Trained], start: float) -> list[Trained]:
    """List the trainings whose loss is not at most that of the start; one that is no number is not."""
    return [run for run in runs if not run.loss <= start]


def _least(X: FloatArray, y: FloatArray) -> float:
    """Find the least loss without workers, for the comparison."""
    from scipy.optimize import minimize
    from scipy.special import expit

    from serverless_gc.cli.demo import reference_gradient

    def slope(w: FloatArray) -> FloatArray:
        return reference_gradient(X, y, w)

    def hessian(w: FloatArray) -> FloatArray:
        p = expit(X @ w)
        return np.asarray((X.T * (p * (1 - p) / len(y))) @ X + L2 * np.eye(X.shape[1]))

    start = np.zeros(X.shape[1])
    found = minimize(
        partial(loss_at, X, y), start, jac=slope, hess=hessian, method="trust-exact", options={"gtol": 1e-10}
    )
    return float(found.fun)


def _session(backend: str, slow: Stragglers, seed: int) -> Session:
    from serverless_gc.session import Session

    return Session(backend, inject=slow, seed=seed)


def _pairs(methods: Sequence[str], waits: Sequence[Waiting]) -> tuple[list[tuple[str, Waiting]], str]:
    """Pair methods and policies; also say which do not go together, because one needs what the other does not give."""
    picky, rough = [m for m in methods if m in SEARCHING], [w for w in waits if w.answers != "exact"]
    pairs = [(m, w) for m in methods for w in waits if not (m in picky and w in rough)]
    apart = f"{', '.join(picky)} with {', '.join(w.word for w in rough)}"
    if not pairs:
        raise InputError(f"{apart}: these methods take exact values of one point; take others, or another policy")
    return pairs, apart if picky and rough else ""


def suited(code: Code) -> list[str]:
    """Return the words of all policies that go with a code, with numbers for its workers.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> suited(get("mds", n_workers=16, k=12))[5], len(suited(get("mds", n_workers=16, k=12)))
    ('k-sync:14', 9)
    """
    from serverless_gc.codes.gradient import GradientCode
    from serverless_gc.fitting.stale import gives_shares

    n = code.n_workers
    words = GRADIENT_CODE if isinstance(code, GradientCode) else ANY_CODE
    made = [word.format(most=n - max(1, n // 8), half=(n + 1) // 2) for word in words]
    if not code.exact:  # whose gradients may never be exact
        made = [word for word in made if not word.startswith(("until-decodable", "speculate"))]
    return made if gives_shares(code) else [word for word in made if parse_policy(word).answers != "stale"]


def _train_one(
    data: Any, method: str, wait: Waiting, lr: float | None, steps: int, callback: Callable[[Iterate], None]
) -> Fit:
    from serverless_gc.data.gradient import GradientData
    from serverless_gc.fitting import minimize

    options: dict[str, Any] = {"on_undecodable": "approximate"} if wait.answers == "approximate" else {}
    if method == "natural-gradient" and isinstance(data, GradientData):
        options["fisher"] = "full"
    return minimize(
        data,
        np.zeros(data.n_cols),
        method=method,
        loss="logistic",
        l2=L2,
        l1=L1 if method in {"fista", "proximal"} else 0.0,
        reduction="mean",
        lr=lr,
        policy=wait.make(),
        max_rounds=steps,
        tolerance=0.0,
        callback=callback,
        **options,
    )


def _length(method: str, lr: float) -> float | None:
    if method in SEARCHING:
        return None
    return ADAPTIVE_LR if method in {"adam", "amsgrad"} else lr


def _listed(option: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"{option} must name at least one")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{option} names {twice[0]!r} twice: name every one once")
    return names


def _table(runs: Sequence[Trained], least: float) -> Table:
    from serverless_gc.plan import Platform

    platform = Platform()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), caption_justify="left")
    table.add_column("method\n  policy", no_wrap=True)
    headings = ("steps/\ngrads", "final\nloss", "above\nleast", "seconds", "billed\nseconds")
    for heading in (*headings, "waste", "store\nr/w", "dollars"):
        table.add_column(heading, justify="right", no_wrap=True)
    for i, run in enumerate(runs):
        if i == 0 or runs[i - 1].method != run.method:
            table.add_row(run.method)
        account, above = run.fit.account, run.loss - least
        later = "" if account.run_on is None else f" +{account.run_on:.0f}"
        table.add_row(
            f"  {run.policy}",
            f"{account.updates}/{account.evaluations}",
            f"{run.loss:.5f}",
            f"{above:.1e}" if not above < _ROUNDING else f"<{_ROUNDING:.0e}",
            f"{account.seconds:.1f}",
            f"{account.billed_seconds:.0f}{later}",
            f"{account.busy_wasted / account.billed_seconds:.0%}",
            f"{account.reads}/{account.writes}",
            f"{account.cost(platform).total:.2g}",
        )
    table.caption = (
        "grads: gradients computed. final loss: in NumPy, at the weights found; the least one is SciPy's; fista and "
        f"proximal minimize {L1:g} * ||w||_1 on top; natural-gradient takes a full Fisher matrix with gradient codes, "
        "a diagonal one with data codes. billed seconds: of all attempts, up to when they were given up, + what comes "
        "on top if nothing stops them then. waste: share of billed seconds that entered no answer. store: requests "
        "that read, and that write or list, not counting workers that were given up. dollars: us-east-1, "
        f"functions of {platform.memory_mb} MB, all included."
    )
    return table


def _line(run: Trained) -> Descent:
    """Return the losses of a training over what was paid; the last point is the table's, at the cost of all rounds."""
    from serverless_gc.observe.descent import Descent

    account = run.fit.account
    end = (run.loss, account.seconds, account.billed_seconds)
    values, seconds, billed = np.array([*run.course, end]).T
    return Descent(run.policy, run.method, values, seconds, billed)


def _draw(runs: Sequence[Trained], path: Path, least: float) -> None:
    from serverless_gc.observe.descent import plot_descent

    plot_descent([_line(run) for run in runs], path, "Loss above the least one", least=least)
