"""Gradient codes given by their matrices, for tests of what runs them."""

import numpy as np

from serverless_gc.codes.gradient import LinearGradientCode

FANO = np.array([[1.0 if (j - i) % 7 in (0, 1, 3) else 0.0 for j in range(7)] for i in range(7)])


def frc(n=6, s=1):
    """Fractional repetition: worker i computes class i mod T."""
    classes = n // (s + 1)
    return LinearGradientCode(np.tile(np.kron(np.eye(classes), np.ones(s + 1)), (s + 1, 1)))


def cyclic(n=6, s=2, seed=0):
    """Cyclic repetition from the null space of a random matrix."""
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((s, n))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    B = np.eye(n)
    for i in range(n):
        J = [(i + j) % n for j in range(1, s + 1)]
        B[i, J] = -np.linalg.solve(H[:, J], H[:, i])
    return LinearGradientCode(B)


def roots_of_unity(n=6, s=2):
    """Cyclic MDS: complex coefficients."""
    first = np.poly(np.exp(2j * np.pi * np.arange(1, s + 1) / n))[::-1]
    return LinearGradientCode(np.array([np.roll(np.r_[first, np.zeros(n - s - 1)], i) for i in range(n)]))


def two_each(n=4, s=1):
    """A cyclic code of 2 n messages, two a worker, whose messages share partitions."""
    B = cyclic(2 * n, 2 * s).generator
    return LinearGradientCode(B, placement=[[2 * i, 2 * i + 1] for i in range(n)])


def fano(*, exact=False):
    """Points and lines of the Fano plane: approximate when a worker straggles."""
    return LinearGradientCode(FANO, exact=exact)


class Folded(LinearGradientCode):
    """Two coordinates in each number of a message: the sum needs two messages, none can be missing."""

    name = "folded"

    @property
    def fold(self):
        return 2

    def row(self, message):
        """Message i sends coordinate i of each pair, of all partitions, in a mixture of both."""
        mixed = np.array([[1.0, 2.0], [3.0, -1.0]])[message % 2]
        return tuple(range(self.k)), np.tile(mixed, (self.k, 1))

    def decode(self, values, *, approximate=None, **_):
        both = np.array([values[0], values[1]])
        pairs = np.linalg.solve(np.array([[1.0, 2.0], [3.0, -1.0]]), both).T
        _, certificate = super().decode(values, approximate=approximate)
        return np.ascontiguousarray(pairs), certificate


def folded(k=3):
    """A code that folds two coordinates."""
    return Folded(np.eye(k)[:2] + np.eye(k)[2:].sum(axis=0) * [[0], [1]])


EXACT = {
    "frc": frc,
    "cyclic": cyclic,
    "complex": roots_of_unity,
    "two-each": two_each,
    "fano": lambda: fano(exact=True),
}
