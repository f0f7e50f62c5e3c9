"""serverless-gc simulate, plan and trace, as they are typed."""

import re
import sys
from pathlib import Path

import pytest
from matplotlib import image

from serverless_gc.cli import main

TRACE = Path(__file__).parents[2] / "examples" / "data" / "local-48-workers.csv"


@pytest.fixture
def printed(capsys, monkeypatch):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["serverless-gc", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


def test_simulate_many_workers(printed):
    words = ("simulate", "--codes", "uncoded,mds,polar", "--workers", 256, "--k", 192, "--rounds", 20, "--seed", 1)
    code, out, _ = printed(*words, "--delay", "lambda")
    assert code == 0
    rows = dict(re.findall(r"^ (uncoded|mds|polar) +256 +(?:256|192) +(\S+)", out, re.MULTILINE))
    assert float(rows["mds"]) < float(rows["polar"]) < float(rows["uncoded"])
    assert re.search(r"[\d,]+ task events in \d+\.\d s, [\d,]+ a second", out)
    again = printed(*words)[1]
    assert again.rsplit("\n", 2)[0] == out.rsplit("\n", 2)[0]


def test_a_delay_may_be_a_trace_and_its_name_have_underscores(printed):
    options = ("simulate", "--codes", "mds", "--workers", 48, "--rounds", 8, "--delay")
    measured = [
        out.rsplit("\n", 2)[0] for out in (printed(*options, TRACE)[1], printed(*options[:-1], "--trace", TRACE)[1])
    ]
    assert measured[0] == measured[1]
    assert "mds" in measured[0]
    dashed, underscored = (printed(*options, name)[1].rsplit("\n", 2)[0] for name in ("lambda-mild", "lambda_mild"))
    assert dashed == underscored != measured[0]
    code, _, err = printed(*options, "nowhere.csv")
    assert (code, err) == (
        1,
        "serverless-gc: --delay: there is no trace nowhere.csv; serverless-gc demo --record FILE records a trace\n",
    )
    assert "local-48-workers" in printed("simulate", "--table", "--rounds", 20, "--delay", TRACE)[1]


WRONG_DELAYS = {
    "gauss": "--delay: no law is called 'gauss'; there are bimodal, ",
    "expnential:rate=1": "did you mean 'exponential'?",
    "exponential": "--delay: 'exponential' needs rate: write exponential:rate=...",
    "exponential:1": "--delay: '1' is no parameter=value of 'exponential': write exponential:rate=...",
    "exponential:rate=1,speed=2": "--delay: 'speed=2' is no parameter=value of 'exponential': write exp",
    "exponential:rate=-1": "--delay: rate must be positive and finite, got -1.0, in 'exponential:rate=-1': write ",
    "exponential:rate=nan": "--delay: rate of 'exponential' must be finite, got 'nan'",
    "exponential:rate=": "--delay: rate of 'exponential' must be a number, got ''",
    "pareto:scale=1,shape=-2": "--delay: shape must be positive and finite, got -2.0, in 'pareto:scale=1,shape=-2'",
    "uniform:high=1,low=2": "--delay: high must be above low=2.0 and finite, got 1.0, in ",
    "lambda:p_cold=2": "--delay: p_cold must be at least 0 and at most 1, got 2.0, in ",
    "": "--delay: no law is called ''",
}
WRONG_TRACES = {
    "no/such/trace": "--delay: there is no trace no/such/trace; serverless-gc demo --record",
    str(TRACE.parent): f"--delay: {TRACE.parent} cannot be read as a trace: Is a directory; serverless-gc ",
    __file__: f"--delay: {__file__} is no trace of version 1: its first line must begin ",
}
DELAYED = {
    "simulate": ("--workers", 8, "--codes", "mds"),
    "compare": ("--workers", 8, "--codes", "mds"),
    "plan": ("--rows", 1000, "--cols", 10, "--workers", 8),
}


@pytest.mark.parametrize("command", DELAYED)
def test_a_wrong_delay_is_one_line_that_names_the_option_and_says_what_to_write(printed, command):
    traces = WRONG_TRACES
    if command == "compare":
        traces = {path: f"--delay {path}: a law is wanted here" for path in WRONG_TRACES}
    for delay, says in {**WRONG_DELAYS, **traces}.items():
        code, _, err = printed(command, *DELAYED[command], "--delay", delay)
        assert (code, err.count("\n"), err.startswith("serverless-gc: --delay")) == (1, 1, True), (delay, err)
        assert says in err, delay


@pytest.mark.parametrize(
    "words", [("simulate",), ("simulate", "--table"), ("compare", "--codes", "frc"), ("train",), ("demo",)]
)
def test_a_negative_seed_is_refused_in_words(printed, words):
    code, _, err = printed(*words, "--seed", -1)
    assert code == 2
    assert "--seed" in err
    assert "Traceback" not in err


def test_simulate_a_recorded_trace_and_its_table(printed, tmp_path):
    code, out, _ = printed(
        "simulate", "--codes", "uncoded,replication", "--workers", 48, "--trace", TRACE, "--rounds", 16
    )
    assert code == 0
    assert "replication" in out
    picture = tmp_path / "table.png"
    code, out, _ = printed("simulate", "--table", "--trace", TRACE, "--rounds", 200, "--plot", picture)
    assert code == 0
    assert "local-48-workers" in out
    assert out.count(" / ") > 8 * 3
    assert image.imread(picture).shape[0] > 400


def test_simulate_says_which_methods_took_another_number_of_blocks(printed):
    words = ("simulate", "--codes", "mds,frc,replication,lt", "--workers", 16, "--rounds", 5)
    code, out, _ = printed(*words, "--k", 12)
    assert code == 0
    assert "Not all can take k = 12: frc 16, replication 8, lt 24." in out
    assert "Not all" not in printed(*words)[1]


def test_plan_takes_the_number_of_workers_from_the_trace(printed):
    words = ("plan", "--rows", 5000, "--cols", 20, "--codes", "uncoded,mds", "--trace", TRACE)
    code, out, _ = printed(*words)
    assert code == 0
    given = printed(*words, "--measured-workers", 48)[1]
    assert re.findall(r"^ uncoded.*?ms", out, re.MULTILINE) == re.findall(r"^ uncoded.*?ms", given, re.MULTILINE)


def test_plan_ranks_and_explains(printed):
    code, out, _ = printed("plan", "--rows", 100000, "--cols", 200, "--workers", 16, "--codes", "uncoded,mds,frc")
    assert code == 0
    assert re.search(r"^Use (mds|frc stragglers=\d), 16 workers", out, re.MULTILINE)
    assert "Prices as of" in out
    code, out, _ = printed("plan", "--rows", 5000, "--cols", 20, "--trace", TRACE, "--workers", 24, "--goal", "p99")
    assert code == 0
    assert "the best by p99 first" in out


def test_plan_tells_rows_apart_and_says_when_no_fan_out_pays(printed):
    code, out, _ = printed("plan", "--rows", 10, "--cols", 3, "--codes", "uncoded,frc,cyclic", "--workers", 8)
    assert code == 0
    assert re.search(r"^Use (frc|cyclic) stragglers=\d, 8 workers", out, re.MULTILINE)
    rows = re.findall(r"^ ((?:frc|cyclic) stragglers=\d) ", out, re.MULTILINE)
    assert len(set(rows)) == len(rows) > 3
    assert "your own machine is faster" in out
    means = re.findall(r"^ \w+(?: stragglers=\d)? +8 +8 +(\S+ \w+) +(\S+ \w+)", out, re.MULTILINE)
    above = [pair for pair in means if float(pair[0].split()[0]) > float(pair[1].split()[0])]
    assert bool(above) == ("A mean above its p99" in out)
    large = printed("plan", "--rows", 3000000, "--cols", 1000, "--workers", 64, "--codes", "uncoded,mds")[1]
    assert "your own machine" not in large


def test_trace_tells_of_phases_and_late_tasks(printed):
    code, out, _ = printed("trace", TRACE)
    assert code == 0
    assert "16 rounds of 48 slots, 768 attempts" in out
    assert all(
        re.search(rf"^ {phase} ", out, re.MULTILINE) for phase in ("total", "queued", "read", "compute", "write")
    )
    assert re.search(r"leftover='(keep|cancel)'|is equal", out)


def test_demo_records_a_trace(printed, tmp_path):
    path = tmp_path / "delays.csv"
    words = ("demo", "--rows", 1000, "--iterations", 1, "--blocks", 8, "--backend", "simulated", "--record", path)
    code, out, _ = printed(*words)
    assert code == 0
    assert "Recorded delays" in out
    code, out, _ = printed("trace", path)
    assert "2 rounds of 8 slots, 16 attempts" in out
    assert "cannot be told" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("simulate", "--delay", "lamda"), "no law is called 'lamda'"),
        (("simulate", "--codes", ","), "--codes must name"),
        (("simulate", "--plot", "a.png"), "--table"),
        (("simulate", "--table", "--plot", "/nowhere/a.png"), "no folder"),
        (("simulate", "--trace", "/nowhere.csv"), "there is no trace"),
        (("plan", "--rows", "10", "--cols", "1", "--delay", "lambda", "--trace", "x"), "give one of them"),
        (("plan", "--rows", "10000000", "--cols", "1000", "--workers", "4"), "memory"),
        (("trace", "/nowhere.csv"), "there is no trace"),
        (("plan", "--rows", "10", "--cols", "3", "--codes", "khatri-rao,frc"), "multiplies two coded matrices"),
        (
            ("plan", "--rows", "1000", "--cols", "3", "--workers", 8, "--codes", "bgc", "--tolerance", "1e-3"),
            "it is a code for approximate answers",
        ),
        (("trace", TRACE.parent), "cannot be read as a trace"),
        (("simulate", "--codes", "polar", "--workers", 4, "--k", 8), "k must not exceed n_workers=4"),
        (("simulate", "--codes", "uncoded,mds", "--workers", 16, "--k", 20), "k must be at most n_workers=16"),
        (("simulate", "--table", "--plot", "a.txt"), "--plot must end in"),
        (("plan", "--rows", "100", "--cols", "9", "--delay", "lambda"), "--measured-workers"),
        (("demo", "--record", "/nowhere/t.csv"), "--record cannot be written, there is no folder /nowhere"),
        (("demo", "--plot", "/nowhere/t.png"), "--plot cannot be written"),
        (("demo", "--backend", "aws"), "run serverless-gc deploy, or, in the demo, add --offline"),
        (("demo", "--backend", "simulated", "--offline"), "--offline emulates"),
    ],
)
def test_wrong_words_end_in_one_message(words, message, printed, monkeypatch, tmp_path):
    monkeypatch.setenv("SERVERLESS_GC_CONFIG", str(tmp_path / "none.toml"))  # no settings
    code, out, err = printed(*words)
    assert (code, out) == (1, "")
    assert message in err
