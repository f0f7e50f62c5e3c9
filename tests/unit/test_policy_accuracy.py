"""How often rounds wait for accuracy, for how many results, and what that gains."""

import numpy as np
import pytest

from serverless_gc.codes import get
from serverless_gc.codes.mds.code import MDSCode
from serverless_gc.codes.threshold import count_awaited, first_messages
from serverless_gc.engine import Arrived, CloseRound, Engine, Issue, TimerFired, VirtualHost
from serverless_gc.plan import method, sample_rounds, simulate
from serverless_gc.policies import natural_policy
from serverless_gc.stragglers import ShiftedExponential

LAW = ShiftedExponential(1.0, 2.0)


def rounds_of(code, count, dtype):
    """For each round the messages that determine the answer, and all that it waited for."""
    engine = Engine(natural_policy(code, dtype=dtype), code.n_workers, keep_records=False)
    for outcome in VirtualHost(LAW, seed=1).simulate(engine, count):
        order = [arrival.task.slot for arrival in outcome.arrivals]
        yield first_messages(code, order), [message for slot in order for message in code.placement(slot)]


def extra(code, count, dtype):
    each = len(code.placement(0))
    return np.array([(len(all_) - len(first)) / each for first, all_ in rounds_of(code, count, dtype)])


@pytest.mark.parametrize(
    ("name", "n", "k", "count"),
    [("mds", 20, 16, 300), ("mds", 200, 100, 50), ("polar", 64, 48, 50), ("polar", 256, 192, 20)],
)
def test_rounds_in_double_precision_never_wait(name, n, k, count):
    assert not extra(get(name, n_workers=n, k=k), count, np.float64).any()


def test_rounds_in_single_precision_wait_where_the_condition_has_its_tail():
    """P(condition > x) is about lost / x, and the guard is at a condition of 1.7e3."""
    small = extra(get("mds", n_workers=20, k=16), 600, np.float32)
    large = extra(get("mds", n_workers=1000, k=900), 40, np.float32)
    assert (small > 0).mean() < 0.02
    assert 0.05 < (large > 0).mean() < 0.5
    assert large.max() <= 2
    for name in ("polar", "product"):
        assert not extra(get(name, n_workers=64, k=49), 40, np.float32).any()


@pytest.mark.parametrize(
    ("name", "n", "k", "params"),
    [("polar", 256, 163, {"design": "reed-muller"}), ("lt", 32, 2500, {}), ("mds", 600, 300, {})],
)
def test_waiting_saves_the_rounds_with_large_errors(name, n, k, params):
    rng = np.random.default_rng(0)
    code = get(name, n_workers=n, k=k, **params)
    blocks = rng.normal(size=(code.k, 4)).astype(np.float32)
    coded = code.encode(blocks)

    def error(messages):
        answer, _ = code.decode({i: coded[i] for i in messages}, tolerance=np.inf)
        return np.linalg.norm(answer - blocks) / np.linalg.norm(blocks)

    pairs = [(error(first), error(all_)) for first, all_ in rounds_of(code, 30, np.float32) if len(all_) > len(first)]
    before, after = np.array(pairs).T
    assert len(before) >= 3
    assert after.max() < 3e-4
    assert after.max() < before.max() / 3


def test_waiting_takes_at_most_as_long_as_it_took_to_decode():
    nearly = MDSCode(6, 2, parity=[[1, 1], [1, 1 + 1e-8], [1, 0.5], [0.5, 1]])
    engine = Engine(natural_policy(nearly), 6)
    tasks = [action.task for action in engine.open(0.0) if isinstance(action, Issue)]
    assert not engine.handle(Arrived(tasks[2]), 2.0)
    [timer] = engine.handle(Arrived(tasks[3]), 3.0)  # two parity messages that say nearly the same
    assert timer.at == 6.0
    assert isinstance(engine.handle(TimerFired(timer.version, 6.0), 6.0)[-1], CloseRound)

    tasks = [action.task for action in engine.open(10.0) if isinstance(action, Issue)]
    engine.handle(Arrived(tasks[2]), 12.0)
    engine.handle(Arrived(tasks[3]), 13.0)
    assert isinstance(engine.handle(Arrived(tasks[5]), 13.5)[-1], CloseRound)  # that one settles it


@pytest.mark.parametrize(
    ("name", "n", "k", "params", "dtype"),
    [
        ("polar", 256, 163, {"design": "reed-muller"}, np.float32),
        ("mds", 1000, 900, {}, np.float32),
    ],
)
def test_sampled_rounds_wait_as_simulated_ones_do(name, n, k, params, dtype):
    one = method(name, n, k, **params)
    engine = simulate(one, LAW, rounds=80, seed=5, dtype=dtype)
    sampled = sample_rounds(one, LAW, rounds=4000, seed=6, dtype=dtype)
    decodes, sure, awaited = count_awaited(one.code, 100, 6, dtype)
    assert (decodes <= sure).all()
    assert (sure <= awaited).all()
    assert (decodes < awaited).mean() > 0.05
    error = np.hypot(engine.awaited.std() / np.sqrt(80), sampled.awaited.std() / np.sqrt(100))  # of 100 orders
    assert engine.awaited.mean() == pytest.approx(sampled.awaited.mean(), abs=4 * error)
    assert engine.mean == pytest.approx(sampled.mean, rel=0.03)


def test_what_never_waits_is_counted_as_before():
    assert np.ptp(count_awaited(get("mds", n_workers=20, k=16), 50)) == 0
    assert count_awaited(get("frc", n_workers=12), 50).shape == (3, 50)
