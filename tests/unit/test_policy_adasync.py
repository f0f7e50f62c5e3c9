"""AdaSync: how many to wait for, from the loss."""

import numpy as np
import pytest

from serverless_gc.engine import Arrived, Engine, VirtualHost
from serverless_gc.errors import InputError
from serverless_gc.policies import AdaSync, k_by_square_root, k_for_exponential
from serverless_gc.stragglers import Constant, Exponential, harmonic


def after_losses(policy, losses, n=16, seconds=1.0):
    """Number waited for in each round, the loss being what is given."""
    engine, host, seen = Engine(policy, n), VirtualHost(Constant(seconds)), []
    for loss in losses:
        engine.loss_estimate = loss
        list(host.simulate(engine, 1))
        seen.append(policy.k)
    return seen


def test_square_root_rule_follows_the_loss_both_ways():
    assert after_losses(AdaSync(2, interval=1.0), [8.0, 2.0, 8.0, 0.5, 1e-9, 0.0, 80.0]) == [2, 4, 2, 8, 16, 16, 1]
    assert after_losses(AdaSync(2, interval=1.0, monotone=True), [8.0, 2.0, 8.0, 0.5, 2.0]) == [2, 4, 4, 8, 8]


def test_exponential_rule_is_optimal():
    # K minimizes time weight * E[T_K] + noise weight / K exactly where the rule says
    rate, n = 2.0, 16
    for ratio in (0.5, 2, 5, 20, 100, 1000):
        cost = [(harmonic(n) - harmonic(n - k)) / rate + ratio / k for k in range(1, n + 1)]
        assert k_for_exponential(ratio, n, rate) == 1 + int(np.argmin(cost))
    assert [k_for_exponential(r, 16) for r in (0.5, 2, 5, 20, 100, 1000)] == [3, 5, 7, 11, 14, 16]


@pytest.mark.parametrize("k", [1, 2, 7, 15, 16])
def test_exponential_rule_is_calibrated_at_the_first_loss(k):
    seen = after_losses(AdaSync(k, interval=1.0, rule="exponential"), [5.0, 5.0, 0.05, 5e-9])
    assert seen[:2] == [k, k]
    assert k <= seen[2] <= seen[3] == 16


def test_the_loss_is_looked_at_once_per_interval():
    assert after_losses(AdaSync(1, interval=3.0), [16.0, 1.0, 1.0, 1.0, 0.25, 0.25, 0.25]) == [1, 1, 1, 4, 4, 4, 8]


def test_without_a_floor_an_irreducible_loss_keeps_k_small():
    losses = [1.0 + excess for excess in (15.0, 0.6, 0.06)]
    assert after_losses(AdaSync(1, interval=1.0), losses)[-1] == 4
    assert after_losses(AdaSync(1, interval=1.0, floor=1.0), losses)[-1] == 16


def test_without_an_estimate_the_losses_of_the_results_are_averaged():
    policy = AdaSync(1, interval=0.0)
    engine = Engine(policy, 4)
    for now, loss in enumerate((16.0, 4.0, 1.0)):
        tasks = [action.task for action in engine.open(float(now)) if hasattr(action, "task")]
        for task in tasks[: policy.k]:
            engine.handle(Arrived(task, stats={"loss": loss}), now + 0.5)
    engine.open(3.0)
    assert policy.first_loss == 16.0
    assert policy.k == 4


def test_batch_and_asynchronous_variants_share_the_rule():
    engine = Engine(AdaSync(2, interval=0.5, leftover="keep", eager=True), 8)
    engine.loss_estimate = 4.0
    host = VirtualHost(Exponential(1.0))
    list(host.simulate(engine, 20))
    engine.loss_estimate = 1.0
    assert [len(o.arrivals) for o in host.simulate(engine, 20)][-1] == 4


def test_a_run_is_taken_up_again():
    first, second = AdaSync(2, interval=1.0), AdaSync(2, interval=1.0)
    after_losses(first, [8.0, 2.0])
    second.load_state_dict(first.state_dict())
    assert (second.k, second.first_loss) == (4, 8.0)
    with pytest.raises(InputError, match="state must be what AdaSync"):
        second.load_state_dict({"k": 1})


def test_parameters_are_checked():
    with pytest.raises(InputError, match="interval must be at least 0"):
        AdaSync(1, interval=-1.0)
    with pytest.raises(InputError, match="rule must be"):
        AdaSync(1, interval=1.0, rule="cubic")
    with pytest.raises(InputError, match="for eager=False"):
        AdaSync(1, interval=1.0, rule="exponential", eager=True)
    with pytest.raises(InputError, match="k must be"):
        AdaSync(0, interval=1.0)
    assert k_by_square_root(3, 0.0, 16) == 1
