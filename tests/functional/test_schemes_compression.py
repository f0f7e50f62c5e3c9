"""Fewer bits, better weights, better steps: gradients quantized, weighted by precision, preconditioned."""

import pytest


def test_five_times_fewer_bits_at_hardly_more_error(figures):
    found = figures("policy_ceo_2021")
    assert 5 * found.sent["step 1.5 rms"] <= found.sent["float32"]
    assert found.floor["step 1.5 rms"] <= 1.4 * found.floor["float32"]
    assert found.floor["step 4 rms"] > found.floor["step 1.5 rms"]


def test_quantizers_have_the_error_that_was_planned(figures):
    for ratio in figures("policy_ceo_2021").variance_ratio.values():
        assert ratio == pytest.approx(1, abs=0.05)


def test_the_correlation_between_workers_is_worth_bits(figures):
    fewest, independent = figures("policy_ceo_2021").bits.values()
    assert (fewest < independent).all()


def test_noisy_workers_no_longer_set_the_floor(figures):
    mean, ours, best = figures("policy_precision_2021").floor.values()
    assert mean >= 20 * ours
    assert ours <= 1.3 * best


def test_badly_scaled_features_do_not_matter(figures):
    left = figures("policy_precision_2021").left_at_the_end
    assert left["gradient descent"] > 0.1
    assert left["diagonal Fisher"] < 1e-6
