"""What is in flight between two rounds, told as JSON and taken up by a new engine on a new clock."""

import json

import numpy as np
import pytest

from serverless_gc.engine import AioHost, Completion, Engine, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.fitting.training import Training
from serverless_gc.policies import FirstK, KAsync, KBatchAsync
from serverless_gc.stragglers import Exponential, GilbertElliott, LambdaLike
from serverless_gc.types import Close, Wait

LAWS = {
    "drawn ahead": LambdaLike(p_cold=0.2),
    "one by one": GilbertElliott(Exponential(10.0), Exponential(1.0), p=0.2, r=0.3),
}
ROUNDS = 12


def outcomes(host, engine, rounds):
    return [
        (o.version, o.t_open, o.t_close, [(a.task, a.t_issued, a.t_arrived) for a in o.arrivals], o.counts)
        for o in host.simulate(engine, rounds)
    ]


@pytest.mark.parametrize("policy", [KAsync(3), KBatchAsync(2)], ids=["k-async", "k-batch-async"])
@pytest.mark.parametrize("name", LAWS)
def test_rounds_behind_any_break_are_those_without_one(name, policy):
    whole = outcomes(VirtualHost(LAWS[name], seed=5), Engine(policy, 6), ROUNDS)
    for stop in range(1, ROUNDS):
        host, engine = VirtualHost(LAWS[name], seed=5), Engine(policy, 6)
        outcomes(host, engine, stop)
        told = json.loads(json.dumps([engine.state_dict(), host.flights(engine), host.draws, host.now]))
        state, flights, draws, now = told
        assert flights
        new, later = VirtualHost(LAWS[name], start=now), Engine(policy, 6, version=stop)
        new.draws = draws
        new.carry_on(later, later.load_state_dict(state), flights)
        assert outcomes(new, later, ROUNDS - stop) == whole[stop:]


def test_on_a_clock_that_is_ahead_everything_comes_as_much_later():
    host, engine = VirtualHost(Exponential(1.0), seed=2), Engine(KAsync(2), 5)
    outcomes(host, engine, 3)
    ends = [start + seconds for _, _, start, seconds in host.flights(engine)]
    later = Engine(KAsync(2), 5, version=3)
    tasks = later.load_state_dict(engine.state_dict(), shift=100.0)
    new = VirtualHost(Exponential(1.0), start=host.now + 100.0)
    new.carry_on(later, tasks, [(t, a, start + 100.0, s) for t, a, start, s in host.flights(engine)])
    np.testing.assert_allclose([start + seconds for _, _, start, seconds in new.flights(later)], np.add(ends, 100.0))
    assert later.counts.carried == later.counts.outstanding == len(ends)
    assert all(o.counts.balanced for o in new.simulate(later, 5))


class TakesOne(FirstK):
    """Consumes one of three results and leaves the others in the buffer."""

    def on_arrival(self, view, _arrival):
        return Close([view.buffer[0]]) if len(view.buffer) >= 3 else Wait()


def test_what_json_cannot_hold_is_not_told():
    engine = Engine(KAsync(2), 4)
    engine.open(0.0)
    assert engine.state_dict() is None  # a round is open
    buffered = Engine(TakesOne(1, leftover="keep"), 6)
    outcomes(VirtualHost(Exponential(1.0)), buffered, 1)
    assert buffered.view.buffer
    assert buffered.state_dict() is None
    parts = Engine(KAsync(2), 4, milestones=lambda _: (0.5,))
    outcomes(VirtualHost(Exponential(1.0)), parts, 1)
    assert parts.state_dict() is None


def test_it_is_refused_where_it_does_not_belong():
    host, engine = VirtualHost(Exponential(1.0)), Engine(KAsync(2), 4)
    outcomes(host, engine, 2)
    state = engine.state_dict()
    with pytest.raises(InputError, match="version 2 is for a new engine of that version; this one is at 0"):
        Engine(KAsync(2), 4).load_state_dict(state)
    with pytest.raises(InputError, match="this one is at 2 and has run"):
        engine.load_state_dict(state)


def test_real_attempts_are_not_taken_up():
    class Stay:
        def init(self, _x):
            return ()

        def step(self, x, _update, state, _t):
            return x, state

    async def work(_task, x):
        return Completion(x)

    training = Training(Engine(KAsync(2), 4), AioHost(), work, np.zeros(2), aggregator=None, optimizer=Stay())
    assert training.in_flight() is None
    with pytest.raises(InputError, match="on a virtual clock only"):
        training.take_up({}, {})
