"""The train command: a table of methods and policies, its picture, and readable refusals."""

import re
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
from matplotlib import image

from serverless_gc.cli.train import Trained, _line, ended_above, parse_policy
from serverless_gc.codes import get
from serverless_gc.errors import InputError
from serverless_gc.fitting import Fit
from serverless_gc.fitting.methods import METHODS
from serverless_gc.fitting.result import Account
from serverless_gc.observe.descent import Descent, plot_descent
from serverless_gc.policies import Deadline, FreshK, KAsync, KBatchAsync, Speculate, WaitAll

COMMAND = [sys.executable, "-c", "from serverless_gc.cli import main; main()", "train"]


def run(*arguments):
    return subprocess.run([*COMMAND, *arguments], check=False, capture_output=True, text=True, timeout=120)


def table(output):
    """Read the rows: (method, policy) to steps, gradients, loss, above, seconds, billed, run on, wasted, at once."""
    rows = re.findall(r"^ ?([a-z-]+) +([a-z-]+(?::[\d.]+)?) +(\d+)/(\d+ .*)$", output, re.MULTILINE)
    return {(method, policy): [steps, *rest.split()] for method, policy, steps, rest in rows}


def test_methods_and_policies_side_by_side(tmp_path):
    picture = tmp_path / "descent.png"
    done = run(
        *("--rows", "1500", "--steps", "4", "--workers", "8", "--methods", "nesterov,lbfgs"),
        *("--policies", "wait-all,until-decodable,k-sync:7,deadline:0.3,speculate", "--plot", str(picture)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "backend simulated, seconds are those of its clock." in done.stdout
    found = table(done.stdout)
    assert len(found) == 10
    for method in ("nesterov", "lbfgs"):
        waited, first = found[method, "wait-all"], found[method, "until-decodable"]
        assert waited[2] == first[2]  # the same loss ...
        assert float(first[4]) < float(waited[4])  # ... in less time
        assert waited[6:8] == ["+0", "0%"]
        assert int(first[6]) > 0
        assert int(first[7][:-1]) > 0
    assert all(float(row[3]) > 0 for row in found.values())
    assert image.imread(picture).shape[0] > 300


def test_stale_gradients_beside_fresh_ones():
    done = run(
        *("--rows", "800", "--steps", "4", "--workers", "6", "--code", "frc", "--methods", "gradient-descent"),
        *("--policies", "k-sync:4,k-async:3,k-batch-async:3"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert set(table(done.stdout)) == {
        ("gradient-descent", policy) for policy in ("k-sync:4", "k-async:3", "k-batch-async:3")
    }


SIMPLE = "gradient-descent,momentum,adam,amsgrad,dual-averaging"
FRESH = "wait-all,until-decodable,k-sync:4,deadline:0.3,speculate"


@pytest.mark.parametrize(
    ("methods", "policies"),
    [
        (SIMPLE, f"{FRESH},fresh-k:3,k-async:3,k-batch-async:3"),
        ("nesterov,lbfgs,fista,proximal", FRESH),
    ],
    ids=["with stale gradients", "exact"],
)
def test_every_method_under_every_policy(methods, policies):
    sizes = ("--rows", "300", "--steps", "3", "--workers", "6", "--code", "frc")
    done = run(*sizes, "--methods", methods, "--policies", policies)
    assert (done.returncode, done.stderr) == (0, "")
    found = table(done.stdout)
    assert set(found) == {(method, policy) for method in methods.split(",") for policy in policies.split(",")}
    for steps, _, _, above, *_ in found.values():
        assert steps == "3"
        assert 0 < float(above) < 1


def test_the_methods_tried_are_all_there_are():
    assert {*SIMPLE.split(","), "nesterov", "lbfgs", "fista", "proximal"} == set(METHODS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--methods", "newton"), "--methods must name some of adam, "),
        (("--methods", "adam,adam"), "--methods names 'adam' twice"),
        (("--policies", ","), "--policies must name at least one"),
        (("--policies", "k-sync"), "policy 'k-sync' needs a number"),
        (("--policies", "patience"), "unknown policy 'patience'; choose some of wait-all"),
        (("--plot", "picture.txt"), "--plot must end in .png"),
    ],
)
def test_refusals_are_one_readable_line(arguments, message, monkeypatch, capsys):
    from serverless_gc.cli import main

    monkeypatch.setattr(sys, "argv", ["serverless-gc", "train", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_line_begins_free_of_cost_and_ends_where_the_table_does():
    account = Account(updates=2, evaluations=2, seconds=3.0, busy_used=7.0)
    fit = Fit(
        **{field.name: None for field in fields(Fit) if field.name not in {"values", "seconds", "billed_seconds"}}
        | {"account": account},
        values=np.array([3.0, 2.0]),
        seconds=np.array([1.0, 3.0]),
        billed_seconds=np.array([2.0, 7.0]),
    )
    line = _line(Trained("adam", "wait-all", fit, 1.5))
    assert line.values.tolist() == [3.0, 2.0, 1.5]
    assert line.seconds.tolist() == [0.0, 1.0, account.seconds]
    assert line.billed_seconds.tolist() == [0.0, 2.0, account.billed_seconds]


def test_trainings_that_end_above_their_start_are_named():
    runs = [Trained("adam", "wait-all", None, loss) for loss in (0.6, 0.7, float("nan"), float("inf"))]
    assert ended_above(runs, 0.65) == runs[1:]


def test_words_for_policies():
    code = get("mds", n_workers=4, k=3)
    assert isinstance(parse_policy("wait-all")(code), WaitAll)
    assert isinstance(parse_policy("speculate")(code), Speculate)
    assert isinstance(parse_policy("k-async:2")(code), KAsync)
    assert isinstance(parse_policy("fresh-k:2")(code), FreshK)
    assert isinstance(parse_policy("k-batch-async:2")(code), KBatchAsync)
    deadline = parse_policy("deadline:0.5")(code)
    assert isinstance(deadline, Deadline)
    assert (deadline.seconds, deadline.on_expire) == (0.5, "close")
    for word in ("wait-all:3", "k-sync:many", "deadline:-1", "deadline:"):
        with pytest.raises(InputError):
            parse_policy(word)


def test_a_picture_of_descents():
    costs = np.array([1.0, 2.0, 3.0])
    lines = [
        Descent("one", "first", np.array([3.0, 2.0, 1.0]), costs, 4 * costs),
        Descent("two", "first", np.array([3.0, 1.5, 0.5]), costs, 2 * costs),
    ]
    figure = plot_descent(lines, title="costs")
    billed, passed = figure.axes
    assert [line.get_ydata().tolist() for line in billed.lines] == [[2.5, 1.5, 0.5], [2.5, 1.0]]
    assert [line.get_xdata().tolist() for line in passed.lines] == [[1, 2, 3], [1, 2]]
    assert billed.lines[0].get_color() != billed.lines[1].get_color()
    below = plot_descent(lines, least=0.25).axes[0].lines[1]
    assert below.get_ydata().tolist() == [2.75, 1.25, 0.25]
    with pytest.raises(InputError, match="nothing to draw"):
        plot_descent([])
