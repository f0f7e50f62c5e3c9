"""What the driver loop tells its plug-ins, and which models it keeps for them."""

import numpy as np
import pytest
from toy_problems import exponential, train

from serverless_gc.aggregate import Mean
from serverless_gc.errors import InputError
from serverless_gc.optim import SGD
from serverless_gc.policies import Deadline, KBatchAsync, KSync, Speculate
from serverless_gc.stateful import Stateful
from serverless_gc.types import FollowsSteps


class Log:
    def __init__(self):
        self.moves = []

    def after_step(self, before, after, update):
        self.moves.append((before.copy(), after.copy(), update.direction.copy()))


class Transform(Log):
    def __call__(self, arrival, _ctx):
        return arrival


class Aggregator(Log):
    def combine(self, arrivals, ctx):
        return Mean().combine(arrivals, ctx)


class Policy(Log, KSync):
    def __init__(self, k):
        Log.__init__(self)
        KSync.__init__(self, k)


def run(policy, **options):
    return train(
        policy, exponential, lambda _, x: x, np.ones(2), n_slots=4, rounds=6,
        optimizer=SGD(0.5), **{"aggregator": Mean(), **options},
    )  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: Deadline(p, 1e6), lambda p: Speculate(Deadline(p, 1e6))])
def test_transforms_aggregator_and_policy_follow_every_step(wrap):
    transform, aggregator, policy = Transform(), Aggregator(), Policy(3)
    assert isinstance(policy, FollowsSteps)
    done = run(wrap(policy), transforms=(transform,), aggregator=aggregator)
    for log in (transform, aggregator, policy):
        assert len(log.moves) == 6
        for k, (before, after, direction) in enumerate(log.moves):
            assert np.array_equal(before, done.models[k])
            assert np.array_equal(after, done.models[k + 1])
            np.testing.assert_allclose(before - 0.5 * direction, after)


def test_as_many_snapshots_as_asked_for_are_kept():
    for policy in (KSync(2), KBatchAsync(1)):
        done = run(policy, snapshots=4)
        for version in range(3, 7):
            assert np.array_equal(done.training.model_at(version), done.models[version])
    done = run(KSync(2), snapshots=4)
    with pytest.raises(InputError, match="no model of version 2 is kept"):
        done.training.model_at(2)
    with pytest.raises(InputError, match="snapshots must be at least 1, got 0"):
        run(KSync(2), snapshots=0)


def test_what_is_remembered_is_copied_both_ways():
    class Remembers(Stateful):
        remembered = ("table",)

        def __init__(self):
            self.table = {0: np.zeros(2)}

    first, second = Remembers(), Remembers()
    state = first.state_dict()
    first.table[0] += 1
    assert state["table"][0].sum() == 0
    second.load_state_dict(state)
    state["table"][0] += 5
    assert second.table[0].sum() == 0
    with pytest.raises(InputError, match="state must be what Remembers"):
        second.load_state_dict({})
