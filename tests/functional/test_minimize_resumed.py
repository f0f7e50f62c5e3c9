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

STEPS = 6
METHODS = [
    ("nesterov", {}),
    ("adam", {"lr": 0.1}),
    ("lbfgs", {}),
    ("fista", {"l1": 0.02, "lr": "backtracking"}),
    ("gradient-descent", {"lr": "backtracking"}),
]


class Stopped(Exception):
    pass


def problem():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((120, 4))
    return X, (X @ rng.standard_normal(4) > 0).astype(float)


def train(checkpoint=None, stop=None, max_rounds=STEPS, code="mds", session_seed=3, **options):
    """Train in a session of its own; die after step ``stop``."""

    def callback(at):
        if at.step == stop:
            raise Stopped

    with sgc.Session("simulated", seed=session_seed, inject=sgc.inject.Stragglers(fraction=0.2, slowdown=9)) as s:
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


def test_a_gradient_code_resumes_to_the_same_bits(tmp_path):
    whole = train(code="frc", method="momentum", lr=0.1)
    with pytest.raises(Stopped):
        train(tmp_path / "run", 3, code="frc", method="momentum", lr=0.1)
    np.testing.assert_array_equal(train(tmp_path / "run", code="frc", method="momentum", lr=0.1).w, whole.w)


def test_other_stragglers_change_no_more_than_rounding(tmp_path):
    whole = train(method="nesterov")
    with pytest.raises(Stopped):
        train(tmp_path / "run", 3, method="nesterov")
    again = train(tmp_path / "run", method="nesterov", session_seed=77, policy=sgc.KSync(5))
    np.testing.assert_allclose(again.w, whole.w, rtol=1e-9)


def test_a_stale_run_goes_on_with_its_versions(tmp_path):
    options = {"code": "frc", "method": "gradient-descent", "lr": 0.05, "policy": sgc.KAsync(3)}
    with pytest.raises(Stopped):
        train(tmp_path / "run", 4, **options)
    again = train(tmp_path / "run", max_rounds=9, **options)
    assert (again.resumed_at, again.steps, again.account.updates) == (4, 9, 9)
    assert len(again.values) == 10
    assert sum(again.account.staleness.values()) == again.account.used


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
