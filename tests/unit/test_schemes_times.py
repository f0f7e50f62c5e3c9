"""Time per update and staleness of the four variants of waiting for K, at the size of a conformance check.

40,000 updates on 8 slots with K = 4. What has a closed form is compared with it; what has none is compared with draws
of whole arrays, which share no line with the engine.
"""

import numpy as np
import pytest

from serverless_gc.engine import Engine, VirtualHost
from serverless_gc.policies import Groups, KAsync, KBatchAsync, KBatchSync, KSync
from serverless_gc.stragglers import Exponential, HyperExponential, Pareto, ShiftedExponential, Uniform, harmonic

P, K, UPDATES = 8, 4, 40_000
POLICIES = [KSync, KBatchSync, KAsync, KBatchAsync]
SECONDS = {  # per update, a column for each of the policies
    "exponential": (Exponential(1.0), (0.6345, 0.5, 0.6345, 0.5)),
    "shifted": (ShiftedExponential(0.5, 1.0), (1.1345, 1.112, 0.920, 0.75)),
    "uniform": (Uniform(0.0, 2.0), (0.8889, 0.772, 0.625, 0.5)),
    "pareto": (Pareto(1.0, 2.2), (1.351, 1.351, 1.144, 0.9167)),
    "hyper-exponential": (HyperExponential([0.2, 8.2], [0.9, 0.1]), (0.152, 0.115, 0.713, 0.5)),
}
STALENESS = {KSync: 0.0, KBatchSync: 0.0, KAsync: P / K - 1, KBatchAsync: (P - 1) / K}


def run(policy, law, n_slots, *, rounds=UPDATES):
    host = VirtualHost(law)
    return host, host.simulate(Engine(policy, n_slots, keep_records=False), rounds)


def drawn(policy, law, rng):
    """Mean time of an update from arrays of draws."""
    if policy is KSync:
        return np.partition(law.totals(1.0, rng, (UPDATES, P)), K - 1, axis=1)[:, K - 1].mean()
    if policy is KBatchSync:  # a slot's results come at the partial sums of its draws
        arrivals = law.totals(1.0, rng, (UPDATES, P, K)).cumsum(axis=2).reshape(UPDATES, -1)
        return np.partition(arrivals, K - 1, axis=1)[:, K - 1].mean()
    copies, warm_up, rounds = 400, 100, 200  # what is kept from round to round: many runs side by side
    left, times = law.totals(1.0, rng, (copies, P)), []
    for _ in range(warm_up + rounds):
        left.sort(axis=1)
        times.append(left[:, K - 1].mean())
        left -= left[:, K - 1 : K]
        left[:, :K] = law.totals(1.0, rng, (copies, K))
    return np.mean(times[warm_up:])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
@pytest.mark.parametrize("name", SECONDS)
def test_time_per_update_and_staleness(name, policy):
    law, row = SECONDS[name]
    expected = row[POLICIES.index(policy)]
    # every draw counts where all are used: a mean of 160,000 of this law has a standard error of 0.9 %
    updates = 3 * UPDATES if name == "hyper-exponential" and policy in {KAsync, KBatchAsync} else UPDATES
    ages, last = [], None
    for last in run(policy(K), law, P, rounds=updates)[1]:
        ages += [last.version - arrival.task.version for arrival in last.arrivals]
    seconds = last.t_close / updates
    assert seconds == pytest.approx(expected, rel=0.015)
    assert (len(ages), min(ages) >= 0) == (K * updates, True)
    assert np.mean(ages) == pytest.approx(STALENESS[policy], rel=0.005, abs=0)
    if policy is KBatchAsync:  # every slot is always busy
        assert seconds == pytest.approx(K * law.mean() / P, rel=0.015)
        return
    assert seconds == pytest.approx(drawn(policy, law, np.random.default_rng(1)), rel=0.015)
    if policy is KSync:
        assert seconds == pytest.approx(law.mean_order_stat(K, P), rel=0.015)


def test_closed_forms_for_exponential_times():
    law, (k_sync, k_batch_sync, k_async, _) = SECONDS["exponential"]
    assert k_sync == k_async == pytest.approx(harmonic(P) - harmonic(P - K), abs=5e-5)
    assert k_batch_sync == K / P * law.mean()
    for slots, ratio in [(8, 21.7), (16, 54.1)]:  # asynchronous updates, each of one result, per synchronous one
        assert law.mean_order_stat(slots, slots) * slots == pytest.approx(ratio, abs=0.05)


def test_whether_keeping_beats_cancelling_depends_on_the_hazard():
    for name, keep_wins in [("shifted", True), ("uniform", True), ("pareto", True), ("hyper-exponential", False)]:
        cancel, _, keep, _ = SECONDS[name][1]
        assert (keep < cancel) is keep_wins


def test_asynchronous_staleness_is_geometric():
    slots, rounds = 4, UPDATES
    ages = [o.version - o.arrivals[0].task.version for o in run(KAsync(1), Exponential(1.0), slots, rounds=rounds)[1]]
    seen = np.bincount(ages, minlength=200) / rounds
    geometric = (1 / slots) * (1 - 1 / slots) ** np.arange(len(seen))
    assert (np.abs(seen - geometric).sum() + 1 - geometric.sum()) / 2 < 0.01


@pytest.mark.parametrize(
    ("shift", "busy", "billed", "zombies"),
    [(0.3, 12.8, 20.8, 8 / (0.3 + harmonic(16) - harmonic(8))), (0.0, 8.0, 16.0, 12.07)],
)
def test_busy_seconds_billed_seconds_and_zombies(shift, busy, billed, zombies):
    n, k = 16, 8
    assert (n * shift + k, n * (shift + 1)) == (pytest.approx(busy), pytest.approx(billed))
    host, rounds = run(KSync(k), ShiftedExponential(shift, 1.0), n)
    seconds, last = 0.0, None
    for last in rounds:
        seconds += last.counts.busy_used + last.counts.busy_wasted
    assert seconds / UPDATES == pytest.approx(busy, rel=0.015)
    assert (seconds + host.ignored_seconds) / UPDATES == pytest.approx(billed, rel=0.015)
    assert host.ignored_seconds / last.t_close == pytest.approx(zombies, rel=0.015)
    assert host.peak_since(0.0) > n + zombies


def test_groups_start_each_round_afresh():
    # spare copies kept from the round before would give 0.303
    groups = [range(4 * g, 4 * g + 4) for g in range(5)]
    assert harmonic(5) / 4 == pytest.approx(0.570833, abs=5e-7)
    *_, last = run(Groups(groups), Exponential(1.0), 20)[1]
    assert last.t_close / UPDATES == pytest.approx(0.570833, rel=0.015)
