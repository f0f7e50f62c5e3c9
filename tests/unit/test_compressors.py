"""Gradients in fewer bits, and how few are possible."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from serverless_gc.errors import InputError
from serverless_gc.policies import (
    DitheredUniform,
    Sign,
    StochasticRounding,
    TopK,
    allocate_bits,
    bits_for,
    error_for,
    independent_bits,
)
from serverless_gc.policies.compress import described
from serverless_gc.types import Compressor
from serverless_gc.wire.compress import get
from serverless_gc.wire.packing import pack, unpack

ALL = [
    DitheredUniform(0.7),
    DitheredUniform(0.7, relative=True),
    StochasticRounding(0.7),
    StochasticRounding(0.7, relative=True),
    Sign(),
    TopK(5),
]
LN2 = math.log(2)


@settings(max_examples=25, deadline=None)
@given(
    arrays(
        np.int64, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5), elements=st.integers(-(2**60), 2**60)
    )
)
def test_packing_loses_nothing(whole):
    values = whole.astype(float)
    assert np.array_equal(unpack(pack(values)), values)
    assert unpack(memoryview(pack(values))).shape == whole.shape


def test_what_cannot_be_packed_is_refused():
    for bad in (np.array([np.nan]), np.array([1e30])):
        with pytest.raises(ValueError, match="values must be finite"):
            pack(bad)


@pytest.mark.parametrize("compressor", ALL, ids=repr)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (40,), (3, 5)])
def test_shapes_survive_and_seeds_decide(compressor, shape):
    g = np.asarray(np.random.default_rng(0).standard_normal(shape))
    as_protocol: Compressor = compressor
    data = as_protocol.encode(g, seed=3)
    assert isinstance(data, bytes)
    back = as_protocol.decode(memoryview(data), seed=3)
    assert back.shape == shape
    assert back.dtype == np.float64
    assert np.array_equal(back, as_protocol.decode(as_protocol.encode(g, seed=3), seed=3))


@pytest.mark.parametrize("compressor", ALL, ids=repr)
def test_the_error_has_the_variance_that_is_told(compressor):
    g = np.random.default_rng(1).standard_normal(40)
    errors = np.array([compressor.decode(compressor.encode(g, seed), seed) - g for seed in range(1500)])
    squares = np.mean(errors**2, axis=1)
    spread = 3 * squares.std() / math.sqrt(len(squares)) + 1e-12
    assert np.mean(squares) == pytest.approx(compressor.noise_var(g), abs=spread)
    mean = np.abs(errors.mean(axis=0))
    bound = 4.5 * errors.std(axis=0) / math.sqrt(len(errors)) + 1e-9
    assert (mean < bound).all() == compressor.unbiased


def test_the_error_of_dither_is_uniform_and_independent_of_the_value():
    g = np.random.default_rng(1).standard_normal(400_000)
    error = DitheredUniform(0.7).decode(DitheredUniform(0.7).encode(g, 5), 5) - g
    assert np.var(error) == pytest.approx(0.0408333, rel=0.01)
    assert np.abs(error).max() <= 0.35 + 1e-12
    assert abs(error.mean()) < 3 * error.std() / math.sqrt(g.size)
    assert abs(np.corrcoef(error, g)[0, 1]) < 0.002
    assert abs(np.corrcoef(error**2, g**2)[0, 1]) < 0.005
    rounding = StochasticRounding(0.7)
    assert np.var(rounding.decode(rounding.encode(g, 5), 5) - g) == pytest.approx(0.7**2 / 6, rel=0.01)
    assert rounding.noise_var(np.array([0.35])) == pytest.approx(0.7**2 / 4)
    assert rounding.noise_var(np.array([0.7])) == pytest.approx(0.0, abs=1e-12)


def test_entropy_is_within_a_quarter_of_a_bit_of_what_is_possible():
    rng = np.random.default_rng(0)
    g = rng.standard_normal(400_000)
    step = 0.1
    dither = rng.random(g.size) - 0.5
    conditional = []
    # given the dither the levels have an entropy; average it over a few values of the dither
    for low in np.linspace(-0.5, 0.45, 20):
        levels = np.rint(g[(dither >= low) & (dither < low + 0.05)] / step + low + 0.025)
        share = np.unique(levels, return_counts=True)[1] / levels.size
        conditional.append(-np.sum(share * np.log2(share)) + (share.size - 1) / (2 * levels.size * LN2))
    gaussian = 0.5 * math.log2(1 + 1 / (step**2 / 12))
    ideal = 0.5 * math.log2(2 * math.pi * math.e / 12)
    assert ideal == pytest.approx(0.2546, abs=5e-5)
    error = np.std(0.5 * g**2) / LN2 / math.sqrt(g.size)  # of the mean of -log2 of a Gaussian density
    assert np.mean(conditional) - gaussian == pytest.approx(ideal, abs=3 * error)


def test_zeros_need_no_bits_and_stay():
    for compressor in (DitheredUniform(2.0, relative=True), StochasticRounding(2.0, relative=True), Sign(), TopK(3)):
        assert np.array_equal(compressor.decode(compressor.encode(np.zeros(30), 1), 1), np.zeros(30))
        assert compressor.noise_var(np.zeros(30)) == compressor.noise_var(np.zeros(0)) == 0.0
    assert len(StochasticRounding(1.0).encode(np.zeros(1000), 1)) < 20


def test_parameters_are_checked():
    for make in (DitheredUniform, StochasticRounding):
        with pytest.raises(InputError, match="step must be positive"):
            make(0.0)
    with pytest.raises(InputError, match="k must be"):
        TopK(0)


class TestRates:
    @pytest.mark.parametrize(
        ("error", "n", "nats", "independent"), [(0.2, 10, 4.361616, 5.493061), (0.05, 50, 14.292902, 21.182446)]
    )
    def test_check_values(self, error, n, nats, independent):
        assert bits_for(error, n, signal=1, noise=1) * LN2 == pytest.approx(nats, abs=1e-6)
        assert independent_bits(error, n, signal=1, noise=1) * LN2 == pytest.approx(independent, abs=1e-6)
        if n == 10:
            assert bits_for(error, n, signal=1, noise=1) == pytest.approx(6.292481, abs=1e-6)

    def test_it_is_the_information_of_the_test_channel(self):
        # G_k = G + N_k, U_k = G_k + Q_k: I = log det cov(U) - log det cov(U | G_1..G_K), halved
        for n, error, signal, noise in [(3, 0.7, 1.0, 1.5), (5, 0.4, 2.0, 0.3)]:
            q = n * error - noise
            cov = signal * np.ones((n, n)) + (noise + q) * np.eye(n)
            information = 0.5 * (np.linalg.slogdet(cov)[1] - n * math.log(q)) / LN2
            assert bits_for(error, n, signal=signal, noise=noise) == pytest.approx(information)

    def test_more_bits_less_error_and_the_inverse_is_the_inverse(self):
        errors = np.geomspace(0.101, 50.0, 12)
        bits = [bits_for(e, 10, signal=1, noise=1) for e in errors]
        assert (np.diff(bits) < 0).all()
        for error, b in zip(errors, bits, strict=True):
            assert error_for(b, 10, signal=1, noise=1) == pytest.approx(error, rel=1e-9)
        assert error_for(3.0, 4, signal=1, noise=0.0) == pytest.approx(1 / (2**6 - 1))

    def test_reverse_water_filling(self):
        noises, error = np.array([0.5, 1, 2, 4, 50]), 0.4
        bits = allocate_bits(error, noises)
        np.testing.assert_allclose(bits * LN2, [0.895880, 0.549306, 0.202733, 0, 0], atol=1e-6)
        assert bits.sum() * LN2 == pytest.approx(1.647918, abs=1e-6)
        np.testing.assert_allclose(allocate_bits(error, noises[::-1]), bits[::-1])
        # the constraint holds, and shifting bits between two workers at the same error costs more
        assert np.sum((1 - 4.0**-bits) / noises) == pytest.approx(1 / error)
        for shift in (-0.05, 0.05):
            other = bits.copy()
            other[0] += shift
            rest = 1 / error - np.sum(((1 - 4.0**-other) / noises)[[0, 2]])
            other[1] = -0.5 * math.log2(1 - rest * noises[1])
            assert other.sum() > bits.sum()

    @pytest.mark.parametrize("seed", range(5))
    def test_reverse_water_filling_meets_the_error(self, seed):
        rng = np.random.default_rng(seed)
        noises = rng.uniform(0.1, 10.0, 6)
        error = rng.uniform(1.01, 5.0) / np.sum(1 / noises)
        bits = allocate_bits(error, noises)
        assert np.sum((1 - 4.0**-bits) / noises) == pytest.approx(1 / error)
        assert (bits >= 0).all()

    def test_what_is_impossible_is_refused(self):
        with pytest.raises(InputError, match=r"error must be above noise / n_workers = 0.1"):
            bits_for(0.1, 10, signal=1, noise=1)
        with pytest.raises(InputError, match=r"error must be above 0\.5"):
            allocate_bits(0.5, [1.0, 1.0])
        with pytest.raises(InputError, match="noises must be positive"):
            allocate_bits(0.5, [1.0, 0.0])
        with pytest.raises(InputError, match="n_workers must be at least 1"):
            error_for(1.0, 0, signal=1, noise=1)
        with pytest.raises(InputError, match="bits must be positive"):
            error_for(0.0, 10, signal=1, noise=1)
        with pytest.raises(InputError, match="signal"):
            bits_for(0.2, 10, signal=-1, noise=1)
        with pytest.raises(InputError, match="noise must be at least 0"):
            bits_for(0.2, 10, signal=1, noise=-1)
        with pytest.raises(InputError, match="n_workers"):
            bits_for(0.2, 0, signal=1, noise=1)


@pytest.mark.parametrize("compressor", ALL, ids=repr)
def test_workers_make_the_same_of_name_and_parameters(compressor):
    g = np.random.default_rng(1).standard_normal(30)
    worker = get(*described(compressor))
    assert worker.encode(g, seed=5) == compressor.encode(g, seed=5)


def test_a_compressor_of_a_class_of_ones_own_is_not_known_by_name():
    class Longer(DitheredUniform):
        pass

    assert described(Longer(0.1)) is None
    with pytest.raises(ValueError, match="no compressor 'Zip'"):
        get("Zip", {})
