"""The schemes of ``make_vectors.py`` by their definitions, in fractions. Standard library only."""

from fractions import Fraction
from itertools import combinations

from exact_algebra import dot, solved, transposed

# -- polar codes: worker j of N sums the positions that contain all bits of j ---------------------------------


def butterfly(n):
    """Return the transform of ``n`` positions."""
    return [[Fraction(int(i & j == j)) for i in range(n)] for j in range(n)]


def erasures(e):
    """Return the erasure probability of every position, for those of the workers."""
    if len(e) == 1:
        return e
    a, b = e[: len(e) // 2], e[len(e) // 2 :]
    pairs = list(zip(a, b, strict=True))
    return erasures([x + y - x * y for x, y in pairs]) + erasures([x * y for x, y in pairs])


def polar_set(n, k, probability):
    """Return the ``k`` best positions of a shortened code, ties to the higher one; what is cut off always arrives."""
    length = 1
    while length < n:
        length *= 2
    z = erasures([probability] * n + [Fraction(0)] * (length - n))
    return sorted(sorted(range(n), key=lambda i: (z[i], -i))[:k])


def polar_rows(n, chosen, systematic):
    """Return the rows of a shortened code; a systematic one has the blocks themselves at the chosen positions."""
    rows = [[row[i] for i in chosen] for row in butterfly(n)]
    if not systematic:
        return rows
    square = transposed([rows[i] for i in chosen])
    return transposed(solved(square, transposed(rows)))


# -- codes of blocks ------------------------------------------------------------------------------------------


def grid(tile, copies):
    """Return independent copies of a code side by side."""
    n, k = len(tile), len(tile[0])

    def entry(i, j):
        return tile[i % n][j % k] if i // n == j // k else Fraction(0)

    return [[entry(i, j) for j in range(copies * k)] for i in range(copies * n)]


def short_dot(b, blocks):
    """Return all coded rows: fillers make ``K - M`` of them zero in every column."""
    n, threshold, k = len(b), len(b[0]), len(blocks)
    columns = []
    for j, column in enumerate(transposed(blocks)):
        zeros = [(j + t) % n for t in range(threshold - k)]
        right = [[-dot(b[i][:k], column)] for i in zeros]
        fillers = [x for (x,) in solved([b[i][k:] for i in zeros], right)]
        columns.append([dot(row, [*column, *fillers]) for row in b])
    return transposed(columns)


def lagrange(data, workers):
    """Return the Lagrange basis of the data points at the points of the workers."""
    rows = []
    for x in workers:
        rows.append([])
        for j, own in enumerate(data):
            value = Fraction(1)
            for i, other in enumerate(data):
                if i != j:
                    value *= (x - other) / (own - other)
            rows[-1].append(value)
    return rows


# -- products of two operands ---------------------------------------------------------------------------------


def entangled(points, p, q, r):
    """Return the rows of both operands: powers of the points, so that what is wanted is alone with its power."""
    left = [[x ** (s + r * i) for s in range(r) for i in range(p)] for x in points]
    right = [[x ** (r - 1 - s + r * p * j) for s in range(r) for j in range(q)] for x in points]
    return left, right


def wanted_powers(p, q, r):
    """Return the powers whose coefficients are the blocks of the answer."""
    return [r - 1 + r * i + r * p * j for i in range(p) for j in range(q)]


def products(a, b, p, q, r):
    """Return the blocks of the answer."""
    return [sum(a[s * p + i] * b[s * q + j] for s in range(r)) for i in range(p) for j in range(q)]


# -- gradient codes -------------------------------------------------------------------------------------------


def cyclic_rows(h):
    """Return the band and the rows that ``h`` annihilates: one on the diagonal, then ``s`` places of support."""
    s, n = len(h), len(h[0])
    band, rows = [], []
    for i in range(n):
        places = [(i + 1 + t) % n for t in range(s)]
        system = [[Fraction(row[j]) for j in places] for row in h]
        found = [x for (x,) in solved(system, [[-Fraction(row[i])] for row in h])] if s else []
        band.append([Fraction(1), *found])
        rows.append([Fraction(0)] * n)
        for j, x in zip([i, *places], band[-1], strict=True):
            rows[-1][j] = x
    return band, rows


def nested_rows(h):
    """Return the table of coefficients by worker, level and place, and the rows worker by worker."""
    s, n = len(h), len(h[0])
    levels = [cyclic_rows(h[:t]) if t else _plain(n) for t in range(s + 1)]
    table = [[levels[t][0][i] + [Fraction(0)] * (s - t) for t in range(s + 1)] for i in range(n)]
    return table, [levels[t][1][i] for i in range(n) for t in range(s + 1)]


def _plain(n):
    return [[Fraction(1)] for _ in range(n)], [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]


def coded_reduce(inner, depth, stragglers):
    """Return the weights of the units in the message of every node, level by level."""
    n, own = len(inner), (stragglers + 1) ** depth
    units = sum(n**level * (stragglers + 1) ** (depth - level) for level in range(1, depth + 1))
    above, made = [[Fraction(1)] * units], []
    for level in range(depth):
        below = []
        for weights in above:
            support = [u for u, x in enumerate(weights) if x][0 if level == 0 else own :]
            size = len(support) // n
            for row in inner:
                child = [Fraction(0)] * units
                for place, u in enumerate(support):
                    child[u] = row[place // size] * weights[u]
                below.append(child)
        made += below
        above = below
    return made


def ye_abbe(points, load, fold):
    """Return the rows over the numbers of all gradients: polynomials that vanish where a partition is not held."""
    n = len(points)
    rows = [[Fraction(0)] * (n * fold) for _ in range(n)]
    for i in range(n):
        absent = [(i + 1 + t) % n for t in range(n - load)]
        first = [Fraction(1)]
        for j in absent:
            shifted, scaled = [Fraction(0), *first], [-points[j] * x for x in first] + [Fraction(0)]
            first = [x + y for x, y in zip(shifted, scaled, strict=True)]
        polynomials = [first]
        for _ in range(1, fold):
            shifted = [Fraction(0), *polynomials[-1]]
            excess = shifted[n - load]  # a unit block in the upper coefficients: the lowest of them must go
            padded = first + [Fraction(0)] * (len(shifted) - len(first))
            polynomials.append([x - excess * y for x, y in zip(shifted, padded, strict=True)])
        for u, polynomial in enumerate(polynomials):
            for w in range(n):
                rows[w][i * fold + u] = sum(x * Fraction(points[w]) ** d for d, x in enumerate(polynomial))
    return rows


# -- combinatorial designs ------------------------------------------------------------------------------------


def bibd_fano():
    """Return the incidence of points and lines of the plane of order two: translates of a difference set."""
    return [[int((j - i) % 7 in {0, 1, 3}) for j in range(7)] for i in range(7)]


def petersen():
    """Return adjacency and edges of the Petersen graph: pairs of five, adjacent where disjoint."""
    pairs = list(combinations(range(5), 2))
    adjacency = [[int(not set(a) & set(b)) for b in pairs] for a in pairs]
    return adjacency, [[i, j] for i in range(10) for j in range(i + 1, 10) if adjacency[i][j]]
