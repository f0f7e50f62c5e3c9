"""`serverless-gc codes` tells of every code."""

import re

import pytest

from serverless_gc.cli import main
from serverless_gc.codes import available


@pytest.fixture
def printed(capsys, monkeypatch):
    def run(*words):
        monkeypatch.setattr("sys.argv", ["serverless-gc", "codes", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


def test_the_table_names_every_code(printed):
    code, out, _ = printed()
    assert code == 0
    rows = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert {info.name for info in available()} <= rows


@pytest.mark.parametrize("name", [info.name for info in available()])
def test_one_code_in_detail(name, printed):
    code, out, _ = printed(name, "--trials", "20")
    assert code == 0
    assert out.startswith(f"{name} (")
    assert re.search(r"n_workers +\d+|n_workers +None +\d+", out)
    assert "results awaited of" in out or "approximate: never exact" in out


def test_the_figures_are_those_of_the_code(printed):
    _, out, _ = printed("mds", "--workers", "20", "--k", "15")
    assert "results awaited of 20: mean 15.0, 95 % of rounds 15, most 15" in out
    assert "always enough: any 15" in out
    assert re.search(r"encode: \d+\.\d times a memory copy", out)


def test_what_was_not_given_is_shown_as_its_default(printed):
    _, out, _ = printed("erasurehead")
    assert re.search(r"^ layout +'grouped' +grouped *$", out, re.MULTILINE)
    assert re.search(r"^ wait +None +None *$", out, re.MULTILINE)


def test_a_wide_output_is_used(printed, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    narrow = max(map(len, printed()[1].splitlines()))
    monkeypatch.setenv("COLUMNS", "140")
    assert 100 >= narrow < max(map(len, printed()[1].splitlines())) <= 140


def test_lost_digits_are_told(printed):
    _, out, _ = printed("matdot", "--workers", "100", "--trials", "20")
    assert out.startswith("matdot (matmul, exact, but for rounding)")
    assert "results awaited of 100: mean 9.0" in out  # the threshold stays what it is
    assert "always enough but for rounding: any 9" in out
    told = re.search(r"(\S+) if workers answer in their order: (\d+) results are then awaited", out)
    assert float(told[1]) > 1
    assert 9 < int(told[2]) < 50
    _, out, _ = printed("matdot", "--trials", "20")
    assert "(matmul, exact)" in out
    assert "rounding" not in out


def test_wrong_words_are_explained(printed):
    code, _, err = printed("poler")
    assert code == 1
    assert "did you mean 'polar'" in err
    code, _, err = printed("--k", "3")
    assert code == 1
    assert "go with a code's name" in err


@pytest.mark.parametrize("name", ["mds", "mds-nonsystematic", "cyclic"])
def test_more_coefficients_than_a_machine_holds_are_refused_with_their_size(name, printed):
    code, out, err = printed(name, "--workers", "100000")
    assert (code, out) == (1, "")
    assert re.search(r"dense matrix of [\d,]+ x [\d,]+ coefficients, \d+\.\d GB", err)


def test_many_workers_are_timed_on_small_blocks(printed):
    code, out, _ = printed("replication", "--workers", "20000", "--trials", "10")
    assert code == 0
    assert "always enough: any 19999" in out
