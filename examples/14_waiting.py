# ruff: noqa: ARG002, D102 - the methods and arguments of a policy are those of serverless_gc.types.WaitPolicy
"""When a round stops waiting, what becomes of the rest, and how the report tells."""

import tempfile
from pathlib import Path

import numpy as np

import serverless_gc as sgc
from serverless_gc.types import Close, Wait

rng = np.random.default_rng(0)
X, y, w = rng.standard_normal((960, 20)), rng.standard_normal(960), rng.standard_normal(20)
exact = X.T @ (X @ w - y)

# A tenth of the tasks take ten seconds instead of one; the clock is simulated, the workers are real.
slow = sgc.inject.Stragglers(fraction=0.1, slowdown=10, seed=2)

with sgc.Session("simulated", delay=sgc.stragglers.Constant(1.0), inject=slow) as s:
    data = s.encode(X, y, code="mds", n_workers=20, k=15)
    g, report = data.gradient(w, with_report=True)
    print(report)
    assert np.allclose(g, exact)
    assert report.issued == report.used + report.surplus + report.failed + report.voided

# The default closes as soon as the answer is determined. A deadline fails instead of waiting longer.
with sgc.Session("simulated", delay=sgc.stragglers.Constant(1.0), deadline=0.5) as s:
    data = s.encode(X, y, code="mds", n_workers=20, k=15)
    try:
        data.gradient(w)
    except sgc.DeadlineExceeded as error:
        print(error)


# Backup copies of late tasks, for a code without redundancy.
def with_copies(code):
    return sgc.Speculate(sgc.UntilDecodable(code))


with sgc.Session("simulated", delay=sgc.stragglers.Constant(1.0), inject=slow, policy=with_copies) as s:
    data = s.encode(X, y, code="uncoded", n_workers=20)
    g, report = data.gradient(w, with_report=True)
    print(f"speculation: {report.issued} tasks for {report.used} results, {report.elapsed:.1f} s of virtual time")
    assert np.allclose(g, exact)

# An approximate answer after 15 of 20 results, with its error in the report.
with sgc.Session("simulated", delay=sgc.stragglers.Constant(1.0), inject=slow) as s:
    data = s.encode(X, y, code="bgc", n_workers=20, load=4)
    g, report = data.gradient(w, wait=15, with_report=True)
    print(f"approximate: squared error {report.error_per_partition:.2f} a partition")


# A policy of your own.
class AsLongAgain:
    """Three quarters of the workers, and for the others as long again."""

    leftover = "cancel"

    def open(self, view):
        return [view.new_task(slot) for slot in view.idle_slots()]

    def on_arrival(self, view, arrival):
        return Wait() if view.in_flight() else Close()

    def on_failure(self, view, task):
        return Wait() if view.in_flight() else Close()

    def timer(self, view):
        if len(view.buffer) < 0.75 * view.n_slots:
            return None
        return 2 * (view.buffer[int(0.75 * view.n_slots) - 1].t_arrived - view.round_start)

    def on_timer(self, view):
        return Close()


with sgc.Session("simulated", delay=sgc.stragglers.Constant(1.0), inject=slow) as s:
    data = s.encode(X, y, code="frc", n_workers=20, stragglers=4)
    fit = sgc.minimize(data, np.zeros(20), reduction="mean", policy=AsLongAgain(), max_rounds=30)
    print(fit.summary())

# What a run's tasks took, kept in a small file; simulations and the planner replay it.
with sgc.Session(inject=sgc.inject.Stragglers(fraction=0.1, slowdown=5, base=0.01, seed=1)) as s:
    data = s.encode(X, y, code="mds", n_workers=20, k=15)
    reports = [data.gradient(w + 0.01 * i, with_report=True)[1] for i in range(5)]
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "trace.csv"
    sgc.stragglers.Trace.from_reports(reports).save(file)
    trace = sgc.stragglers.Trace.load(file)
    print(trace)
    advice = sgc.recommend(960, 20, delay=trace, measured_workers=20, n_workers=20)
    print(advice.best.title)
