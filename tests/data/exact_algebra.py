"""Linear algebra over the rational numbers, and what sets of messages determine. Standard library only."""

from fractions import Fraction


def matrix(rows):
    """Return rows of fractions."""
    return [[Fraction(x) for x in row] for row in rows]


def product(a, b):
    """Return ``a @ b``."""
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in a]


def transposed(a):
    """Return ``a.T``."""
    return [list(column) for column in zip(*a, strict=True)]


def identity(n):
    """Return the identity."""
    return [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]


def kron(a, b):
    """Return the Kronecker product."""
    return [[x * y for x in row for y in other] for row in a for other in b]


def solved(a, b):
    """Return ``x`` of ``a @ x = b`` for an invertible ``a``: Gauss and Jordan."""
    n = len(a)
    work = [list(row) + list(right) for row, right in zip(a, b, strict=True)]
    for column in range(n):
        pivot = next(i for i in range(column, n) if work[i][column])
        work[column], work[pivot] = work[pivot], work[column]
        lead = work[column][column]
        work[column] = [x / lead for x in work[column]]
        for i in range(n):
            if i != column and work[i][column]:
                factor = work[i][column]
                work[i] = [x - factor * y for x, y in zip(work[i], work[column], strict=True)]
    return [row[n:] for row in work]


class Span:
    """The span of rows, in echelon form; `extended` makes a new one, so that sets can be walked like a tree."""

    def __init__(self, echelon=()):
        self.echelon = echelon  # pairs of a leading column and a row that is one there

    def reduced(self, row):
        """Return what is left of a row beyond the span."""
        for lead, known in self.echelon:
            factor = row[lead]
            if factor:
                row = [x - factor * y for x, y in zip(row, known, strict=True)]
        return row

    def extended(self, row):
        """Return the span of these rows and one more."""
        row = self.reduced(row)
        lead = next((j for j, x in enumerate(row) if x), None)
        if lead is None:
            return self
        return Span((*self.echelon, (lead, [x / row[lead] for x in row])))

    def holds(self, rows):
        """Whether all these rows are in the span."""
        return not any(any(self.reduced(row)) for row in rows)


def spanned(rows):
    """Return the span of rows."""
    span = Span()
    for row in rows:
        span = span.extended(row)
    return span


def determined(rows, target):
    """Say of every set of messages whether it determines the target: a bit for each, the set written in binary."""
    bits = 0
    pending = [(0, 0, Span())]
    while pending:
        at, members, span = pending.pop()
        if span.holds(target):  # and so do all sets with further messages
            for more in range(2 ** (len(rows) - at)):
                bits |= 1 << (members | more << at)
        elif at < len(rows):
            pending.append((at + 1, members, span))
            pending.append((at + 1, members | 1 << at, span.extended(rows[at])))
    return bits


def nearest(rows, target=None):
    """Return the point of the span of rows that is nearest to a target, all ones: Gram and Schmidt without roots."""
    target = [Fraction(1)] * len(rows[0]) if target is None else target
    left, basis = target, []
    for row in rows:
        rest = row
        for known in basis:
            rest = beyond(rest, known)
        if any(rest):
            basis.append(rest)
            left = beyond(left, rest)
    return [x - y for x, y in zip(target, left, strict=True)]


def beyond(row, known):
    """Return what is left of a row, real or complex, without its part along another one."""
    conjugate = [x.conjugate() for x in known]
    factor = dot(row, conjugate) / dot(known, conjugate)
    return [x - factor * y for x, y in zip(row, known, strict=True)]


def squares(row):
    """Return the sum of squared absolute values."""
    return dot([x.real for x in row], [x.real for x in row]) + dot([x.imag for x in row], [x.imag for x in row])


def dot(a, b):
    """Return the inner product."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def drawn_sets(n, count):
    """Return sets of ``0 .. n-1`` of all sizes, from a small generator of our own, the same everywhere."""
    state, sets = 12345, []
    for trial in range(count):
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            state = (1103515245 * state + 12345) % 2**31
            j = (state >> 8) % (i + 1)
            order[i], order[j] = order[j], order[i]
        sets.append(sorted(order[: 1 + trial % n]))
    return sets
