"""Stochastic block code: its closed form, its two ends, and an adversary who knows the blocks."""

import numpy as np
import pytest
from approx_codes import mean_within

from serverless_gc.codes.gradient.bernoulli import BernoulliCode
from serverless_gc.codes.gradient.block_model import StochasticBlockCode
from serverless_gc.errors import InputError


def blocks_of(code):
    """The hidden block of each worker, as the constructor draws it."""
    return np.random.default_rng(code.seed).permutation(code.n_workers) // code.block


@pytest.mark.parametrize(
    ("k", "load", "within", "arrived", "expected"),
    [
        (20, 4, 1.0, 15, 1.4035088),
        (20, 4, 0.6, 15, 4.3508772),
        (20, 4, 0.2, 15, 5.3333333),
        (100, 5, 0.5, 80, 19.4976077),
    ],
)
def test_one_step_error_of_the_ensemble(k, load, within, arrived, expected):
    code = StochasticBlockCode(k, k, load=load, within=within)
    assert code.ensemble_one_step_error(arrived) == pytest.approx(expected, abs=5e-8)
    assert code.load == pytest.approx(load)
    if within == load / k:
        assert BernoulliCode(k, k, load=load).ensemble_one_step_error(arrived) == pytest.approx(expected, abs=5e-8)


def test_drawn_codes_have_the_error_of_the_closed_form():
    rng, found = np.random.default_rng(5), []
    for seed in range(500):
        code = StochasticBlockCode(20, 20, load=4, within=0.6, seed=seed)
        found.append(code.weights(rng.permutation(20)[:15].tolist(), "one-step").error)
    assert mean_within(found, 4.3508772)


@pytest.mark.parametrize(
    ("within", "attacked", "attacked_sigma", "at_random", "random_sigma"),
    [(0.8, 10.4, 0.5, 1.59, 0.12), (0.5, 6.4, 0.4, 4.38, 0.22)],
)
def test_whoever_knows_the_blocks_gains_less_the_weaker_they_are(
    within, attacked, attacked_sigma, at_random, random_sigma
):
    rng, known, unknown = np.random.default_rng(1), [], []
    for seed in range(40):
        code = StochasticBlockCode(100, 100, load=5, within=within, seed=seed)
        left = np.flatnonzero(~np.isin(blocks_of(code), rng.permutation(20)[:4])).tolist()
        known.append(code.weights(left).error)
        unknown.append(code.weights(rng.permutation(100)[:80].tolist()).error)
    assert mean_within(known, attacked, extra=attacked_sigma / 4)
    assert mean_within(unknown, at_random, extra=random_sigma / 4)


def test_certain_blocks_are_fractional_repetition_behind_a_permutation():
    code = StochasticBlockCode(12, 12, load=3, within=1.0, seed=2)
    assert code.across == 0.0
    blocks = blocks_of(code)
    np.testing.assert_array_equal(code.generator, np.eye(4)[blocks][:, np.arange(12) // 3])
    assert blocks.tolist() != sorted(blocks.tolist())
    attacked = np.flatnonzero(blocks > 1).tolist()
    assert code.weights(attacked).error == pytest.approx(6.0)


def test_block_and_across_can_be_given_instead_of_the_load():
    code = StochasticBlockCode(20, 20, block=5, within=0.6, across=0.2)
    assert code.load == pytest.approx(0.6 * 5 + 0.2 * 15)
    assert code.params() == {"block": 5, "within": 0.6, "across": 0.2, "seed": 0}
    assert StochasticBlockCode(4, 4, load=4).across == 0.0


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"load": 3}, "load must divide k=8, got 3"),
        ({"block": 3, "across": 0.1}, "block must divide k=8, got 3"),
        ({"load": 2, "within": 1.2}, r"within must be in 0\.\.1, got 1.2"),
        ({"block": 2, "across": -0.1}, r"across must be in 0\.\.1"),
        ({"load": 2, "within": 0.1}, "across must be at most within=0.1"),
        ({"block": 2}, "give either load, or block and across together"),
        ({"load": 2, "block": 2, "across": 0.1}, "give either load, or block and across together"),
        ({"block": 2, "across": 0.0, "within": 0.0}, "within and across must not both be 0"),
    ],
)
def test_refusals(params, words):
    with pytest.raises(InputError, match=words):
        StochasticBlockCode(8, 8, **params)
    with pytest.raises(InputError, match="k must equal n_workers=8"):
        StochasticBlockCode(8, 10)
