"""Generators that are given by formulas, to fifty digits, in fractions. Standard library only."""

from fractions import Fraction

from exact_algebra import identity
from exact_reals import as_complex, circle, cosine, root, sine


def chebyshev_points(n):
    """Return the roots of the Chebyshev polynomial of degree ``n``, descending."""
    return [sine(Fraction(n - 1 - 2 * i, 2 * n)) for i in range(n)]


def chebyshev_rows(points, terms):
    """Return the Chebyshev polynomials at these points."""
    rows = []
    for x in points:
        row = [Fraction(1), x]
        while len(row) < terms:
            row.append(2 * x * row[-1] - row[-2])
        rows.append(row[:terms])
    return rows


def orthonormal_chebyshev(n, k):
    """Return orthonormal Chebyshev polynomials at the Chebyshev points: a part of a cosine transform."""
    scales = [root(Fraction(1 if j == 0 else 2, n)) for j in range(k)]
    return [[scales[j] * cosine(Fraction((2 * i + 1) * j, 2 * n)) for j in range(k)] for i in range(n)]


def powers_on_the_circle(n, k, roots):
    """Return powers of the first ``n`` of so many roots of unity."""
    return [[circle(Fraction(2 * i * j, roots)) for j in range(k)] for i in range(n)]


def rotations(rows):
    """Return a complex matrix as a real one of pairs."""
    made = []
    for row in rows:
        made.append([part for x in row for part in (x.real, -x.imag)])
        made.append([part for x in row for part in (x.imag, x.real)])
    return made


def berrut(nodes, points):
    """Return Berrut's rational functions of the nodes, the signs alternating, at these points."""
    rows = []
    for x in points:
        if x in nodes:
            rows.append([Fraction(int(x == node)) for node in nodes])
            continue
        terms = [(-1) ** j / (x - node) for j, node in enumerate(nodes)]
        rows.append([term / sum(terms) for term in terms])
    return rows


def berrut_points(n):
    """Return the Chebyshev points with the ends of the interval, descending."""
    return [cosine(Fraction(i, max(1, n - 1))) for i in range(n)]


def circulant(n, stragglers, first):
    """Return the rows whose first is the polynomial with these consecutive powers of a root of unity as roots."""
    polynomial = [as_complex(1)]
    for j in range(first, first + stragglers):
        shifted = [as_complex(0), *polynomial]
        scaled = [-circle(Fraction(2 * j, n)) * x for x in polynomial] + [as_complex(0)]
        polynomial = [x + y for x, y in zip(shifted, scaled, strict=True)]
    row = [*polynomial, *[as_complex(0)] * (n - len(polynomial))]
    return [[row[(j - i) % n] for j in range(n)] for i in range(n)]


def least_variance(p, holders):
    """Return coefficients by which each partition counts once on average: one over the odds of its holders."""
    odds = [(1 - x) / x for x in p]
    sums = [sum(o for o, row in zip(odds, holders, strict=True) if row[j]) for j in range(len(holders[0]))]
    return [[(1 if x else 0) / s for x, s in zip(row, sums, strict=True)] for row in holders]


def light_directions(n, k):
    """Return the blocks themselves, then pairs of neighbours over the root of two."""
    half = root(Fraction(1, 2))
    pairs = [[half if j in {2 * i, 2 * i + 1} else Fraction(0) for j in range(k)] for i in range(n - k)]
    return [*identity(k), *pairs]


def multi_message_points(n, r):
    """Return where the messages of every worker are: spread over the interval, some of each stretch from each."""
    step = max(1, n // r)
    order = [(worker + place * step) % n * r + place for worker in range(n) for place in range(r)]
    points = chebyshev_points(n * r)
    return [points[i] for i in order]
