"""Trainings that are taken up again: after any step, after a kill, and never by another run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.errors import InputError
from serverless_gc.policies import KAsync
from serverless_gc.stateful import Stateful
from serverless_gc.stragglers import ShiftedExponential

STEPS = 6
METHODS = [
    ("nesterov", {}),
    ("adam", {"lr": 0.1}),
    ("lbfgs", {}),
    ("fista", {"l1": 0.02, "lr": "backtracking"}),
    ("gradient-descent", {"lr": "backtracking"}),
    ("sketched-newton", {"sketch_rows": 20}),
    ("sketched-newton", {"lr": 0.5}),
    ("natural-gradient", {}),
]


class Stopped(Exception):
    pass


def problem():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((120, 4))
    return X, (X @ rng.standard_normal(4) > 0).astype(float)


def train(
    checkpoint=None,
    stop=None,
    max_rounds=STEPS,
    code="mds",
    session_seed=3,
    slow=0.2,
    faults=None,
    backend=None,
    **options,
):
    """Train in a session of its own; die after step ``stop``."""

    def callback(at):
        if at.step == stop:
            raise Stopped

    inject = [*([sgc.inject.Stragglers(fraction=slow, slowdown=9)] if slow else []), *([faults] if faults else [])]
    with sgc.Session(backend or "simulated", seed=session_seed, inject=inject, max_attempts=6) as s:
        data = s.encode(*problem(), code=code, n_workers=6, **({"k": 4} if code == "mds" else {}))
        objective = {"loss": "logistic", "l2": 0.3, "reduction": "mean", "strategy": "two-round"}
        if code != "mds":
            del objective["strategy"]
        return sgc.minimize(
            data,
            np.zeros(4),
            max_rounds=max_rounds,
            tolerance=0.0,
            checkpoint=checkpoint,
            **{"callback": callback, **objective, **options},
        )


@pytest.mark.parametrize(("method", "options"), METHODS, ids=[name for name, _ in METHODS])
def test_a_run_stopped_after_any_step_ends_with_the_same_bits(tmp_path, method, options):
    whole = train(method=method, **options)
    for stop in range(1, STEPS):
        path = tmp_path / f"{stop}"
        with pytest.raises(Stopped):
            train(path, stop, method=method, **options)
        again = train(path, method=method, **options)
        assert again.resumed_at == stop
        np.testing.assert_array_equal(again.w, whole.w)
        np.testing.assert_array_equal(again.values, whole.values)
        np.testing.assert_array_equal(again.gradient, whole.gradient)
        assert (again.steps, again.reason) == (whole.steps, whole.reason)
        ours, theirs = again.account, whole.account
        assert (ours.issued, ours.used, ours.updates, ours.evaluations) == (
            *(theirs.issued, theirs.used),
            *(theirs.updates, theirs.evaluations),
        )
        assert ours.busy_wasted == pytest.approx(theirs.busy_wasted)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "momentum", "lr": 0.1},
        {"method": "sketched-newton"},
        {"method": "natural-gradient", "fisher": "full"},
        {"method": "natural-gradient"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_a_gradient_code_resumes_to_the_same_bits(tmp_path, options):
    whole = train(code="frc", **options)
    with pytest.raises(Stopped):
        train(tmp_path / "run", 3, code="frc", **options)
    np.testing.assert_array_equal(train(tmp_path / "run", code="frc", **options).w, whole.w)


def test_other_stragglers_change_no_more_than_rounding(tmp_path):
    whole = train(method="nesterov")
    with pytest.raises(Stopped):
        train(tmp_path / "run", 3, method="nesterov")
    again = train(tmp_path / "run", method="nesterov", session_seed=77, policy=sgc.KSync(5))
    np.testing.assert_allclose(again.w, whole.w, rtol=1e-9)


STALE = {
    "k-async": {"policy": sgc.KAsync(3)},
    "k-batch-async": {"policy": sgc.KBatchAsync(2)},
    "failures": {"policy": sgc.KAsync(3), "faults": sgc.inject.Faults(fail=0.2, lose_reply=0.1, seed=4)},
    "drawn ahead": {"policy": sgc.KBatchAsync(2), "slow": 0.0},
    "momentum": {"policy": sgc.KAsync(2), "method": "momentum"},
}


@pytest.mark.parametrize("name", STALE)
def test_a_stale_run_stopped_after_any_step_ends_with_the_same_bits(tmp_path, name):
    options = {"code": "frc", "method": "gradient-descent", "lr": 0.05, **STALE[name]}
    whole = train(**options)
    assert whole.account.staleness.keys() - {0}, "nothing was in flight between two steps"
    for stop in range(1, STEPS + 1):
        path = tmp_path / f"{stop}"
        with pytest.raises(Stopped):
            train(path, stop, **options)
        again = train(path, **options)
        assert again.resumed_at == stop
        for mine, others in ((again.w, whole.w), (again.values, whole.values), (again.gradient, whole.gradient)):
            np.testing.assert_array_equal(mine, others)
        ours, theirs = again.account, whole.account
        assert ours.staleness == theirs.staleness
        assert (ours.issued, ours.used, ours.wasted) == (theirs.issued, theirs.used, theirs.wasted)
        assert (ours.busy_used, ours.busy_wasted) == pytest.approx((theirs.busy_used, theirs.busy_wasted))
        # The last gradient, of coded rounds, counts the driver's own time too.
        np.testing.assert_array_equal(again.seconds[:-1], whole.seconds[:-1])


def test_a_stale_run_stopped_twice_or_prolonged_is_the_whole_one(tmp_path):
    options = {"code": "frc", "method": "gradient-descent", "lr": 0.05, "policy": sgc.KAsync(3), "max_rounds": 12}
    whole = train(**options)
    for stop in (3, 7):
        with pytest.raises(Stopped):
            train(tmp_path / "run", stop, **options)
    np.testing.assert_array_equal(train(tmp_path / "run", **options).w, whole.w)
    train(tmp_path / "short", **{**options, "max_rounds": 5})
    longer = train(tmp_path / "short", **options)
    assert longer.resumed_at == 5
    np.testing.assert_array_equal(longer.w, whole.w)


def test_in_a_session_that_has_gone_on_what_was_in_flight_runs_as_long_as_it_would_have(tmp_path):
    options = {"method": "gradient-descent", "lr": 0.05, "policy": sgc.KAsync(3), "loss": "logistic", "tolerance": 0.0}
    with sgc.Session("simulated", delay=ShiftedExponential(1.0, 1.0), seed=1) as s:
        data = s.encode(*problem(), code="frc", n_workers=6)
        first = sgc.minimize(data, np.zeros(4), max_rounds=4, checkpoint=tmp_path / "run", **options)
        data.gradient(np.ones(4))
        again = sgc.minimize(data, np.zeros(4), max_rounds=9, checkpoint=tmp_path / "run", **options)
    assert (again.resumed_at, again.steps, again.account.updates) == (4, 9, 9)
    assert again.account.staleness.keys() - {0}
    assert again.seconds[4] > first.seconds[3]
    assert sum(again.account.staleness.values()) == again.account.used


class Remembering(Stateful, KAsync):
    remembered = ("opened",)
    opened = 0


def test_a_policy_with_a_memory_begins_its_tasks_anew(tmp_path):
    options = {"code": "frc", "method": "gradient-descent", "lr": 0.05}
    with pytest.raises(Stopped):
        train(tmp_path / "run", 4, policy=Remembering(3), **options)
    again = train(tmp_path / "run", max_rounds=9, policy=Remembering(3), **options)
    assert (again.resumed_at, again.steps, again.account.updates) == (4, 9, 9)


def test_on_a_real_clock_what_was_in_flight_is_issued_anew(tmp_path):
    options = {"code": "frc", "method": "gradient-descent", "lr": 0.05, "policy": sgc.KAsync(3), "backend": "local"}
    with pytest.raises(Stopped):
        train(tmp_path / "run", 4, **options)
    again = train(tmp_path / "run", max_rounds=9, **options)
    assert (again.resumed_at, again.steps, again.account.updates) == (4, 9, 9)
    assert len(again.values) == 10
    assert sum(again.account.staleness.values()) == again.account.used
    assert again.report.issued >= again.report.used


def test_delays_drawn_ahead_are_repeated(tmp_path):
    whole = train(method="nesterov", slow=0.0)
    with pytest.raises(Stopped):
        train(tmp_path / "run", 3, method="nesterov", slow=0.0)
    again = train(tmp_path / "run", method="nesterov", slow=0.0)
    np.testing.assert_array_equal(again.w, whole.w)
    assert again.account.billed_seconds == pytest.approx(whole.account.billed_seconds, rel=1e-12)


def test_a_finished_run_is_found_finished_and_may_be_prolonged(tmp_path):
    first = train(tmp_path / "run", method="nesterov")
    again = train(tmp_path / "run", method="nesterov")
    np.testing.assert_array_equal(again.w, first.w)
    assert again.report.issued == 0
    longer = train(tmp_path / "run", max_rounds=STEPS + 4, method="nesterov")
    np.testing.assert_array_equal(longer.w, train(max_rounds=STEPS + 4, method="nesterov").w)


def test_every_few_steps_is_enough(tmp_path):
    whole = train(method="nesterov")
    with pytest.raises(Stopped):
        train(tmp_path / "run", 5, method="nesterov", every=2)
    again = train(tmp_path / "run", method="nesterov", every=2)
    assert again.resumed_at == 4
    np.testing.assert_array_equal(again.w, whole.w)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"l2": 0.4}, "l2 was 0.3, is 0.4"),
        ({"method": "adam", "lr": 0.1}, "method was 'nesterov', is 'adam'; lr was None, is 0.1"),
        ({"code": "frc", "strategy": "two-round"}, "code was mds"),
        ({"sample_weight": np.ones(120)}, "sample_weight was not given, is float64"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, changed, message):
    train(tmp_path / "run", max_rounds=1, method="nesterov")
    options = {"method": "nesterov", **changed}
    if changed.get("code") == "frc":
        del options["strategy"]
    with pytest.raises(InputError, match=message):
        train(tmp_path / "run", **options)
    assert train(tmp_path / "run", resume=False, **options).resumed_at is None


def test_a_half_written_checkpoint_is_ignored(tmp_path):
    path = tmp_path / "run"
    train(path, max_rounds=2, method="nesterov")
    path.write_bytes(path.read_bytes()[:-7])
    fit = train(path, method="nesterov")
    assert fit.resumed_at is None
    np.testing.assert_array_equal(fit.w, train(method="nesterov").w)


def test_an_optimizer_without_arrays_cannot_be_saved(tmp_path):
    class Counting:
        def init(self, _x):
            return 0

        def step(self, x, update, state, _t):
            return x - 0.1 * update.direction, state + 1

    assert train(method=Counting()).steps == STEPS
    with pytest.raises(InputError, match="whose state is a tuple of arrays, and that of Counting is not"):
        train(tmp_path / "run", method=Counting())


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from test_minimize_resumed import train
import numpy as np

def told(at):
    print(at.step, flush=True)
    sys.stdin.readline()  # nobody answers: here it is killed

fit = train(sys.argv[1], method={method!r}, **({{"callback": told}} if len(sys.argv) > 2 else {{}}))
print(fit.w.tobytes().hex(), fit.resumed_at)
"""


@pytest.mark.parametrize("method", ["lbfgs", "nesterov"])
def test_a_killed_process_is_continued_by_another(tmp_path, method):
    script = SCRIPT.format(folder=str(Path(__file__).parent), method=method)
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "slowly"], **pipes) as child:
        try:
            for step in (1, 2, 3):
                assert int(child.stdout.readline()) == step
                if step < 3:
                    child.stdin.write("\n")
                    child.stdin.flush()
        finally:
            os.kill(child.pid, signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    weights, resumed_at = done.stdout.split()
    assert resumed_at == "3"
    assert bytes.fromhex(weights) == train(method=method).w.tobytes()
