"""The train command: a table of methods and policies, its picture, and readable refusals."""

import re
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
from matplotlib import image

from serverless_gc.cli.train import Trained, _line, ended_above, suited
from serverless_gc.cli.waits import ANY_CODE, GRADIENT_CODE, parse_policy
from serverless_gc.codes import get
from serverless_gc.errors import InputError
from serverless_gc.fitting import Fit
from serverless_gc.fitting.methods import METHODS
from serverless_gc.fitting.result import Account
from serverless_gc.observe.descent import Descent, plot_descent
from serverless_gc.policies import Deadline, FreshK, KAsync, KBatchAsync, Speculate, UntilDecodable, WaitAll

COMMAND = [sys.executable, "-c", "from serverless_gc.cli import main; main()", "train"]


def run(*arguments):
    return subprocess.run([*COMMAND, *arguments], check=False, capture_output=True, text=True, timeout=120)


def table(output):
    """Read the rows: (method, policy) to steps, gradients, loss, above, seconds, billed, run on, wasted, requests."""
    found, method = {}, ""
    for line in output.splitlines():
        if name := re.match(r"^ ?([a-z-]+) *$", line):
            method = name[1]
        elif row := re.match(r"^ ? {2}([a-z-]+(?::[\d.]+)?) +(\d+)/(\d+ .*)$", line):
            found[method, row[1]] = [row[2], *row[3].split()]
    return found


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


SIZES = ("--rows", "300", "--steps", "2", "--workers", "8")


@pytest.fixture(scope="module", params=["polar", "frc"])
def everything(request):
    """All methods under all policies, with a data code and with a gradient code."""
    done = run(*SIZES, "--code", request.param, "--methods", "all", "--policies", "all")
    assert (done.returncode, done.stderr) == (0, "")
    return request.param, done.stdout, table(done.stdout)


def test_every_method_under_every_policy(everything):
    code, said, found = everything
    exact = suited(get("polar", n_workers=8))
    assert len(METHODS) == 11
    assert len(exact) >= 8
    assert {(method, policy) for method in METHODS for policy in exact} <= set(found)
    for method in METHODS:
        rows = [found[method, policy] for policy in exact]
        assert {row[0] for row in rows} == {"2"}
        assert len({row[2] for row in rows}) == 1  # exact gradients: the same loss, whoever was waited for
        assert float(rows[0][2]) < np.log(2)  # the loss of the start
        assert float(rows[0][3]) > 0
    left_out = re.search(r"Left out.*: (.*) with (.*)\.\n", said)
    if code == "polar":
        assert left_out is None
    else:
        rough = {"until-error:0.25", "fresh-k:7", "k-async:4", "k-batch-async:4"}
        picky = {"lbfgs", "natural-gradient", "sketched-newton"}
        assert [set(names.split(", ")) for names in left_out.groups()] == [picky, rough]
        assert {(method, policy) for method in set(METHODS) - picky for policy in rough} <= set(found)


def test_policies_that_give_work_up_are_done_earlier_and_bill_less(everything):
    """Every training meets the same delays, so whoever waits for a subset of the same tasks cannot be later."""
    _, _, found = everything
    for method in METHODS:
        cost = {policy: row for (name, policy), row in found.items() if name == method}
        seconds = {policy: float(row[4]) for policy, row in cost.items()}
        billed = {policy: float(row[5]) for policy, row in cost.items()}
        assert cost["wait-all"][7] == "0%"
        for policy in ("until-decodable", "until-decodable:2", "k-sync:7", "deadline:0.3", "cutoff"):
            assert seconds[policy] <= seconds["wait-all"]
            assert billed[policy] <= billed["wait-all"]
        assert seconds["until-decodable"] <= seconds["k-sync:7"]
        assert seconds["until-decodable"] < seconds["wait-all"]
        assert billed["until-decodable"] < billed["wait-all"]
        assert int(cost["until-decodable"][6]) > 0  # what was given up runs on for a while


def test_methods_that_take_exact_values_are_not_run_on_others():
    done = run(*SIZES, "--code", "frc", "--methods", "lbfgs,sketched-newton", "--policies", "k-async:3")
    assert done.returncode == 1
    assert "lbfgs, sketched-newton with k-async:3: these methods take exact values" in done.stderr


def test_the_policies_that_suit_a_code():
    assert suited(get("polar", n_workers=16))[5:7] == ["k-sync:14", "deadline:0.3"]
    assert len(suited(get("frc", n_workers=16))) == len(GRADIENT_CODE)
    assert suited(get("cyclic", n_workers=16))[-1] == "until-error:0.25"  # its results are no gradients by themselves
    assert {parse_policy(word.format(most=7, half=4)).answers for word in ANY_CODE} == {"exact"}
    assert suited(get("bgc", n_workers=8))[:3] == ["wait-all", "backup", "k-sync:7"]


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
    account = Account(updates=2, evaluations=3, seconds=4.0, busy_used=9.0)
    fit = Fit(**{field.name: None for field in fields(Fit)} | {"account": account})
    course = ((3.0, 0.0, 0.0), (2.0, 1.0, 2.0), (1.5, 3.0, 7.0))
    line = _line(Trained("adam", "wait-all", fit, 1.5, course))
    assert line.values.tolist() == [3.0, 2.0, 1.5, 1.5]
    assert line.seconds.tolist() == [0.0, 1.0, 3.0, account.seconds]
    assert line.billed_seconds.tolist() == [0.0, 2.0, 7.0, account.billed_seconds]


def test_trainings_that_end_above_their_start_are_named():
    runs = [Trained("adam", "wait-all", None, loss) for loss in (0.6, 0.7, float("nan"), float("inf"))]
    assert ended_above(runs, 0.65) == runs[1:]


def test_words_for_policies():
    code = get("frc", n_workers=4)

    def made(word):
        return parse_policy(word).make()(code)

    assert isinstance(made("wait-all"), WaitAll)
    assert isinstance(made("speculate"), Speculate)
    assert isinstance(made("speculate").inner, UntilDecodable)
    assert isinstance(made("backup").inner, WaitAll)
    assert isinstance(made("k-async:2"), KAsync)
    assert isinstance(made("fresh-k:2"), FreshK)
    assert isinstance(made("k-batch-async:2"), KBatchAsync)
    assert (made("until-decodable").margin, made("until-decodable:2").margin) == (0, 2)
    assert made("until-error:0.1").max_error == 0.1
    deadline = made("deadline:0.5")
    assert isinstance(deadline, Deadline)
    assert (deadline.seconds, deadline.on_expire) == (0.5, "close")
    for word in (
        "wait-all:3",
        "k-sync:many",
        "k-sync:0",
        "deadline:-1",
        "deadline:",
        "until-error:-1",
        "until-decodable:-1",
    ):
        with pytest.raises(InputError):
            parse_policy(word)
    assert parse_policy("k-async:2").answers == "stale"
    assert parse_policy("until-error:0").answers == "approximate"


@pytest.mark.parametrize("word", ["cutoff", "cutoff-kalman"])
def test_a_forecast_is_of_all_rounds_of_one_training(word):
    code, wait = get("mds", n_workers=4, k=3), parse_policy(word)
    policy = wait.make()
    assert policy(code).predictor is policy(code).predictor
    assert policy(code).predictor is not wait.make()(code).predictor


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


def test_a_picture_of_many_descents_has_panels():
    costs = np.array([1.0, 2.0, 3.0])
    lines = [
        Descent(f"policy {i}", f"method {j}", np.array([3.0, 2.0, 1.0 + 0.1 * i]), costs, 4 * costs)
        for i in range(9)
        for j in range(3)
    ]
    figure = plot_descent(lines, least=0.5)
    assert len(figure.axes) == 8  # two pairs a row
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["method 0", "", "method 1", "", "method 2", "", "", ""]
    shown = [ax for ax in figure.axes if ax.axison]
    assert [len(ax.lines) for ax in shown] == [9] * 6
    assert len({(line.get_color(), line.get_linestyle()) for line in shown[0].lines}) == 9
    assert shown[0].lines[3].get_ydata().tolist() == [2.5, 1.5, 0.8]
    assert shown[0].get_xlim() == shown[2].get_xlim()
    assert shown[0].get_xlim()[1] >= 12
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"policy {i}" for i in range(9)]
