"""The simulator and the sampled completion times agree with one another and with order statistics."""

import numpy as np
import pytest

from serverless_gc.codes import get
from serverless_gc.codes.threshold import count_arrivals
from serverless_gc.errors import InputError
from serverless_gc.plan import method, sample_rounds, simulate
from serverless_gc.plan.methods import Method
from serverless_gc.plan.montecarlo import expected_seconds
from serverless_gc.plan.simulate import Ramped
from serverless_gc.plan.table import latency_table, table_methods
from serverless_gc.stragglers import (
    Constant,
    Exponential,
    GilbertElliott,
    LambdaLike,
    Pareto,
    PerSlot,
    ShiftedExponential,
    Trace,
    lambda_short,
)

LAW = ShiftedExponential(1.0, 2.0)
METHODS = [
    method("uncoded", 48),
    method("speculative", 48),
    method("replication", 48, 24),
    method("mds", 48, 36),
    method("polar", 48, 36),
    method("product", 49),
    method("lt", 48, 72),
    method("frc", 48, stragglers=1),
]


def by_name(one):
    return one.name


@pytest.mark.parametrize("one", METHODS, ids=by_name)
@pytest.mark.parametrize("law", [LAW, lambda_short(), Pareto(1.0, 3.0)], ids=["exponential", "lambda", "pareto"])
def test_sampled_rounds_agree_with_the_engine(one, law):
    engine = simulate(one, law, rounds=150, seed=5)
    sampled = sample_rounds(one, law, rounds=4000, seed=6)
    error = np.hypot(engine.standard_error, sampled.standard_error)
    assert engine.mean == pytest.approx(sampled.mean, abs=4 * error)
    assert engine.billed.mean() == pytest.approx(sampled.billed.mean(), rel=0.06)
    assert engine.work == pytest.approx(sampled.work, rel=0.02)
    assert engine.awaited.mean() == pytest.approx(sampled.awaited.mean(), rel=0.03)
    assert engine.copies == pytest.approx(sampled.copies, abs=0.6)


@pytest.mark.parametrize("one", [m for m in METHODS if not m.speculative], ids=by_name)
def test_sampled_means_are_those_of_order_statistics(one):
    sampled = sample_rounds(one, LAW, rounds=10_000, seed=2, needed=count_arrivals(one.code, 300, seed=3))
    work = one.work(1 / one.code.n_workers)[0]
    law = ShiftedExponential(LAW.shift * work, LAW.rate / work)
    assert sampled.mean == pytest.approx(expected_seconds(one, law, trials=300, seed=3), rel=0.012)


def test_p99_of_a_count_threshold_code_is_a_quantile_of_an_order_statistic():
    sampled = sample_rounds(method("mds", 40, 30), LAW, rounds=20_000, unit=1 / 30)
    assert sampled.p99 == pytest.approx(LAW.quantile_order_stat(0.99, 30, 40), rel=0.02)


def test_equal_seeds_give_equal_rounds():
    one = method("polar", 32, 24)
    for run in (simulate, sample_rounds):
        first, again, other = (run(one, LAW, rounds=30, seed=seed).seconds for seed in (1, 1, 2))
        assert (first == again).all()
        assert (first != other).any()


def test_redundancy_is_work():
    assert simulate(method("mds", 8, 6), Constant(3.0), rounds=2).mean == pytest.approx(4.0)
    assert simulate(method("mds", 8, 6), Constant(3.0), rounds=2, unit=1 / 6).mean == pytest.approx(3.0)
    found = simulate(method("replication", 8, 4), Constant(3.0), rounds=3)
    assert (found.mean, found.work, found.billed.tolist()) == (6.0, 2.0, [48.0] * 3)
    # start and transfer do not grow
    fixed = LambdaLike(compute=Constant(0.1), p_cold=0.0)
    assert simulate(method("mds", 8, 4), fixed, rounds=2).mean == pytest.approx(0.085 + 0.2)


def test_late_tasks_are_billed_to_their_end():
    found = simulate(method("mds", 16, 8), ShiftedExponential(0.3, 1.0), rounds=400, unit=1 / 8)
    assert found.billed.mean() == pytest.approx(16 * 1.3, rel=0.03)


def test_speculation_pays_where_old_tasks_are_slow():
    heavy = Pareto(1.0, 1.8)
    plain, backed = (sample_rounds(method(name, 64), heavy, rounds=2000) for name in ("uncoded", "speculative"))
    assert backed.mean < 0.6 * plain.mean
    assert 0 < backed.copies < 16
    small = sample_rounds(method("speculative", 2), heavy, rounds=50)
    assert small.copies == 0


@pytest.mark.parametrize("one", [method("mds", 32, 24), method("replication", 32, 16)], ids=by_name)
def test_ramp_of_invocations(one):
    ramped = simulate(one, Ramped(LAW, 40.0), rounds=300, seed=2)
    sampled = sample_rounds(one, LAW, rounds=4000, per_second=40.0)
    assert sampled.mean == pytest.approx(ramped.mean, rel=0.05)
    assert sampled.mean > sample_rounds(one, LAW, rounds=4000).mean + 0.3
    started_late = sample_rounds(method("mds", 8, 2), Constant(1.0), rounds=1, per_second=2.0, unit=0.5)
    assert started_late.seconds.tolist() == [1.5]
    assert started_late.billed.tolist() == [3.0]  # the fourth would have started when the round was over


def test_concurrency_makes_waves():
    uncoded = method("uncoded", 10)
    assert sample_rounds(uncoded, Constant(1.0), rounds=1, concurrency=4).seconds.tolist() == [3.0]
    assert sample_rounds(uncoded, Constant(1.0), rounds=1, concurrency=10).seconds.tolist() == [1.0]
    coded = sample_rounds(method("mds", 10, 8), Constant(1.0), rounds=1, concurrency=4, unit=1 / 8)
    assert coded.seconds.tolist() == [2.0]


def test_slots_that_differ_go_through_the_engine():
    slow = PerSlot(LAW, (5.0, 5.0) + (1.0,) * 14)
    coded, plain = simulate(method("mds", 16, 12), slow, rounds=60), simulate(method("uncoded", 16), slow, rounds=60)
    assert coded.mean < 0.5 * plain.mean
    with pytest.raises(InputError, match="depends on slot or round"):
        sample_rounds(method("mds", 16, 12), slow)
    chained = GilbertElliott(Constant(1.0), Constant(9.0), p=0.02, r=0.3)
    assert simulate(method("mds", 16, 12), chained, rounds=60).mean < 3.0


def test_unequal_work_goes_by_the_tracker():
    G = np.random.default_rng(0).normal(size=(8, 4))
    code = get("linear", generator=G, placement=[(0, 1, 2), (3,), (4,), (5,), (6, 7)])
    one = Method("linear", code)
    assert one.work(1 / 4).tolist() == [3.0, 1.0, 1.0, 1.0, 2.0]
    engine, sampled = simulate(one, LAW, rounds=600, unit=1 / 4), sample_rounds(one, LAW, rounds=3000, unit=1 / 4)
    assert engine.mean == pytest.approx(sampled.mean, rel=0.05)
    assert engine.billed.mean() == pytest.approx(sampled.billed.mean(), rel=0.05)


def test_a_tree_takes_the_time_of_its_levels():
    """Branching 4, one straggler for each parent: the third of its four children decides, on both levels."""
    tree = method("coded-reduce", 20, stragglers=1, inner="cyclic")
    assert tree.work(1 / 6).tolist() == [1.0] * 20  # four of 24 units each
    assert simulate(tree, Constant(3.0), rounds=2, unit=1 / 6).mean == pytest.approx(6.0)
    rng = np.random.default_rng(0)
    leaves, parents = LAW.totals(1.0, rng, (40_000, 4, 4)), LAW.totals(1.0, rng, (40_000, 4))
    begun = np.sort(leaves, axis=2)[:, :, 2]
    done = np.sort(begun + parents, axis=1)[:, 2]
    ran = begun < done[:, None]
    billed = leaves.sum(axis=(1, 2)) + np.where(ran, parents, 0.0).sum(axis=1)
    for found in (simulate(tree, LAW, rounds=3000, unit=1 / 6), sample_rounds(tree, LAW, rounds=20_000, unit=1 / 6)):
        assert abs(found.mean - done.mean()) < 4 * found.standard_error
        assert found.p99 == pytest.approx(np.percentile(done, 99), rel=0.05)
        assert found.billed.mean() == pytest.approx(billed.mean(), rel=0.01)
        assert found.work == pytest.approx((16 + ran.sum(axis=1).mean()) / 6, rel=0.01)


def test_leaves_of_a_tree_start_one_after_another():
    tree = method("coded-reduce", 12, stragglers=1, inner="cyclic")  # three parents of three
    ramped = sample_rounds(tree, Constant(1.0), rounds=2, unit=4 / 15, per_second=2.0)
    assert ramped.seconds.tolist() == [0.5 * 4 + 1.0 + 1.0] * 2  # parents begin when leaves 1, 4 and 7 have ended


def test_replayed_trace_in_the_simulator():
    rows = [[k, slot, 0, 1, 0.5 + slot + k, 0.0, 0.0, 0.0] for k in range(2) for slot in range(4)]
    trace = Trace(np.array(rows, dtype=float))
    assert simulate(method("uncoded", 4), trace.replay(), rounds=4).seconds.tolist() == pytest.approx(
        [3.5, 4.5, 3.5, 4.5]
    )
    assert simulate(method("mds", 4, 3), trace.replay(), rounds=2).seconds.tolist() == pytest.approx([2.5, 3.5])


def test_a_code_that_never_decodes_is_named():
    with pytest.raises(InputError, match="rounds must be an integer of at least 1"):
        simulate(method("mds", 4, 3), LAW, rounds=0)
    with pytest.raises(InputError, match="did you mean 'polar'"):
        method("poler", 12)
    with pytest.raises(InputError, match="closed form"):
        expected_seconds(method("speculative", 8), LAW)


def test_table_of_one_law():
    table = latency_table(laws={"e": Exponential(1.0)}, sizes=[64], rounds=1000)
    mean = {entry.rounds.name: entry.rounds.mean for entry in table}
    assert list(mean) == ["uncoded", "speculative", "replication", "mds", "polar", "product", "lt", "frc"]
    assert mean["mds"] < mean["polar"] < mean["uncoded"]
    assert mean["frc"] == pytest.approx(mean["replication"], rel=0.05)  # the same groups of two
    assert [one.code.k for one in table_methods(256, ["mds", "replication", "product"])] == [192, 128, 225]
    with pytest.raises(InputError, match="at least one law"):
        latency_table(sizes=[])
