"""The planner: what fits, what it costs, what it recommends and why; against the simulator and real rounds."""

import dataclasses
import datetime as dt
import re

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.codes import get
from serverless_gc.errors import InputError, LimitError
from serverless_gc.limits import Limits
from serverless_gc.plan import Platform, Prices, Problem, method, price, refusals, simulate
from serverless_gc.plan.candidates import candidates
from serverless_gc.plan.memory import passes
from serverless_gc.plan.prices import AS_OF, PRICES, SOURCES, prices_of
from serverless_gc.plan.rounds import shares
from serverless_gc.plan.simulate import Ramped
from serverless_gc.stragglers import Bimodal, PerSlot, ShiftedExponential, Trace, lambda_heavy

LAW = ShiftedExponential(1.0, 1.0)
SMALL = {"rows": 20_000, "cols": 300}


CODES = ("uncoded", "speculative", "replication", "mds", "polar")


def recommended(**options):
    return sgc.recommend(**{**SMALL, "n_workers": 32, "delay": LAW, "task": "matvec", "codes": CODES, **options})


# -- sizes -----------------------------------------------------------------------------------------------


def test_bytes_of_a_task():
    [product] = passes(Problem(rows=1000, cols=50, dtype="float32", task="matvec"), get("mds", n_workers=10, k=8))
    assert (product.block, product.blocks, product.operand, product.message) == (125 * 50 * 4, 1, 400, 1000)
    forth, back = passes(Problem(rows=1000, cols=50, columns=3), get("mds", n_workers=10, k=8))
    assert (forth.block, forth.operand, forth.message) == (125 * 50 * 8, 50 * 24, 125 * 24)
    assert (back.block, back.operand, back.message) == (7 * 1000 * 8, 1000 * 24, 7 * 24)
    [part] = passes(Problem(rows=1000, cols=50, task="matvec"), get("short-dot", n_workers=10, k=4, threshold=9))
    assert (part.block, part.operand, part.whole, part.message) == (250 * 25 * 8, 25 * 8, 50 * 8, 250 * 8)
    [whole] = passes(Problem(rows=1000, cols=50), get("frc", n_workers=10, stragglers=1))
    assert (whole.block, whole.blocks, whole.factor) == (100 * 50 * 8, 2, 2.0)
    with pytest.raises(InputError, match="code for gradients"):
        passes(Problem(rows=1000, cols=50, task="matvec"), get("frc", n_workers=10, stragglers=1))


def test_what_does_not_fit_is_refused_by_its_limit():
    big = Problem(rows=10**6, cols=10**3)  # 8 GB
    [(limit, why)] = refusals(big, get("uncoded", n_workers=8), Platform())
    assert limit == "memory"
    assert "2.01 GB" in why
    assert "1769 MB" in why
    assert refusals(big, get("uncoded", n_workers=8), Platform(memory_mb=3008)) == ()
    half = Problem(rows=10**6, cols=10**3, dtype="float32")
    assert refusals(half, get("uncoded", n_workers=8), Platform()) == ()
    small_objects = Platform(memory_mb=10240, limits=Limits(object_bytes=10**8))
    [(limit, why)] = refusals(big, get("uncoded", n_workers=8), small_objects)
    assert limit == "object_bytes"
    tiny = Platform(limits=Limits(request_bytes=17_000))
    [(limit, why)] = refusals(Problem(rows=10**4, cols=10), get("lt", n_workers=4, k=64), tiny)
    assert limit == "request_bytes"


def test_a_code_that_leaves_columns_out_is_ranked_and_fits_where_whole_blocks_do_not():
    wide = Problem(rows=4, cols=60_000_000, task="matvec")  # 480 MB of x
    small = Platform(memory_mb=1200)
    [(limit, _)] = refusals(wide, get("mds", n_workers=8, k=4), small)
    assert limit == "memory"
    assert refusals(wide, get("short-dot", n_workers=8, k=4, threshold=7), small) == ()
    assert {choice.name for choice in recommended(codes=["mds", "short-dot"]).choices} >= {"mds", "short-dot"}
    part = get("short-dot", n_workers=10, k=4, threshold=9)
    assert shares(part) == pytest.approx(np.full(10, 0.5 / 4))


def test_ranges_of_a_large_operand_are_two_reads_and_one_write():
    wide = Problem(rows=40, cols=100_000, task="matvec")
    counts = {"billed": [0.0], "issued": [8], "awaited": [8], "seconds": 1.0, "rounds": 10**9}
    whole = price(wide, get("mds", n_workers=8, k=4), Platform(prices=ONE_EACH, driver_outside=False), **counts)
    parts = price(wide, get("short-dot", n_workers=8, k=4), Platform(prices=ONE_EACH, driver_outside=False), **counts)
    assert parts.store - whole.store == pytest.approx(8 * 1000, rel=1e-3)


def test_nothing_fits_names_the_limits():
    with pytest.raises(LimitError, match=r"memory: uncoded with 8 workers: a task needs"):
        sgc.recommend(4 * 10**6, 1000, n_workers=8, codes=["uncoded", "mds"])
    with pytest.raises(LimitError, match="function_timeout"):
        recommended(delay=ShiftedExponential(1000.0, 1.0))
    with pytest.raises(InputError, match=r"budget: .* costs \$"):
        recommended(budget=1e-9)
    with pytest.raises(InputError, match="tolerance"):
        recommended(codes=["mds"], tolerance=1e-18)
    with pytest.raises(InputError, match="none of the codes exists"):
        recommended(codes=["replication"], n_workers=31)


# -- cost ------------------------------------------------------------------------------------------------

ONE_EACH = Prices(gb_second=1.0, invocation=10.0, put=100.0, get=1000.0, gb_month=0.0, transfer_gb=0.0)


def test_worked_cost():
    problem, code = Problem(rows=800, cols=10, task="matvec"), get("mds", n_workers=4, k=3)
    platform = Platform(memory_mb=2048, prices=ONE_EACH)
    cost = price(problem, code, platform, billed=[8.0], issued=[5], awaited=[3], seconds=1.0, rounds=2)
    assert cost.compute == pytest.approx(2 * (8.0 + 5 * 0.0005))
    assert cost.requests == 50.0
    # puts: five results, the cancel mark, four blocks in two rounds; gets: a block for each task, every second round
    assert cost.store == pytest.approx(100 * (5 + 1 + 2) + 1000 * 5 / 2)
    assert cost.total == pytest.approx(cost.compute + cost.requests + cost.store)


def test_storage_and_transfer():
    prices = Prices(gb_second=0.0, invocation=0.0, put=0.0, get=0.0, gb_month=30.0, transfer_gb=8.0)
    problem, code = Problem(rows=2**20, cols=2**7, task="matvec"), get("uncoded", n_workers=8)  # 1 GiB in all
    cost = price(problem, code, Platform(prices=prices), billed=[1], issued=[8], awaited=[8], seconds=86400, rounds=1)
    assert cost.storage == pytest.approx(1.0)
    assert cost.transfer == pytest.approx(8.0 / 128)  # 8 MiB of results
    inside = Platform(prices=prices, driver_outside=False)
    assert price(problem, code, inside, billed=[1], issued=[8], awaited=[8], seconds=1, rounds=1).transfer == 0.0


def test_results_inside_a_tree_are_read_by_workers_and_not_sent_out():
    prices = Prices(gb_second=0.0, invocation=0.0, put=0.0, get=1.0, gb_month=0.0, transfer_gb=2.0**30)
    problem, code = Problem(rows=15, cols=10), get("coded-reduce", n_workers=12)
    cost = price(problem, code, Platform(prices=prices), billed=[12], issued=[12], awaited=[12], seconds=1, rounds=1)
    assert cost.store == pytest.approx(12 * 4 + 9)  # four units each, and the results of nine children
    assert cost.transfer == pytest.approx(3 * 80)  # of the driver's three children


def test_every_price_has_a_source_and_a_date():
    names = {each.name for each in dataclasses.fields(Prices)}
    assert SOURCES.keys() == PRICES.keys()
    for (region, _), sources in SOURCES.items():
        assert sources.keys() == names
        for name, source in sources.items():
            offer = {"gb_second": "AWSLambda", "invocation": "AWSLambda", "transfer_gb": "AWSDataTransfer"}
            assert re.fullmatch(
                rf"https://pricing\.\S+/{offer.get(name, 'AmazonS3')}/current/{region}/index\.json", source.address
            )
            assert dt.date(2026, 1, 1) <= dt.date.fromisoformat(source.date) <= dt.date.fromisoformat(f"{AS_OF}-28")


def test_what_no_source_was_found_for_is_said():
    doubtful = {(*place, name) for place, found in SOURCES.items() for name, s in found.items() if not s.confirmed}
    transfer = {(region, each, "transfer_gb") for region in ("us-west-2", "eu-west-1") for each in ("arm64", "x86_64")}
    assert doubtful == {("eu-west-1", "arm64", "gb_second"), *transfer}


def test_prices_of_regions():
    assert prices_of("us-east-1", "x86_64").gb_second > prices_of("us-east-1").gb_second
    assert {architecture for _, architecture in PRICES} == {"arm64", "x86_64"}
    with pytest.raises(InputError, match="no prices are known for 'mars-1'"):
        prices_of("mars-1")
    with pytest.raises(InputError, match="price put must be at least 0"):
        Prices(gb_second=1.0, invocation=0.0, put=-1.0, get=0.0, gb_month=0.0, transfer_gb=0.0)


# -- choice ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goal", ["mean time", "p99", "cost"])
def test_ranked_by_the_goal(goal):
    advice = recommended(goal=goal)
    figures = [choice.by(goal) for choice in advice.choices]
    assert figures == sorted(figures)
    assert {"uncoded", "speculative", "replication"} <= {choice.name for choice in advice.choices}
    assert (advice.best.name in {"uncoded", "speculative"}) == (goal == "cost")


def test_best_redundancy_is_that_of_the_closed_form():
    # of the rates on offer 3/4 is nearest to the optimum of 0.682 (shift and rate 1)
    advice = recommended(codes=["mds"], n_workers=64, platform=Platform(invocations_per_second=1e9))
    assert (advice.best.code.k, advice.choices[1].code.k) in {(48, 40), (40, 48)}


@pytest.mark.parametrize("name", ["uncoded", "speculative", "mds", "polar", "replication"])
def test_predictions_agree_with_the_simulator(name):
    advice = recommended(codes=[name])
    for choice in advice.choices[:2]:
        one = method(name, 32, choice.code.k)
        found = simulate(one, Ramped(LAW, 1000.0), rounds=500, seed=9)
        predicted = choice.mean - choice.decode - choice.encode / 100
        assert predicted == pytest.approx(found.mean, rel=0.05)
        assert choice.p99 - choice.decode == pytest.approx(found.p99, rel=0.15)


def test_a_gradient_is_two_rounds_of_a_data_code_and_one_of_a_gradient_code():
    steady = Bimodal(0.1, 0.1, 0.0)
    fast = Platform(invocations_per_second=1e9)
    advice = recommended(task="gradient", delay=steady, codes=["uncoded", "frc"], platform=fast)
    by_name = {choice.name: choice for choice in reversed(advice.choices)}
    assert by_name["uncoded"].mean - by_name["uncoded"].decode == pytest.approx(0.2)
    assert by_name["uncoded"].work == pytest.approx(2.0)
    frc = by_name["frc"]
    assert frc.mean - frc.decode == pytest.approx(0.4)  # two partitions, twice through each
    assert frc.work == pytest.approx(4.0)
    assert "frc" not in {one.name for one in candidates(["frc", "mds"], 16, "matvec")}


def test_words_say_what_why_and_against_what():
    text = str(recommended(delay=lambda_heavy(), goal="p99"))
    assert "do not matter" in text
    assert "uncoded(32, 32):" in text
    assert "times the time of the worst of 100" in text
    assert "Prices as of 20" in text
    little = Platform(memory_mb=1300)
    refused = str(sgc.recommend(10**6, 1000, n_workers=16, codes=["uncoded", "mds", "frc"], platform=little))
    assert "Refused for memory: " in refused


def test_budget_chooses_the_number_of_workers():
    free = sgc.recommend(300_000, 300, codes=["uncoded", "mds"])
    tight = sgc.recommend(300_000, 300, codes=["uncoded", "mds"], budget=free.best.cost.total / 2)
    assert tight.best.cost.total <= free.best.cost.total / 2
    assert tight.best.code.n_workers < free.best.code.n_workers
    assert any(one.limit == "budget" for one in tight.refused)


def test_waves_where_the_account_is_small():
    wide = recommended(codes=["uncoded"])
    narrow = recommended(codes=["uncoded"], platform=Platform(concurrency=8))
    assert narrow.best.mean > 1.8 * wide.best.mean


def test_delays_of_a_trace():
    rng = np.random.default_rng(0)
    rows = np.array([[k, i, 0, 1, 0.05, 0, t, 0] for k in range(20) for i, t in enumerate(rng.exponential(size=8))])
    advice = recommended(delay=Trace(rows), n_workers=16, measured_workers=8, codes=["uncoded", "mds"])
    assert advice.best.name == "mds"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goal": "fun"}, "goal must be one of"),
        ({"n_workers": 0}, "n_workers must be an integer"),
        ({"budget": -1.0}, "budget must be positive"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"rounds": 0}, "rounds must be"),
        ({"rows": 0}, "rows must be"),
        ({"dtype": "int8"}, "dtype must be float32 or float64"),
        ({"dtype": "flot"}, "dtype must be float32 or float64"),
        ({"task": "sort"}, "task must be"),
        ({"codes": ["poler"]}, "did you mean 'polar'"),
        ({"delay": 3.0}, "delay must be a law"),
        ({"delay": PerSlot(LAW, (1.0,))}, "delay must be a law"),
        ({"n_workers": None}, "measured_workers"),
    ],
)
def test_wrong_questions_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        recommended(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"memory_mb": 64}, "memory_mb"), ({"runtime_mb": 5000}, "runtime_mb"), ({"concurrency": 0}, "concurrency")],
)
def test_platforms_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        Platform(**options)


# -- real rounds -----------------------------------------------------------------------------------------


def test_order_of_methods_in_real_local_rounds():
    """What the planner ranks last is last in measured rounds as well; no claim about absolute times."""
    base, slow, share = 0.02, 12.0, 0.1
    law = Bimodal(base, base * slow, share)
    advice = recommended(delay=law, n_workers=16, codes=["uncoded", "mds"], rows=400, cols=20)
    predicted = {choice.name: choice.mean for choice in reversed(advice.choices)}
    measured = {}
    A, x = np.random.default_rng(0).normal(size=(400, 20)), np.ones(20)
    for name, k in [("uncoded", None), ("mds", 10)]:
        injected = sgc.inject.Stragglers(fraction=share, slowdown=slow, base=base, seed=3)
        with sgc.Session("local", inject=injected) as session:
            data = session.encode(A, code=name, n_workers=16, k=k)
            measured[name] = np.mean([data.matvec(x, with_report=True)[1].elapsed for _ in range(8)])
    assert predicted["uncoded"] > 2 * predicted["mds"]
    assert measured["uncoded"] > 1.5 * measured["mds"]
