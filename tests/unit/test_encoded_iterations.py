"""Encoded optimization: the four iterations with random sets of workers, against guarantee and exact solution."""

import numpy as np
import pytest
from encoded_2017 import WORKERS as M
from encoded_2017 import Problem

from serverless_gc.codes.encoded.frames import deviation, make_frame, suboptimality
from serverless_gc.errors import InputError
from serverless_gc.optim.encoded import (
    AskSteps,
    coordinate_descent,
    gradient_descent,
    lbfgs,
    proximal_gradient,
    safe_step,
)
from serverless_gc.optim.proximal import soft_threshold


def test_a_consistent_system_is_solved_exactly():
    problem = Problem(noise=0.0)
    done = problem.descend(600, 24)
    np.testing.assert_allclose(done[-1].w, problem.best, rtol=1e-8)


def test_lbfgs_needs_far_fewer_steps_and_keeps_to_the_guarantee():
    problem = Problem(condition=10.0)
    data = np.c_[problem.X, problem.y]
    e = max(deviation(problem.frame, problem.rng.permutation(M)[:28], data) for _ in range(20))
    run = lbfgs(np.zeros(20), n_workers=M, beta=problem.frame.beta, backoff=(1 - e) / (1 + e))
    done = problem.drive(run, 40, 28)
    assert problem.loss(done[-1].w) <= problem.loss(problem.best) * suboptimality(e)
    slow = problem.descend(20, 28)
    best = problem.loss(problem.best)
    assert problem.loss(done[19].w) - best < 0.1 * (problem.loss(slow[-1].w) - best)


def test_lbfgs_with_everybody_is_exact_and_skips_pairs_of_strangers():
    problem = Problem()
    everybody = problem.drive(lbfgs(np.zeros(20), n_workers=M, beta=problem.frame.beta, backoff=1.0), 30, M)
    np.testing.assert_allclose(everybody[-1].w, problem.best, rtol=1e-8)
    # Two halves that never meet: no curvature pair, so every direction is the steepest descent's.
    run = lbfgs(np.zeros(20), n_workers=M, beta=problem.frame.beta)
    ask, halves = next(run), [range(16), range(16, 32)]
    for t in range(6):
        answers = {i: problem.answer(ask, *problem.parts[i]) for i in halves[t % 2]}
        estimate = sum(answers.values()) * M / (16 * problem.frame.beta)
        ask = run.send(answers)
        np.testing.assert_allclose(ask.d, -estimate, rtol=1e-12)
        ask = run.send({i: problem.answer(ask, *problem.parts[i]) for i in halves[t % 2]})
        ask = run.send({})


def test_proximal_gradient_finds_the_sparse_solution_of_the_whole_data():
    problem = Problem(noise=0.1)
    weight = 40.0
    step = safe_step(np.linalg.eigvalsh(problem.X.T @ problem.X)[-1], M, M)
    run = proximal_gradient(np.zeros(20), step=step, n_workers=M, beta=problem.frame.beta, prox=soft_threshold(weight))
    w = problem.drive(run, 400, M)[-1].w
    gradient = problem.X.T @ (problem.X @ w - problem.y)
    # Optimality of the lasso: the gradient balances the penalty where w is not zero, and is smaller where it is.
    np.testing.assert_allclose(gradient[w != 0], -weight * np.sign(w[w != 0]), rtol=1e-6)
    assert np.abs(gradient[w == 0]).max(initial=0) <= weight * (1 + 1e-9)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_coordinate_descent_converges_to_the_exact_solution_with_any_stragglers(loss):
    rng = np.random.default_rng(3)
    n, p, m = 60, 6, 8
    X = rng.normal(size=(n, p))
    frame = make_frame("hadamard", p, m, seed=2)
    parts = {i: frame.matrix[frame.part(i)] for i in range(m)}
    blocks = {i: X @ part.T for i, part in parts.items()}
    y = X @ rng.normal(size=p) + rng.normal(size=n) if loss == "squared" else np.sign(rng.normal(size=n))
    slope = {"squared": lambda z: z - y, "logistic": lambda z: -y / (1 + np.exp(y * z))}[loss]
    smooth = 1.0 if loss == "squared" else 0.25
    step = 1 / (smooth * np.linalg.eigvalsh(X.T @ X)[-1] * frame.beta)
    run = coordinate_descent(n, parts, slope, step=step)
    ask = next(run)
    for _ in range(6000):
        assert isinstance(ask, AskSteps)
        answers = {}
        for i in rng.permutation(m)[:5]:
            u = blocks[i].T @ ask.r
            answers[int(i)] = np.concatenate([u, blocks[i] @ u])
        done = run.send(answers)
        ask = run.send({})
    assert np.abs(X.T @ slope(X @ done.w)).max() < 1e-7


def test_bad_parameters_are_named():
    for call, match in [
        (lambda: next(gradient_descent(np.zeros(1), step=0, n_workers=1, beta=1)), "step must be positive"),
        (lambda: next(lbfgs(np.zeros(1), n_workers=1, beta=1, memory=0)), "memory must be at least 1"),
        (lambda: next(lbfgs(np.zeros(1), n_workers=1, beta=1, backoff=1.5)), r"backoff must be in \(0, 1\]"),
        (lambda: safe_step(1.0, 4, 5), "wait must be in 1..n_workers=4, got 5".replace(".", r"\.")),
        (lambda: safe_step(0.0, 4, 4), "largest_eigenvalue must be positive"),
        (lambda: soft_threshold(-1.0), "weight must be at least 0"),
        (lambda: next(coordinate_descent(1, {}, lambda z: z, step=-1)), "step must be positive"),
    ]:
        with pytest.raises(InputError, match=match):
            call()
    run = gradient_descent(np.zeros(1), step=1, n_workers=1, beta=1)
    next(run)
    with pytest.raises(InputError, match="no worker answered"):
        run.send({})
