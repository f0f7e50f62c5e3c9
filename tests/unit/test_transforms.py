"""Stale gradients shortened, dropped or corrected."""

from collections import deque

import numpy as np
import pytest

from serverless_gc.errors import InputError
from serverless_gc.optim import power
from serverless_gc.transforms import DelayCompensation, GapAware, PseudoGradient, StalenessAware, StepLimit, TokenDecay
from serverless_gc.types import Arrival, TaskSpec, Update, UpdateContext

RNG = np.random.default_rng(0)


def context(version, x, models=None):
    return UpdateContext(np.atleast_1d(np.asarray(x, float)), version, 0.0, RNG, lambda v: np.atleast_1d(models[v]))


def result(version, body, *, token=None, work=1.0, **stats):
    body = None if body is None else np.atleast_1d(np.asarray(body, float))
    return Arrival(TaskSpec(f"{version}-0", 0, version, token=token), 0.0, 1.0, work, body, stats)


class TestStepLimit:
    def test_the_step_is_at_most_the_limit_over_the_squared_distance(self):
        rule = StepLimit(limit=0.5, lr=power(0.2, 0.5))
        ctx = context(3, [4.0, 0.0], {1: [1.0, 0.0]})
        lr = 0.2 / 2
        shorter = rule(result(1, [1.0, 2.0]), ctx).body
        np.testing.assert_allclose(lr * shorter, min(0.5 / 9, lr) * np.array([1.0, 2.0]))

    def test_fresh_and_near_gradients_are_left_alone(self):
        rule = StepLimit(limit=0.5, lr=0.1)
        fresh = result(3, [1.0])
        assert rule(fresh, context(3, 1.0, {})) is fresh
        near = result(2, [1.0])
        assert rule(near, context(3, 1.0, {2: 0.9})) is near
        nothing = result(1, None)
        assert rule(nothing, context(3, 1.0, {1: 99.0})) is nothing

    def test_limit_is_checked(self):
        with pytest.raises(InputError, match="limit must be positive"):
            StepLimit(0.0, 0.1)


def test_staleness_aware_divides_by_the_number_of_updates():
    for version, factor in [(5, 1), (4, 1), (3, 2), (0, 5)]:
        assert StalenessAware()(result(version, 10.0), context(5, 0.0)).body == pytest.approx(10 / factor)


class TestTokenDecay:
    @pytest.mark.parametrize(
        ("token", "hard", "soft"), [(9, 1, 1), (5, 1, 1), (3, 1, 1), (2, None, 0.5), (0, None, 0.125)]
    )
    def test_factor_by_token_staleness(self, token, hard, soft):
        ctx, given = context(5, 0.0), result(5, 8.0, token=token)
        dropped = TokenDecay(2)(given, ctx)
        assert (dropped is None) if hard is None else (dropped is given)
        assert TokenDecay(2, decay=0.5)(given, ctx).body == pytest.approx(8 * soft)

    def test_without_a_token_the_version_counts(self):
        assert TokenDecay(1)(result(3, 1.0), context(5, 0.0)) is None
        assert TokenDecay(2)(result(3, 1.0), context(5, 0.0)) is not None

    def test_parameters_are_checked(self):
        with pytest.raises(InputError, match="tolerance"):
            TokenDecay(-1)
        with pytest.raises(InputError, match="decay"):
            TokenDecay(1, decay=1.0)


class TestGapAware:
    def constant_staleness(self, gap, tau, steps=4000):
        """Round robin with constant unit gradients; return the last gap."""
        models, x, lr = deque([np.zeros(1)] * (tau + 1), maxlen=tau + 1), np.zeros(1), 0.1
        for version in range(steps):
            table = dict(zip(range(version - tau, version + 1), models, strict=True))
            ctx = UpdateContext(x, version, 0.0, RNG, table.__getitem__)
            corrected = gap(result(version - tau, 1.0), ctx).body
            before, x = x, x - lr * corrected
            gap.after_step(before, x, Update(corrected))
            models.append(x)
        return 1.0 / corrected[0]

    @pytest.mark.parametrize("tau", [2, 6, 12])
    @pytest.mark.parametrize("elementwise", [True, False])
    def test_fixed_points(self, tau, elementwise):
        applied = GapAware(0.1, rho=0.9, epsilon=0.0, mode="applied", elementwise=elementwise)
        raw = GapAware(0.1, rho=0.9, epsilon=0.0, mode="raw", elementwise=elementwise)
        assert self.constant_staleness(applied, tau) == pytest.approx(1 + tau, abs=1e-9)
        assert self.constant_staleness(raw, tau) == pytest.approx((1 + np.sqrt(1 + 4 * tau)) / 2, abs=1e-9)

    def test_fresh_gradients_and_the_first_are_left_alone(self):
        gap = GapAware(0.1)
        assert gap(result(0, 3.0), context(4, 9.0, {0: 1.0})).body == 3.0
        assert gap(result(4, 7.0), context(4, 9.0, {})).body == 7.0
        assert gap(result(0, 3.0), context(4, 9.0, {0: 1.0})).body < 3.0

    def test_by_hand_elementwise_and_by_norm(self):
        lr, ctx = 0.5, context(1, [3.0, 4.0], {0: [0.0, 0.0]})
        for elementwise, expected in [(True, [1 + 3 / (lr * 6), 1 + 4 / (lr * 8)]), (False, [1 + 5 / (lr * 10)] * 2)]:
            gap = GapAware(lr, epsilon=0.0, elementwise=elementwise)
            gap(result(1, [6.0, 8.0]), ctx)
            np.testing.assert_allclose(1.0 / gap(result(0, [1.0, 1.0]), ctx).body, expected)

    def test_a_parameter_that_never_moves_has_no_gap(self):
        gap = GapAware(0.1, epsilon=0.0)
        ctx = context(1, [1.0, 1.0], {0: [1.0, 0.0]})
        gap(result(1, [0.0, 2.0]), ctx)
        np.testing.assert_array_equal(gap(result(0, [5.0, 5.0]), ctx).body, [5.0, 5.0 / (1 + 1.0 / 0.2)])

    def test_the_longest_step_so_far_counts(self):
        gap = GapAware(power(1.0, 1.0), epsilon=0.0)
        gap(result(0, 1.0), context(0, 0.0, {}))
        assert gap(result(8, 1.0), context(9, 2.0, {8: 1.0})).body == pytest.approx(1 / (1 + 1.0 / 1.0))

    def test_a_run_is_taken_up_again(self):
        first, second = GapAware(0.1), GapAware(0.1)
        ctx = context(1, 3.0, {0: 1.0})
        first(result(1, 2.0), ctx)
        second.load_state_dict(first.state_dict())
        assert second(result(0, 2.0), ctx).body == first(result(0, 2.0), ctx).body != 2.0

    def test_parameters_are_checked(self):
        for bad in ({"rho": 1.0}, {"epsilon": -1.0}, {"mode": "cooked"}):
            with pytest.raises(InputError, match=next(iter(bad))):
                GapAware(0.1, **bad)


class TestDelayCompensation:
    def late_mean(self, seed=0):
        """Mean of N(0, 1), read at 0 from 100 samples; the model is at 0.4 now."""
        samples = np.random.default_rng(seed).standard_normal(100)
        samples = (samples - samples.mean()) / samples.std()
        gradients = 0.0 - samples
        return result(0, gradients.mean(), work=100, sum_of_squares=np.array([np.sum(gradients**2)]))

    def test_per_sample_squares_find_the_fresh_gradient(self):
        ctx = context(1, 0.4, {0: 0.0})
        assert DelayCompensation(1.0)(self.late_mean(), ctx).body == pytest.approx(0.4)

    def test_squares_of_the_mean_are_smaller_by_the_number_of_samples(self):
        ctx, corrections = context(1, 0.4, {0: 0.0}), []
        for seed in range(2000):
            samples = np.random.default_rng(seed).standard_normal(100)
            late = result(0, -samples.mean(), work=100)
            corrections.append((DelayCompensation(1.0, "square")(late, ctx).body - late.body)[0])
        error = np.std(corrections) / np.sqrt(len(corrections))
        assert np.mean(corrections) == pytest.approx(0.0040, abs=3 * error)

    def test_fresh_results_and_no_weight_change_nothing(self):
        late = self.late_mean()
        assert DelayCompensation(0.0)(late, context(1, 0.4, {0: 0.0})) is late
        assert DelayCompensation(1.0)(late, context(0, 0.4, {})) is late

    def test_adaptive_weight_by_hand(self):
        rule = DelayCompensation(0.5, "square", adaptive=True, rho=0.8)
        ctx = context(1, [2.0, 2.0], {0: [1.0, 1.0]})
        first, second = np.array([1.0, 3.0]), np.array([2.0, 1.0])
        rule(result(0, first), ctx)
        mean = (0.8 * 0.2 * first**2 + 0.2 * second**2) / (0.8 * 0.2 + 0.2)
        expected = second + 0.5 / (np.sqrt(mean) + 1e-7) * second**2
        np.testing.assert_allclose(rule(result(0, second), ctx).body, expected)

    def test_missing_squares_are_named(self):
        with pytest.raises(InputError, match=r"task 0-0 delivered no stats\['sum_of_squares'\]"):
            DelayCompensation(1.0)(result(0, 1.0), context(1, 0.4, {0: 0.0}))

    def test_parameters_are_checked(self):
        for bad in ({"weight": -1.0}, {"weight": 1.0, "curvature": "flat"}, {"weight": 1.0, "rho": 1.0}):
            with pytest.raises(InputError):
                DelayCompensation(**bad)


def test_pseudo_gradient_is_taken_at_the_model_of_the_task():
    given = result(2, [1.0, 5.0])
    ctx = context(4, [9.0, 9.0], {2: [2.0, 2.0]})
    np.testing.assert_allclose(
        PseudoGradient(power(0.5, 0.5))(given, ctx).body, np.array([1.0, -3.0]) * np.sqrt(3) / 0.5
    )
    assert PseudoGradient(0.5)(result(2, None), ctx).body is None
