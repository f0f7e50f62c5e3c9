"""Global batches by tokens."""

import numpy as np
import pytest
from toy_problems import lin20, train

from serverless_gc.aggregate import Mean, SumOver
from serverless_gc.engine import Arrived, Engine, Failed, Issue, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.optim import SGD
from serverless_gc.policies import GlobalBatch, KBatchAsync, KSync
from serverless_gc.stragglers import Constant, Exponential, Pareto
from serverless_gc.transforms import TokenDecay


@pytest.mark.parametrize("law", [Exponential(1.0), Pareto(1.0, 2.5), Constant(1.0)])
def test_tokens_are_current_on_average_while_models_are_not(law):
    engine = Engine(GlobalBatch(4), 16, keep_records=False)
    ages = [
        (o.version - a.task.token, o.version - a.task.version)
        for o in VirtualHost(law, seed=2).simulate(engine, 1500)
        for a in o.arrivals
    ]
    token, version = np.mean(ages, axis=0)
    # what is missing at the end is what is in flight: 16 of 6000
    assert token == pytest.approx(0.0, abs=16 * 16 / 6000)
    assert version == pytest.approx(15 / 4, rel=0.01)


def test_constant_times_with_as_many_slots_are_still_not_synchronous():
    engine = Engine(GlobalBatch(8), 8, keep_records=False)
    ages = [o.version - a.task.version for o in VirtualHost(Constant(1.0)).simulate(engine, 500) for a in o.arrivals]
    assert np.mean(ages) == pytest.approx(7 / 8, rel=0.005)


def test_voided_tasks_return_their_tokens_lowest_first():
    engine = Engine(GlobalBatch(4, leftover="cancel", eager=False), 6)
    host = VirtualHost(Exponential(1.0), seed=1)
    ages = [outcome.version - a.task.token for outcome in host.simulate(engine, 200) for a in outcome.arrivals]
    # tokens of voided tasks that were not returned would run away: three new batches in two rounds
    assert abs(np.mean(ages)) < 0.1
    assert -1 <= min(ages) < max(ages) < 10


def test_tokens_of_given_up_tasks_are_handed_out_again():
    engine = Engine(GlobalBatch(2), 3, max_attempts=1)
    first = [a.task for a in engine.open(0.0) if isinstance(a, Issue)]
    assert [t.token for t in first] == [0, 0, 1]
    engine.handle(Failed(first[0], "lost"), 1.0)
    policy = engine.policy
    assert policy.state_dict()["_returned"] == [0]
    [issue] = [a for a in engine.handle(Arrived(first[1]), 2.0) if isinstance(a, Issue)]
    assert issue.task.token == 0


def sgd(policy, aggregator, transforms=(), rounds=60, n_slots=8, **options):
    problem = lin20(n=400)
    return train(
        policy, lambda rng: rng.standard_exponential(), lambda task, x: problem.sample(x, 4, task.seed), np.zeros(20),
        n_slots=n_slots, aggregator=aggregator, optimizer=SGD(0.05), transforms=transforms, rounds=rounds, **options,
    )  # fmt: skip


def test_without_a_limit_it_is_k_batch_async():
    ours = sgd(GlobalBatch(4), SumOver(4), (TokenDecay(np.inf),))
    plain = sgd(KBatchAsync(4), Mean())
    assert np.array_equal(ours.models, plain.models)


def test_switched_to_synchronous_it_is_synchronous_to_the_last_bit():
    tokens = sgd(GlobalBatch(8, leftover="cancel", eager=False), SumOver(8), (TokenDecay(0),))
    switched = sgd(KSync(8), SumOver(8), (TokenDecay(0),))
    plain = sgd(KSync(8), Mean())
    assert np.array_equal(switched.models, plain.models)
    assert np.array_equal(tokens.models, plain.models)
    assert {a.task.token - step.version for step in tokens.steps for a in step.outcome.arrivals} == {0}


def test_less_is_dropped_with_more_tolerance():
    kept = [
        sum(s.update.n_eff for s in sgd(GlobalBatch(2), SumOver(2), (TokenDecay(limit),), rounds=200).steps)
        for limit in (0, 1, 2, 4, 8)
    ]
    assert kept == sorted(kept)
    assert kept[0] < kept[-1]


def test_first_token_is_the_version_of_a_run_taken_up():
    engine = Engine(GlobalBatch(2, first_token=7), 4, version=7)
    assert [a.task.token for a in engine.open(0.0)] == [7, 7, 8, 8]
    with pytest.raises(InputError, match="first_token"):
        GlobalBatch(2, first_token=-1)
