"""Natural gradient, L-BFGS from changing sets of slots, sketched Newton."""

import math

import numpy as np
import pytest
from toy_problems import exponential, lin20, log20, train

from serverless_gc.aggregate import AverageStats, KeepSlots, Mean, StackStats
from serverless_gc.engine import Completion
from serverless_gc.errors import InputError
from serverless_gc.optim import LBFGS, SGD, NaturalGradient, Searched, SketchedNewton, learned_precision
from serverless_gc.policies import KSync, WaitAll
from serverless_gc.types import Update


def one_step(rule, x, direction, **meta):
    return rule.step(x, Update(direction, meta=meta), rule.init(x), 0)[0]


class TestNaturalGradient:
    def test_full_fisher_solves_least_squares_in_one_step(self):
        problem, x = lin20(n=400), np.full(20, 3.0)
        rule = NaturalGradient(1.0, "full", memory=0.9)
        after = one_step(rule, x, problem.gradient(x, slice(None)), fisher=problem.gram)
        np.testing.assert_allclose(after, problem.best, atol=1e-12)

    def test_full_fisher_of_logistic_regression_is_newton(self):
        problem, x = log20(), np.full(20, 0.1)
        after = one_step(NaturalGradient(1.0, "full"), x, problem.gradient(x), fisher=problem.hessian(x))
        np.testing.assert_allclose(after, x - np.linalg.solve(problem.hessian(x), problem.gradient(x)), atol=1e-12)

    @pytest.mark.parametrize("kind", ["full", "diag"])
    def test_invariance_under_a_change_of_parameters(self, kind):
        rng = np.random.default_rng(0)
        per_sample = rng.standard_normal((50, 4))
        theta = rng.standard_normal(4)

        def moved(A):
            """One step in phi with theta = A phi, seen in theta."""
            g = per_sample @ A
            meta = {"fisher": g.T @ g / 50} if kind == "full" else {"sum_of_squares": np.mean(g**2, axis=0)}
            return A @ one_step(NaturalGradient(0.3, kind), np.linalg.solve(A, theta), g.mean(axis=0), **meta)

        general, diagonal = rng.standard_normal((4, 4)), np.diag([1.0, 5.0, 0.1, 30.0])
        np.testing.assert_allclose(moved(diagonal), moved(np.eye(4)), atol=1e-12)
        same = np.allclose(moved(general), moved(np.eye(4)), atol=1e-10)
        assert same == (kind == "full")

    def test_blocks_are_solved_one_by_one(self):
        rng = np.random.default_rng(1)
        root, g = rng.standard_normal((9, 5)), rng.standard_normal(5)
        fisher = root.T @ root
        after = one_step(NaturalGradient(1.0, "block", blocks=(2, 3), damping=0.1), np.zeros(5), g, fisher=fisher)
        expected = [
            np.linalg.solve(fisher[s, s] + 0.1 * np.eye(s.stop - s.start), g[s]) for s in (slice(0, 2), slice(2, 5))
        ]
        np.testing.assert_allclose(after, -np.concatenate(expected))

    def test_a_parameter_that_nothing_depends_on_stays(self):
        squares, slope = np.array([4.0, 1e-32, 0.0]), np.array([2.0, 1e-16, 0.0])
        after = one_step(NaturalGradient(1.0), np.zeros(3), slope, sum_of_squares=squares)
        np.testing.assert_array_equal(after, [-0.5, 0.0, 0.0])

    def test_memory_is_an_exponential_mean_corrected_for_its_start(self):
        rule, x = NaturalGradient(1.0, memory=0.75), np.zeros(1)
        state = rule.init(x)
        for t, square in enumerate([4.0, 8.0, 2.0]):
            before = x
            x, state = rule.step(x, Update(np.ones(1), meta={"sum_of_squares": np.array([square])}), state, t)
        mean = (0.75**2 * 4 + 0.75 * 8 + 2) / (0.75**2 + 0.75 + 1)
        assert before - x == pytest.approx(1 / mean)

    def test_no_results_are_no_step(self):
        rule, x = NaturalGradient(1.0), np.ones(2)
        state = rule.init(x)
        assert rule.step(x, Update(np.zeros(2), n_eff=0.0), state, 0) == (x, state)

    def test_the_loop_brings_the_estimates(self):
        problem = lin20(n=400)

        def work(task, x):
            rows = slice(100 * task.slot, 100 * (task.slot + 1))
            X = problem.X[rows]
            return Completion(problem.gradient(x, rows), work_done=100, stats={"fisher": X.T @ X})

        run = train(
            WaitAll(), exponential, work, np.zeros(20), n_slots=4,
            aggregator=AverageStats(Mean(), "fisher"), optimizer=NaturalGradient(1.0, "full"), rounds=1,
        )  # fmt: skip
        np.testing.assert_allclose(run.models[-1], problem.best, atol=1e-12)

    def test_learned_precision_is_the_fixed_point(self):
        rng = np.random.default_rng(3)
        e = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 3))
        precision = learned_precision(e)

        def free_energy(P):
            return 0.5 * np.mean(np.einsum("ni,ij,nj->n", e, P, e)) - 0.5 * np.linalg.slogdet(P)[1]

        for _ in range(20):
            d = rng.standard_normal((3, 3))
            assert free_energy(precision + 1e-3 * (d + d.T)) > free_energy(precision)
        np.testing.assert_allclose(learned_precision(np.zeros((5, 2)), damping=0.5), 2 * np.eye(2))

    def test_what_is_wrong_is_named(self):
        x = np.zeros(2)
        with pytest.raises(InputError, match=r"needs meta\['sum_of_squares'\] of shape \(2,\) .* got none"):
            one_step(NaturalGradient(1.0), x, np.ones(2))
        with pytest.raises(InputError, match=r"needs meta\['fisher'\] of shape \(2, 2\) .* got \(2,\)"):
            one_step(NaturalGradient(1.0, "full"), x, np.ones(2), fisher=np.ones(2))
        with pytest.raises(np.linalg.LinAlgError):
            one_step(NaturalGradient(1.0, "full"), x, np.ones(2), fisher=np.zeros((2, 2)))
        with pytest.raises(np.linalg.LinAlgError, match="damp more"):
            one_step(NaturalGradient(1.0), x, np.ones(2), sum_of_squares=np.zeros(2))
        for bad in ({"kind": "odd"}, {"damping": -1.0}, {"memory": 1.0}, {"blocks": (2,)}, {"kind": "block"}):
            with pytest.raises(InputError, match=next(iter(bad)) if bad != {"kind": "block"} else "blocks"):
                NaturalGradient(1.0, **bad)
        with pytest.raises(InputError, match="add up to the number of parameters, 2"):
            NaturalGradient(1.0, "block", blocks=(3,)).init(x)


class TestLBFGS:
    def test_a_quadratic_is_solved_far_faster_than_by_gradient_descent(self):
        H = np.geomspace(1, 1000, 12)
        x, rule = np.ones(12), LBFGS(1.0, memory=12)
        state = rule.init(x)
        x, state = rule.step(x, Update(H * x / 1000), state, 0)
        for t in range(80):
            x, state = rule.step(x, Update(H * x / 1000), state, t + 1)
        assert np.max(np.abs(H * x)) < 0.02
        descent = (1 - H / 1000) ** 80
        assert np.max(np.abs(H * descent)) > 0.5

    def test_steps_without_a_pair_are_no_longer_than_the_rate(self):
        far = one_step(LBFGS(0.5), np.zeros(2), np.array([300.0, 400.0]))
        np.testing.assert_allclose(far, [-0.3, -0.4])
        np.testing.assert_allclose(one_step(LBFGS(0.5), np.zeros(2), np.array([0.3, 0.4])), [-0.15, -0.2])

    def test_pairs_are_of_common_slots_only(self):
        rule, x = LBFGS(0.1), np.array([1.0, 2.0])
        H = {slot: np.diag([1.0 + slot, 2.0]) for slot in range(4)}

        def update(x, slots):
            g = {slot: H[slot] @ x for slot in slots}
            return Update(np.mean(list(g.values()), axis=0), meta={"slots": g})

        state = rule.init(x)
        seen = []
        for t, slots in enumerate([(0, 1), (1, 2), (3,), (0, 3)]):
            before = x
            x, state = rule.step(x, update(x, slots), state, t)
            seen.append(len(state[0]))
        assert seen == [0, 1, 1, 2]
        s, change = state[0][-1], state[1][-1]
        np.testing.assert_allclose(change, H[3] @ s)
        np.testing.assert_allclose(state[1][0], H[1] @ state[0][0])
        assert not np.array_equal(before, x)

    def test_pairs_that_do_not_curve_upwards_are_skipped(self):
        rule, x = LBFGS(0.1), np.array([1.0])
        state = rule.init(x)
        for t in range(3):
            x, state = rule.step(x, Update(-x), state, t)
        assert len(state[0]) == 0

    def test_memory_is_limited_and_a_run_is_taken_up_again(self):
        problem, rule = log20(), LBFGS(0.5, memory=3)
        x = np.zeros(20)
        state, half = rule.init(x), None
        for t in range(12):
            if t == 6:
                half = x, tuple(np.array(part) for part in state)
            x, state = rule.step(x, Update(problem.gradient(x)), state, t)
        assert len(state[0]) == 3
        again, old = half
        for t in range(6, 12):
            again, old = rule.step(again, Update(problem.gradient(again)), old, t)
        assert np.array_equal(again, x)

    def test_it_converges_with_whoever_is_fast(self):
        problem = log20()

        def work(task, x):
            return problem.gradient(x, slice(500 * task.slot, 500 * (task.slot + 1)))

        def run(optimizer):
            return train(
                KSync(6), exponential, work, np.zeros(20), n_slots=8,
                aggregator=KeepSlots(Mean()), optimizer=optimizer, rounds=40,
            )  # fmt: skip

        ours, plain = run(LBFGS(0.5)), run(SGD(1.0))
        floor = np.mean([problem.excess(x) for x in ours.models[20:]])
        assert floor < 0.1 * np.mean([problem.excess(x) for x in plain.models[20:]]) + 2e-3
        assert floor < 0.01 * problem.excess(np.zeros(20))

    def test_memory_is_checked(self):
        with pytest.raises(InputError, match="memory must be at least 1"):
            LBFGS(memory=0)


def count_sketch(matrix, rows, rng):
    """Sketch with ``E[S.T S] = 1``: every row goes to one of ``rows`` buckets, with a random sign."""
    out = np.zeros((rows, matrix.shape[1]))
    np.add.at(out, rng.integers(rows, size=len(matrix)), matrix * rng.choice([-1.0, 1.0], len(matrix))[:, None])
    return out


class TestSketchedNewton:
    def test_with_the_whole_root_it_is_newton(self):
        problem, x = log20(), np.full(20, 0.1)
        p = problem.probabilities(x)
        root = problem.X * np.sqrt(p * (1 - p) / problem.n)[:, None]
        after = one_step(SketchedNewton(l2=problem.l2), x, problem.gradient(x), hessian_root=root)
        np.testing.assert_allclose(after, x - np.linalg.solve(problem.hessian(x), problem.gradient(x)), atol=1e-12)

    def test_a_tall_root_is_solved_as_it_is(self):
        rng = np.random.default_rng(4)
        root = rng.standard_normal((40, 6)) * np.geomspace(1e-6, 1, 6)  # squared it would be singular
        g = root.T @ (root @ np.ones(6))
        np.testing.assert_allclose(one_step(SketchedNewton(), np.zeros(6), g, hessian_root=root), -1, rtol=1e-3)

    def test_a_singular_hessian_gives_the_least_norm_step(self):
        root = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]])
        g = root.T @ np.array([1.0, 3.0])
        after = one_step(SketchedNewton(), np.zeros(3), g, hessian_root=root)
        np.testing.assert_allclose(after, -np.linalg.pinv(root.T @ root) @ g, atol=1e-12)

    def test_fewer_rows_than_parameters_and_a_regularizer(self):
        rng = np.random.default_rng(0)
        root, g = rng.standard_normal((3, 8)), rng.standard_normal(8)
        after = one_step(SketchedNewton(l2=0.3), np.zeros(8), g, hessian_root=root)
        np.testing.assert_allclose(after, -np.linalg.solve(root.T @ root + 0.3 * np.eye(8), g), atol=1e-12)

    def test_any_blocks_of_the_sketch_will_do(self):
        problem = log20()

        def work(task, x):
            """Sketch of the whole root, 60 rows a worker; the gradient from it is exact, to see the Hessian's part."""
            p = problem.probabilities(x)
            root = problem.X * np.sqrt(p * (1 - p) / problem.n)[:, None]
            sketch = count_sketch(root, 60, np.random.default_rng(task.seed))
            return Completion(problem.gradient(x), stats={"hessian_root": sketch})

        run = train(
            KSync(6), exponential, work, np.zeros(20), n_slots=8,
            aggregator=StackStats(Mean()), optimizer=SketchedNewton(l2=problem.l2), rounds=8,
        )  # fmt: skip
        excess = [problem.excess(x) for x in run.models]
        assert excess[-1] < 1e-6 * excess[0]

    def test_what_is_wrong_is_named(self):
        with pytest.raises(InputError, match=r"needs meta\['hessian_root'\] of shape \(rows, 2\)"):
            one_step(SketchedNewton(), np.zeros(2), np.ones(2))
        with pytest.raises(InputError, match="l2"):
            SketchedNewton(l2=-1.0)
        rule, x = SketchedNewton(), np.ones(2)
        assert rule.step(x, Update(np.zeros(2), n_eff=0.0), (), 0) == (x, ())
        assert math.isfinite(rule.lr)


class TestSearched:
    @staticmethod
    def drive(rule, f, x, state, meta):
        """Make one step; return where it ended and the points that were tried."""
        value, gradient = f(x)
        trials, points = rule.search(x, value, gradient, state, meta), []
        try:
            points.append(next(trials))
            while True:
                points.append(trials.send(f(points[-1])))
        except StopIteration as stop:
            return stop.value, points

    def test_the_full_step_is_tried_first_and_taken_where_it_is_right(self):
        H = np.diag([4.0, 9.0])
        rule, x = Searched(SketchedNewton()), np.array([1.0, -2.0])
        end, points = self.drive(
            rule, lambda z: (z @ H @ z / 2, H @ z), x, rule.init(x), {"hessian_root": np.diag([2.0, 3.0])}
        )
        assert len(points) == 1
        np.testing.assert_allclose(end.x, 0, atol=1e-15)
        assert end.known[0] == pytest.approx(0)
        assert end.state[0] == pytest.approx(1)

    def test_steps_that_overshoot_are_cut_back(self):
        rule, x = Searched(SketchedNewton()), np.array([2.0])
        end, points = self.drive(
            rule, lambda z: (z @ z / 2, z), x, rule.init(x), {"hessian_root": np.full((1, 1), 0.2)}
        )
        assert points[0] == pytest.approx(-48)
        assert end.known[0] < 2
        assert 0 < end.state[0] < 0.1

    def test_the_last_length_is_the_next_first_one_where_steps_have_none_of_their_own(self):
        rule, x = Searched(NaturalGradient(1.0, memory=0.0), remembers=True), np.array([2.0])
        end, _ = self.drive(rule, lambda z: (z @ z / 2, z), x, rule.init(x), {"sum_of_squares": np.full(1, 50.0)})
        length = float(end.state[0][0])
        assert length > 4
        again, points = self.drive(
            rule, lambda z: (z @ z / 2, z), end.x, end.state, {"sum_of_squares": np.full(1, 50.0)}
        )
        assert points[0] == pytest.approx(end.x * (1 - length / 50))
        assert again.known[0] < end.known[0]

    def test_without_curvature_the_gradient_leads(self):
        rule, x = Searched(SketchedNewton()), np.array([30.0])

        def huber(z):
            return float(np.abs(z[0]) - 0.5 if abs(z[0]) > 1 else z[0] ** 2 / 2), np.clip(z, -1, 1)

        end, _ = self.drive(rule, huber, x, rule.init(x), {"hessian_root": np.zeros((3, 1))})
        assert end.stuck == ""
        assert end.known[0] < 10
        least, points = self.drive(rule, huber, np.zeros(1), rule.init(x), {"hessian_root": np.ones((1, 1))})
        assert points == []
        assert "no step along the gradient" in least.stuck

    def test_most_trials_is_checked(self):
        with pytest.raises(InputError, match="most_trials must be at least 1"):
            Searched(SketchedNewton(), most_trials=0)
