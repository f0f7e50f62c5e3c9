"""Predicted cut-offs: results per second against waiting for all, the best fixed number, and an oracle."""

import pytest


def test_following_each_slot_beats_the_best_fixed_number(figures):
    rate = figures("policy_cutoff_2018").rate
    waiting, best_static, ours, oracle = (value for (law, _), value in rate.items() if law == "correlated")
    assert oracle > ours >= 1.08 * best_static
    assert best_static >= 1.2 * waiting


@pytest.mark.parametrize("law", ["lognormal", "shifted exponential"])
def test_nothing_is_lost_where_there_is_nothing_to_follow(law, figures):
    rate = figures("policy_cutoff_2018").rate
    assert rate[law, "forecast"] >= 0.95 * rate[law, "best fixed number"]


def test_rare_large_stragglers_are_not_what_the_filter_models(figures):
    rate = figures("policy_cutoff_2018").rate
    assert rate["rare stragglers", "forecast"] > 3 * rate["rare stragglers", "wait for all"]
    assert rate["rare stragglers", "forecast"] < rate["rare stragglers", "best fixed number"]
