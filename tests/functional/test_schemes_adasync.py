"""K-sync, K-async and AdaSync on least squares: error against time."""

import numpy as np


def test_adasync_is_near_the_best_fixed_k_at_all_times_and_best_later(figures):
    fixed = dict(figures("policy_adasync_2021").at_checkpoints)
    ours = fixed.pop("AdaSync")
    best = np.min(list(fixed.values()), axis=0)
    assert (ours <= 1.25 * best).all()
    assert (ours < best)[2:].all()
    assert all((excess >= 1.4 * ours).any() for excess in fixed.values())


def test_adasync_waits_for_one_at_first_and_for_many_in_the_end(figures):
    awaited = figures("policy_adasync_2021").awaited
    assert awaited[0] == 1
    assert awaited[-1] >= 12


def test_staleness_costs_stability(figures):
    found = figures("policy_adasync_2021")
    assert not found.stability["K-async, 1"][-1] < found.start
    assert found.stability["K-async, 1, limited step"][-1] < 2.0
    assert found.stability["K-sync, 1"][-1] < 1.5
