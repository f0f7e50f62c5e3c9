"""Uploading only what changed, waiting for the first of each group: CADA and G-CADA."""

import pytest


def test_as_many_iterations_with_far_fewer_uploads(figures):
    found = figures("policy_cada_2022")
    assert found.iterations["CADA"] == pytest.approx(found.iterations["Adam"], rel=0.1)
    assert found.uploads["CADA"] <= 0.3 * found.uploads["Adam"]


def test_the_first_of_each_group_is_enough(figures):
    found = figures("policy_cada_2022")
    grouped, lazy, asked = "grouped Adam", "G-CADA", "groups, asked if need be"
    for name in (grouped, lazy, asked):
        assert found.iterations[name] == pytest.approx(found.iterations["Adam"], rel=0.1)
        assert found.seconds[name] < 0.3 * found.seconds["Adam"]
    assert found.uploads[lazy] < 0.5 * found.uploads[grouped]
    # A worker that decides not to send has to be waited for all the same; a group that is not asked has not.
    assert found.seconds[asked] < 0.9 * found.seconds[grouped]
    assert found.uploads[asked] < found.uploads[grouped]
