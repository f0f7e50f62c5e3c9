"""Shared by all tests: the default problem of the trials."""

import numpy as np
import pytest


class Problem:
    """X 1,000 x 20, y from a linear model plus noise, and the reference gradient in plain NumPy."""

    def __init__(self, n=1000, p=20, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((n, p))
        self.y = self.X @ rng.standard_normal(p) + 0.1 * rng.standard_normal(n)
        self.w = rng.standard_normal(p)

    @property
    def gradient(self):
        return self.reference(self.w)

    def reference(self, w):
        return self.X.T @ (self.X @ w - self.y)

    def check(self, gradient):
        np.testing.assert_allclose(gradient, self.gradient, rtol=0, atol=1e-10 * np.linalg.norm(self.gradient))


@pytest.fixture
def problem():
    return Problem()


@pytest.fixture
def make_problem():
    return Problem
