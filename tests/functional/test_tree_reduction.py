"""CodedReduce on the object store: inner workers add their children's stored results; the driver hears its own only."""

import numpy as np
import pytest
from gradient_cases import close, problem

import serverless_gc as sgc
from serverless_gc.codes.gradient import CodedReduceCode
from serverless_gc.invoke.local import LocalInvoker
from serverless_gc.store.memory import MemoryStore
from serverless_gc.wire import Task

SMALL = CodedReduceCode.tree(3, 2, stragglers=1)  # 12 workers, 15 units
DEEP = CodedReduceCode.tree(2, 3, stragglers=1)  # 14 workers


class Recording(LocalInvoker):
    """Notes what each task reads."""

    tasks: list[Task]

    async def invoke(self, task, payload, *, timeout):
        self.tasks.append(Task.from_bytes(payload))
        return await super().invoke(task, payload, timeout=timeout)


def absolute(X, y, w):
    return float(np.abs(X @ w - y).sum()), X.T @ np.sign(X @ w - y)


@pytest.mark.parametrize("code", [SMALL, DEEP], ids=["depth-2", "depth-3"])
@pytest.mark.parametrize("loss", ["logistic", absolute])
def test_nobody_receives_more_than_its_children_send(code, loss):
    X, y, w, expected = problem("logistic", 50)
    expected = expected if loss == "logistic" else absolute(X, y, w)[1]
    store = MemoryStore()
    invoker = Recording(store)
    invoker.tasks = []
    with sgc.Session(store=store, invoker=invoker) as s:
        data = s.encode(X, y, code=code)
        value, gradient, report = data.value_and_gradient(w, loss=loss, with_report=True)
    close(gradient, expected)
    if loss is absolute:
        assert value == pytest.approx(absolute(X, y, w)[0], rel=1e-12)
    assert report.check().error < 1e-20
    leaves = set(code.levels()[-1])
    for task in invoker.tasks:
        children = [int(key[-5:]) for key in task.results]
        assert len(children) <= code.branching
        assert all(code.parent(child) == task.slot for child in children)
        assert bool(children) == (task.slot not in leaves)
        parts = {key for key in task.blocks if "/rows/" in key}
        assert len(parts) <= code.units_each  # its own units, not those of its subtree
    assert report.bytes_down <= code.branching * 6 * 8
    assert report.by_reference == 0


@pytest.mark.parametrize("backend", ["local", "simulated"])
def test_lost_and_slow_children_are_missing_ones(backend):
    X, y, w, expected = problem("squared", 40)
    lost = [0, 6, 9]  # a child of the driver, and of each of the other two
    faults = sgc.inject.Faults(fail=lost, fail_times=9)
    slow = sgc.inject.Stragglers(fraction=[3], slowdown=1e4 if backend == "simulated" else 2.0, persistent=True)
    with sgc.Session(backend, inject=[faults, slow], max_attempts=2) as s:
        gradient, report = s.encode(X, y, code=SMALL).gradient(w, with_report=True)
    close(gradient, expected)
    assert report.check().failed >= 2
    assert report.used >= 6


@pytest.mark.parametrize("fault", ["lose_reply", "throttle", "non_finite"])
def test_faults_on_the_way(fault):
    """A reply that is lost is found in the store; NaN in a reply concerns the driver's children alone."""
    X, y, w, expected = problem("squared", 40)
    slots = [1] if fault == "non_finite" else range(12)
    with sgc.Session(inject=sgc.inject.Faults(**{fault: slots}), max_attempts=2) as s:
        gradient, report = s.encode(X, y, code=SMALL).gradient(w, with_report=True)
    close(gradient, expected)
    assert report.balanced
    assert report.recovered > 0 or fault != "lose_reply"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_non_finite_results_of_inner_workers_count_as_missing():
    """Every worker that overflows says so; the driver never sees the numbers."""
    X, y, w, _ = problem("squared", 40)
    with sgc.Session(max_attempts=1) as s:
        data = s.encode(X * 1e200, y, code=SMALL)
        with pytest.raises(sgc.NotDecodableError, match="NaN or Inf"):
            data.gradient(w)


@pytest.mark.parametrize("slow", [False, True], ids=["all-alike", "one-still-running"])
def test_what_is_missing_is_named(slow):
    """Worker 2 needs two of its three children, so the third may be running when it is clear that all is lost."""
    X, y, w, _ = problem("squared", 40)
    faults = sgc.inject.Faults(fail=[3, 4, 6, 7], fail_times=9)
    late = sgc.inject.Stragglers(fraction=[11] if slow else 0, base=0.005, slowdown=2000, persistent=True)
    with sgc.Session(inject=[faults, late], max_attempts=1) as s:
        data = s.encode(X, y, code=SMALL)
        with pytest.raises(sgc.NotDecodableError) as caught:
            data.gradient(w)
        said = str(caught.value)
        assert said.count("injected fault") == 4
        assert "2x not started for want of results to combine (workers 0, 1)" in said
        assert "partitions cannot be counted" in said
        assert "no reply" not in said
        if slow:
            assert "5 of 12 results" in said
            assert "1x not awaited: could not make up for what is lost" in said
        gradient, report = data.gradient(w, on_undecodable="approximate", with_report=True)
        assert report.error == pytest.approx(SMALL.weights([2]).error)
        assert np.isfinite(gradient).all()
    with sgc.Session(inject=sgc.inject.Faults(fail=range(9), fail_times=9), max_attempts=1) as s:
        data = s.encode(X, y, code=SMALL)
        with pytest.raises(sgc.NotDecodableError, match="15 of 15 partitions"):
            data.gradient(w, on_undecodable="approximate")


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("backend", ["aws", "processes"])
def test_other_backends(backend, request):
    X, y, w, expected = problem("logistic", 40)
    faults = sgc.inject.Faults(fail=[0, 7], fail_times=1)
    for options in ({}, {"presigned": True}) if backend == "aws" else ({},):
        with sgc.Session(backend, inject=faults, **options) as s:
            gradient, report = sgc.coded_gradient(X, y, w, code=SMALL, loss="logistic", session=s, with_report=True)
            close(gradient, expected)
            assert report.check().issued >= 9 + 2
            close(sgc.coded_gradient(X, y, w, code=SMALL, loss=absolute, session=s), absolute(X, y, w)[1])
    if backend == "aws":
        assert request.getfixturevalue("list_bucket")() == []


def test_a_policy_that_opens_all_workers_runs_it_as_a_flat_code():
    X, y, w, expected = problem("squared", 40)
    with sgc.Session(policy=sgc.UntilDecodable) as s:
        gradient, report = s.encode(X, y, code=SMALL).gradient(w, with_report=True)
    close(gradient, expected)
    assert report.issued == 12
