"""`serverless-gc compare` lays codes side by side."""

import re

import pytest
from matplotlib import image

from serverless_gc.cli import main


@pytest.fixture
def printed(capsys, monkeypatch):
    def run(*words):
        monkeypatch.setattr("sys.argv", ["serverless-gc", "compare", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


def rows(out):
    """Code -> the other cells of its row, as words."""
    table = {}
    for line in out.splitlines():
        words = line.replace(" of ", "/").replace(" / ", "/").split()
        if len(words) == 9 and words[-1].endswith("x"):
            table[words[0]] = words[1:]
    return table


def test_codes_side_by_side(printed, tmp_path):
    picture = tmp_path / "errors.png"
    code, out, err = printed(
        *("--codes", "frc,cyclic,bgc,bibd,graph", "--workers", "30", "--load", "3", "--stragglers", "0.1"),
        *("--rounds", "60", "--plot", str(picture)),
    )
    assert (code, err) == (0, "")
    table = rows(out)
    assert list(table) == ["frc", "cyclic", "bgc", "bibd", "graph"]
    assert table["frc"][:5] == ["30", "3/30", "0", "0", "0"]
    assert table["cyclic"][5] == "28.0/28"
    assert table["graph"][1] == "2/20"
    assert table["bibd"][2] == table["bibd"][3] == table["bibd"][4]  # the same for every set
    assert table["bgc"][4] == "-"
    assert [row[-1] for row in table.values()][:2] == ["3.00x", "3.00x"]
    assert "bibd: no code of 30 workers and load 3; the nearest has 31 workers and load 6" in out
    assert max(len(line) for line in out.splitlines()) <= 120
    assert image.imread(picture).shape[0] > 300


def test_a_tree_beside_a_flat_code(printed, tmp_path):
    """Twelve workers, two of three children suffice on both levels: tasks of 4/15 of the data, one after the other."""
    picture = tmp_path / "tree.png"
    code, out, err = printed(
        *("--codes", "coded-reduce,frc", "--workers", "12", "--load", "3", "--stragglers", "0", "--rounds", "5"),
        *("--delay", "constant:seconds=1", "--plot", str(picture)),
    )
    assert (code, err) == (0, "")
    table = rows(out)
    assert table["coded-reduce"][:5] == ["12", "4/15", "0", "0", "0"]
    assert table["coded-reduce"][5:7] == ["6.0/6", "6.4/6.4"]  # 2 + 4 results; twice 12 * 4/15
    assert table["frc"][6] == "3/3"
    assert "coded-reduce: no code of 12 workers and load 3; the nearest has 12 workers and load 3.2" in out
    assert image.imread(picture).shape[0] > 300


def test_codes_of_blocks_and_another_law(printed):
    code, out, _ = printed(
        *("--codes", "uncoded,mds,replication", "--workers", "20", "--rounds", "20", "--slowdown", "1"),
        *("--delay", "constant:seconds=2"),
    )
    assert code == 0
    table = rows(out)
    assert table["uncoded"][6] == "2/2"
    assert table["mds"][5:] == ["15.0/15", "2.67/2.67", "1.33x"]
    assert table["replication"][-1] == "2.00x"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--codes", "poler"], "did you mean 'polar'"),
        (["--codes", ","], "--codes must name at least one code"),
        (["--codes", "mds,bgc,mds"], "--codes names 'mds' twice"),
        (["--codes", "mds", "--load", "31"], "load must be at most the number of workers, 30, got 31"),
        (["--codes", "mds", "--delay", "parreto:scale=1"], "no law is called 'parreto'; did you mean 'pareto'?"),
        (["--codes", "mds", "--delay", "pareto:scale=0,shape=2"], "must be positive and finite"),
        (["--codes", "mds", "--plot", "errors.txt"], "--plot must end in .png, .svg, .pdf, got errors.txt"),
        (["--codes", "mds", "--plot", "nowhere/errors.png"], "there is no folder nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, says, printed):
    code, out, err = printed(*words)
    assert (code, out) == (1, "")
    assert says in err
    assert err.count("\n") == 1


def test_rounds_without_an_answer_are_told():
    from serverless_gc.cli.compare import _notes
    from serverless_gc.codes import get
    from serverless_gc.plan import Sized, compare
    from serverless_gc.stragglers import Constant

    [found] = compare([get("uncoded", n_workers=3)], delay=Constant(1.0), rounds=2)
    assert _notes([found], [Sized(get("uncoded", n_workers=3), "")], 2) == []
    lost = type(found)(**{name: getattr(found, name) for name in type(found).__slots__} | {"given_up": 1})
    assert re.fullmatch(r"uncoded: 1 of 2 rounds had no answer", _notes([lost], [], 2)[0])


def test_rounding_is_told_where_it_costs_digits(printed):
    code, out, _ = printed("--codes", "matdot,mds", "--workers", "100", "--rounds", "20")
    assert code == 0
    assert re.search(r"matdot: rounding, which the errors above leave out, reached a relative error of \de-\d\d", out)
    assert "mds: rounding" not in out
