"""Bernoulli codes: the closed forms of the ensemble, trimming, partitions that nobody holds."""

import numpy as np
import pytest
from approx_codes import mean_within

from serverless_gc.codes.gradient.bernoulli import BernoulliCode, RegularizedBernoulliCode
from serverless_gc.codes.manifests import manifest_to_bytes
from serverless_gc.errors import InputError


def ensemble_errors(make, arrived, trials, method):
    """Errors over draws of matrix and arrivals."""
    found, rng = [], np.random.default_rng(7)
    for seed in range(trials):
        code = make(seed)
        found.append(code.weights(rng.permutation(code.n_workers)[:arrived].tolist(), method).error)
    return found


def test_one_step_error_of_the_ensemble():
    assert BernoulliCode(100, 100, load=5).ensemble_one_step_error(80) == pytest.approx(23.75)
    assert BernoulliCode(12, 12, load=3).ensemble_one_step_error(8) == pytest.approx(4.5)
    assert BernoulliCode(30, 30, load=5).ensemble_one_step_error(20) == pytest.approx(7.5)
    for make, arrived in (
        (lambda seed: BernoulliCode(12, 12, load=3, seed=seed), 8),
        (lambda seed: BernoulliCode(9, 14, load=4, seed=seed), 6),
    ):
        expected = make(0).ensemble_one_step_error(arrived)
        assert mean_within(ensemble_errors(make, arrived, 600, "one-step"), expected)


def test_optimal_error_of_the_ensemble_agrees_with_the_reference_figures():
    found = ensemble_errors(lambda seed: BernoulliCode(30, 30, load=5, seed=seed), 20, 300, "optimal")
    assert mean_within(found, 2.68, extra=0.11 / 4)
    low, high = BernoulliCode(30, 30, load=5).ensemble_bounds(20)
    assert low < np.mean(found) < high


@pytest.mark.parametrize(
    ("kind", "method", "reference", "four_sigma"),
    [
        (BernoulliCode, "optimal", 5.72, 0.12),
        (RegularizedBernoulliCode, "optimal", 5.67, 0.20),
        (RegularizedBernoulliCode, "one-step", 21.61, 0.36),
    ],
)
def test_reference_figures_at_one_hundred(kind, method, reference, four_sigma):
    found = ensemble_errors(lambda seed: kind(100, 100, load=5, seed=seed), 80, 60, method)
    assert mean_within(found, reference, extra=four_sigma / 4)


def test_trimmed_rows_and_columns():
    plain, trimmed = BernoulliCode(60, 60, load=2, seed=1), RegularizedBernoulliCode(60, 60, load=2, seed=1)
    assert plain.generator.sum(axis=1).max() > 4
    assert plain.generator.sum(axis=0).max() > 4
    for axis in (0, 1):
        assert trimmed.generator.sum(axis=axis).max() <= 4
    assert (trimmed.generator <= plain.generator).all()
    kept = plain.generator.sum(axis=1) <= 4
    columns = plain.generator.sum(axis=0) <= 4
    untouched = trimmed.generator[kept][:, columns] == plain.generator[kept][:, columns]
    assert untouched.all()


def test_uncovered_partitions_and_idle_workers_are_no_errors():
    code = BernoulliCode(12, 12, load=1, seed=0)
    empty = np.flatnonzero(~code.generator.any(axis=0))
    assert code.uncovered == tuple(empty) != ()
    assert code.weights(range(12)).error >= len(empty)
    assert code.worst_error(0) == code.expected_error(12) == pytest.approx(code.weights(range(12)).error)
    idle = int(np.flatnonzero(~code.generator.any(axis=1))[0])
    assert code.tracker().add(idle).missing == tuple(range(12))
    assert code.row(idle)[0] == ()


def test_manifests_are_compact():
    code = BernoulliCode(1000, 1000, load=5)
    assert len(manifest_to_bytes(code.manifest())) < 25_000


@pytest.mark.parametrize(
    ("kind", "load", "words"),
    [
        (BernoulliCode, 0.5, r"load must be in 1\.\.8, got 0.5"),
        (BernoulliCode, 9, r"load must be in 1\.\.8, got 9"),
        (BernoulliCode, float("nan"), "load must be"),
        (BernoulliCode, "3", "load must be a number, got '3'"),
        (RegularizedBernoulliCode, 2.5, "load must be a whole number for 'rbgc', got 2.5: round it, or take 'bgc'"),
    ],
)
def test_refusals(kind, load, words):
    with pytest.raises(InputError, match=words):
        kind(8, 8, load=load)
    with pytest.raises(InputError, match="seed must be"):
        kind(8, 8, seed=-1)
