"""Hybrid federated learning: late clients are merged instead of dropped."""


def test_merging_late_clients_has_neither_the_bias_nor_the_wait(figures):
    every, drop, ours = (excess[-1] for excess in figures("policy_hybrid_2021").at_checkpoints.values())
    assert ours <= 0.65 * drop
    assert ours <= 0.5 * every


def test_nobody_is_starved_and_no_result_is_used_twice(figures):
    found = figures("policy_hybrid_2021")
    assert found.least_used >= 5
    assert found.used_twice == 0
