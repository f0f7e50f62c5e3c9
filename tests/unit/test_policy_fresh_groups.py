"""Fresh results with late guests, first of each group, and who is asked."""

import math

import numpy as np
import pytest

from serverless_gc.engine import Arrived, Engine, Failed, Issue, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.policies import CADA2Trigger, FreshK, Groups, LagPSTrigger, has_changed
from serverless_gc.stragglers import Exponential, harmonic
from serverless_gc.types import Trigger, Update


def tasks_of(actions):
    return [a.task for a in actions if isinstance(a, Issue)]


class TestFreshK:
    def test_late_results_are_used_with_the_fresh_ones(self):
        engine = Engine(FreshK(2), 3)
        a, b, late = tasks_of(engine.open(0.0))
        engine.handle(Arrived(a), 1.0)
        assert len(engine.handle(Arrived(b), 1.0)[-1].arrivals) == 2
        c, d = tasks_of(engine.open(1.0))
        assert {c.slot, d.slot} == {a.slot, b.slot}
        assert engine.handle(Arrived(late), 2.0) == []
        engine.handle(Arrived(c), 2.5)
        close = engine.handle(Arrived(d), 3.0)[-1]
        assert [x.task.version for x in close.arrivals] == [0, 1, 1]

    def test_fewer_are_wanted_if_fewer_could_be_issued_and_any_if_none(self):
        engine = Engine(FreshK(3), 3)
        first = tasks_of(engine.open(0.0))
        engine.handle(Failed(first[0], "lost", retryable=False), 0.5)
        engine.handle(Arrived(first[1]), 1.0)
        engine.handle(Arrived(first[2]), 1.0)
        assert not engine.is_open
        [*_, lone] = tasks_of(engine.open(1.0))
        assert lone.version == 1

    def test_a_round_that_could_issue_nothing_closes_with_the_next_result(self):
        engine = Engine(FreshK(1), 2)
        slow, fast = tasks_of(engine.open(0.0))
        for now in (1.0, 2.0):
            engine.handle(Arrived(fast), now)
            [fast] = tasks_of(engine.open(now))
        # the fast slot's task of this round is lost for good: the late one closes the round
        assert engine.handle(Failed(fast, "lost", retryable=False), 2.5) == []
        close = engine.handle(Arrived(slow), 3.0)[-1]
        assert [a.task.version for a in close.arrivals] == [0]

    def test_nobody_left_is_an_error(self):
        engine = Engine(FreshK(1), 2, max_attempts=1)
        a, b = tasks_of(engine.open(0.0))
        assert engine.handle(Failed(a, "lost"), 1.0) == []
        assert engine.handle(Failed(b, "lost"), 1.0)[-1].outcome.error == "starved"

    def test_every_result_is_used_exactly_once(self):
        engine = Engine(FreshK(5), 8)
        rounds = list(VirtualHost(Exponential(1.0)).simulate(engine, 500))
        used = [a.task.task_id for r in rounds for a in r.arrivals]
        assert len(set(used)) == len(used)
        issued = sum(r.counts.issued for r in rounds)
        assert len(used) == issued - rounds[-1].counts.outstanding
        assert sum(r.counts.voided + r.counts.surplus for r in rounds) == 0

    def test_k_is_checked(self):
        with pytest.raises(InputError, match="k must be"):
            FreshK(0)


class TestGroups:
    def test_time_is_that_of_the_slowest_of_the_fastest(self):
        # a loop that kept spare copies would give 0.303
        for groups, expected in [
            ([range(4 * g, 4 * g + 4) for g in range(5)], 0.570833),
            ([[i] for i in range(20)], 3.597740),
        ]:
            engine = Engine(Groups(groups), 20, keep_records=False)
            *_, last = VirtualHost(Exponential(1.0), seed=4).simulate(engine, 800)
            assert harmonic(len(groups)) / (20 / len(groups)) == pytest.approx(expected, abs=1e-6)
            assert last.t_close / 800 == pytest.approx(expected, rel=0.05)

    def test_a_group_lives_as_long_as_one_member(self):
        engine = Engine(Groups([[0, 1], [2]]), 3, max_attempts=1)
        a, b, c = tasks_of(engine.open(0.0))
        assert engine.handle(Failed(a, "lost"), 1.0) == []
        engine.handle(Arrived(c), 1.0)
        assert [x.task.slot for x in engine.handle(Arrived(b), 2.0)[-1].arrivals] == [2, 1]
        a, b, c = tasks_of(engine.open(2.0))
        outcome = engine.handle(Failed(c, "lost", "reset"), 3.0)[-1].outcome
        assert outcome.reason.startswith("no member of group 1 can deliver: 1 slot was given up")

    def test_groups_are_checked(self):
        for bad in ([], [[]], [[0], []], [[0, 1], [1]]):
            with pytest.raises(InputError, match="groups must"):
                Groups(bad)

    def test_if_nobody_is_to_be_asked_the_most_silent_is(self):
        trigger = LagPSTrigger(math.inf, smoothness=1.0)
        engine = Engine(Groups([[0], [1], [2]], trigger), 3)
        asked = []
        for k in range(9):
            tasks = tasks_of(engine.open(float(k)))
            asked.append([task.slot for task in tasks])
            for task in tasks:
                engine.handle(Arrived(task), k + 0.5)
            sent = {task.slot: np.ones(1) for task in tasks}
            meta = {"sent": sent, "versions": dict.fromkeys(sent, k)}
            engine.policy.after_step(np.full(1, float(k)), np.full(1, k + 1.0), Update(np.ones(1), meta=meta))
        assert asked == [[0, 1, 2], *([[0], [1], [2]] * 3)[:8]]


class TestTriggers:
    def test_the_threshold_is_that_of_the_last_steps(self):
        trigger = CADA2Trigger(3.0, window=4, max_age=5)
        assert trigger.threshold == 0.0
        moves = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        for move in moves:
            trigger.after_step(np.zeros(2), np.array([move, 0.0]), Update(np.zeros(2)))
        assert trigger.threshold == pytest.approx(3 / 4 * (9 + 16 + 25 + 36))

    def test_age_forces_sending_and_zero_weight_always_sends(self):
        assert has_changed(0.0, 1.0, age=5, max_age=5)
        assert not has_changed(0.0, 1.0, age=4, max_age=5)
        assert has_changed(1e-300, 0.0, age=1, max_age=5)

    def test_triggers_are_triggers(self):
        for trigger, site in ((CADA2Trigger(1.0), "worker"), (LagPSTrigger(1.0), "driver")):
            assert trigger.site == site
            as_protocol: Trigger = trigger
            assert as_protocol.should_send({"change": 2.0, "threshold": 1.0, "age": 1})
            assert not as_protocol.should_send({"change": 1.0, "threshold": 1.0, "age": 1})

    def test_payload_is_all_that_a_worker_needs(self):
        trigger = CADA2Trigger(1.0, max_age=7)
        trigger.after_step(np.zeros(1), np.ones(1), Update(np.zeros(1), meta={"versions": {3: 0}}))
        assert trigger.payload(3, 4) == {"sent": 0, "age": 4, "threshold": 0.1, "max_age": 7}
        assert trigger.payload(2, 4) == {"sent": None, "age": None, "threshold": 0.1, "max_age": 7}

    def test_secants_bound_the_change(self):
        trigger = LagPSTrigger(1.0, window=1)
        H, x = 3.0, 1.0
        for k in range(2):
            after = x - 0.1 * H * x
            meta = {"sent": {0: np.array([H * x])}, "versions": {0: k}}
            trigger.after_step(np.array([x]), np.array([after]), Update(np.array([H * x]), meta=meta))
            before, x = x, after
        moved = before - x
        # skip iff H^2 |x - x_sent|^2 <= moved^2
        for step, asks in ((moved / H * 0.99, False), (moved / H * 1.01, True)):
            assert trigger.asks(0, np.array([before - step]), 2) is asks
        assert trigger.asks(1, np.array([before]), 2)
        restored = LagPSTrigger(1.0, window=1)
        restored.load_state_dict(trigger.state_dict())
        assert restored.threshold == trigger.threshold
        assert not restored.asks(0, np.array([before]), 2)

    def test_parameters_are_checked(self):
        for bad in ({"weight": -1.0}, {"weight": 1.0, "window": 0}, {"weight": 1.0, "max_age": 0}):
            with pytest.raises(InputError):
                CADA2Trigger(**bad)
        with pytest.raises(InputError, match="smoothness"):
            LagPSTrigger(1.0, smoothness=0.0)
