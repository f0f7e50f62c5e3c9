"""Writes ``vectors.json``: what every scheme must give, in exact rational arithmetic, from the definitions alone.

Run ``python tests/data/make_vectors.py [path]``. It knows nothing of the package, and nothing is rounded: a test that
holds the package to the file compares two derivations of the same scheme.

A case has the name and the arguments of a code, the rows of its generator (row ``i`` to be multiplied by the root of
``squared_scale[i]`` if that is there), source blocks, coded blocks, what is wanted of them (``target``, rows over the
unknowns), and which sets of messages determine it: ``sets`` has a bit for every set, the set being written in binary,
or ``sampled`` lists some. ``verdicts`` says whether a tracker finds all of them (``"exact"``) or may ask for more.
"""

import json
import sys
from fractions import Fraction
from pathlib import Path

from exact_algebra import (
    determined,
    dot,
    drawn_sets,
    identity,
    kron,
    matrix,
    nearest,
    product,
    solved,
    spanned,
    transposed,
)
from exact_schemes import (
    bibd_fano,
    butterfly,
    coded_reduce,
    cyclic_rows,
    entangled,
    grid,
    lagrange,
    nested_rows,
    petersen,
    polar_rows,
    polar_set,
    products,
    short_dot,
    wanted_powers,
    ye_abbe,
)

PAPER_BAND = [["1/2", 1], [1, -1], [1, "1/2"]]
PAPER_ROWS = [["1/2", 1, 0], [0, 1, -1], ["1/2", 0, 1]]


def blocks_of(k, width=2):
    """Return integer blocks, no two alike."""
    return [[(3 * j * j + 5 * j + 1 + 4 * c) % 17 - 8 for c in range(width)] for j in range(k)]


def case(code, arguments, rows, *, sum_only=False, verdicts="exact", most=12, **more):
    """Make one case of a linear code."""
    rows = matrix(rows)
    k = len(rows[0])
    target = [[Fraction(1)] * k] if sum_only else identity(k)
    blocks = matrix(blocks_of(k))
    made = {
        "code": code,
        "arguments": arguments,
        "rows": rows,
        "target": "sum" if sum_only else "blocks",
        "blocks": blocks,
        "coded": product(rows, blocks),
        "answer": product(target, blocks),
        "verdicts": verdicts,
        **more,
    }
    if len(rows) <= most:
        made["sets"] = f"{determined(rows, target):x}"
    else:
        made["sampled"] = [
            [members, spanned([rows[i] for i in members]).holds(target)] for members in drawn_sets(len(rows), 60)
        ]
    return made


def approximate(code, arguments, rows, count=60):
    """Make one case of an approximate gradient code: squared error and answer of the best weights."""
    rows = matrix(rows)
    blocks = matrix(blocks_of(len(rows[0])))
    best = []
    for members in drawn_sets(len(rows), count):
        alpha = nearest([rows[i] for i in members])
        miss = [x - 1 for x in alpha]
        best.append({"arrived": members, "error": dot(miss, miss), "alpha": alpha, "answer": product([alpha], blocks)})
    return {
        "code": code,
        "arguments": arguments,
        "rows": rows,
        "target": "sum",
        "blocks": blocks,
        "coded": product(rows, blocks),
        "best": best,
    }


def polar():
    """Binary codes by a design probability of 1/5, Hadamard, shortened, punctured, with the first stages only."""
    for n, k in [
        (1, 1),
        (2, 1),
        (4, 2),
        (4, 4),
        (5, 3),
        (6, 4),
        (7, 4),
        (8, 3),
        (8, 4),
        (8, 5),
        (8, 6),
        (10, 8),
        (16, 8),
    ]:
        chosen = polar_set(n, k, Fraction(1, 5))
        for systematic in (True, False):
            arguments = {"n_workers": n, "k": k, "design": "1/5", "shortening": "shorten", "systematic": systematic}
            yield case("polar", arguments, polar_rows(n, chosen, systematic), information_set=chosen)
    for groups, stages, k in [(2, 2, 2), (3, 1, 1), (2, 2, 3)]:  # the first stages only: short codes side by side
        size = 2**stages
        chosen = polar_set(size, k, Fraction(1, 5))
        everywhere = [size * g + i for g in range(groups) for i in chosen]
        for systematic in (True, False):
            arguments = {"n_workers": groups * size, "k": groups * k, "design": "1/5", "stages": stages}
            rows = grid(polar_rows(size, chosen, systematic), groups)
            yield case("polar", {**arguments, "systematic": systematic}, rows, information_set=everywhere)
    chosen = [5, 6, 7]
    arguments = {"n_workers": 5, "k": 3, "information_set": chosen, "shortening": "puncture", "systematic": False}
    yield case("polar", arguments, [[row[i] for i in chosen] for row in butterfly(8)[3:]])
    plus = kron([[1, 1], [1, -1]], [[1, 1], [1, -1]])
    arguments = {"n_workers": 4, "k": 2, "information_set": [2, 3], "kernel": "hadamard", "systematic": False}
    yield case("polar", arguments, [[Fraction(row[i], 2) for i in (2, 3)] for row in plus])


def copies():
    """Uncoded and replicated blocks."""
    for n, k in [(1, 1), (4, 4)]:
        yield case("uncoded", {"n_workers": n, "k": k}, identity(k))
    for n, k, uneven in [(4, 2, False), (6, 3, False), (6, 2, False), (7, 3, True)]:
        rows = [[int(j % k == i) for i in range(k)] for j in range(n)]
        yield case("replication", {"n_workers": n, "k": k, "allow_uneven": uneven}, rows)


def mds():
    """Systematic with given parity, and the constructions that are rational."""
    cauchy = [[Fraction(1, i + j) for j in (1, 2, 3, 4)] for i in (1, 3, 6)]
    for parity in ([["1/2", "1/2"], ["1/2", "-1/2"]], [[1, 1, 1], [1, 2, 3], [1, 4, 9]], cauchy, [[2], [-3]]):
        k, extra = len(parity[0]), len(parity)
        arguments = {"n_workers": k + extra, "k": k, "parity": parity}
        yield case("mds", arguments, [*identity(k), *parity])
    points = [Fraction(i, 2) for i in (-2, -1, 0, 1, 2)]
    rows = [[x**d for d in range(3)] for x in points]
    yield case("mds-nonsystematic", {"n_workers": 5, "k": 3, "construction": "vandermonde"}, rows)
    rows = [[1, x, x * x] for x in (0, 1, 2, 3, 5)]
    yield case("mds-nonsystematic", {"n_workers": 5, "k": 3, "construction": rows}, rows)
    yield short_dot_case([[1, 1], [1, 2], [1, 3]], [[1, 2, 3]])
    yield short_dot_case(
        [[1, x, x * x, x**3] for x in (-2, -1, 1, 2, 3)], [[3, -1, 4, 1, -5, 9, 2], [2, 7, -1, 8, 2, 8, 1]]
    )


def short_dot_case(b, blocks):
    """Make a case of Short-Dot, whose zeros follow the columns; any ``K`` rows of ``B`` determine all."""
    b, blocks = matrix(b), matrix(blocks)
    (n, threshold), k = (len(b), len(b[0])), len(blocks)
    return {
        "code": "short-dot",
        "arguments": {"n_workers": n, "k": k, "threshold": threshold, "matrix": b},
        "rows": [row[:k] for row in b],
        "target": "blocks",
        "whole_rows": True,
        "blocks": blocks,
        "coded": short_dot(b, blocks),
        "answer": blocks,
        "verdicts": "exact",
        "sets": f"{determined(b, identity(threshold)):x}",
    }


def grids():
    """Products of parity codes, and tiles of them."""
    single = {2: [[1, 0], [0, 1], [1, 1]], 3: [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], 1: [[1], [1]]}
    for k1, k2 in [(2, 2), (3, 2), (2, 1)]:
        rows = kron(single[k1], single[k2])
        sides = [[k1 + 1, k1], [k2 + 1, k2]]
        yield case("product", {"n_workers": len(rows), "k": k1 * k2, "grid": sides}, rows)
    rows = [row[:3] for row in kron(single[2], single[2])]  # one place of the grid is empty
    yield case("product", {"n_workers": 9, "k": 3, "grid": [[3, 2], [3, 2]]}, rows)
    two = [[1, 1], [1, 2]]
    arguments = {"n_workers": 8, "k": 2, "grid": [[4, 2], [2, 1]], "parities": [two, [[1]]]}
    yield case("product", arguments, kron([*identity(2), *matrix(two)], single[1]), verdicts="sufficient")
    for tiles, k1, k2 in [(1, 2, 2), (2, 2, 1), (2, 2, 2)]:
        tile = kron(single[k1], single[k2] if k2 > 1 else [[1]])
        yield case(
            "local-parity",
            {"n_workers": tiles * len(tile), "k": tiles * k1 * k2, "tile": [k1, k2]},
            grid(tile, tiles),
        )


def sparse():
    """Equations with coefficients one."""
    toy = [[0, 1, 3], [1, 2, 3, 4], [0, 2, 4, 5]]
    for checks, k in [(toy, 3), ([[0, 1, 2, 4], [1, 3, 4, 5], [0, 2, 3, 5, 6], [1, 2, 6, 7]], 4)]:
        rows = identity(k)
        for i, members in enumerate(checks):  # the last symbol of a check is its parity
            others = [rows[j] for j in members if j != k + i]
            rows.append([-sum(column) for column in zip(*others, strict=True)])
        yield case("ldpc", {"n_workers": len(rows), "k": k, "checks": checks}, rows)
    symbols = [[0], [0, 1], [1, 2], [0, 2, 3], [3], [1, 3], [0, 1, 2, 3], [2]]
    for n in (8, 4):
        rows = [[int(j in members) for j in range(4)] for members in symbols]
        placement = [list(range(w * 8 // n, (w + 1) * 8 // n)) for w in range(n)]
        yield case("lt", {"n_workers": n, "k": 4, "symbols": symbols}, rows, placement=placement)


def gradients():
    """Exact gradient codes."""
    for n, s, k in [(6, 1, 6), (6, 2, 4), (4, 3, 2)]:
        classes, each = n // (s + 1), k * (s + 1) // n
        for layout in ("stacked", "grouped"):
            of = [i % classes if layout == "stacked" else i // (s + 1) for i in range(n)]
            rows = [[int(j // each == t) for j in range(k)] for t in of]
            yield case("frc", {"n_workers": n, "k": k, "stragglers": s, "layout": layout}, rows, sum_only=True)
    for h in ([[1, 2, -3]], [[1, 2, 3, 4, -10], [1, 4, 9, 17, -31]], [[1, 2, 4, 8, 16, -31]]):
        band, rows = cyclic_rows(h)
        arguments = {"n_workers": len(rows), "k": len(rows), "stragglers": len(h), "coefficients": band}
        yield case("cyclic", arguments, rows, sum_only=True)
    arguments = {"n_workers": 3, "k": 3, "stragglers": 1, "coefficients": PAPER_BAND}
    weights = {"0,1": [2, -1], "0,2": [1, 1], "1,2": [1, 2]}
    yield case("cyclic", arguments, PAPER_ROWS, sum_only=True, weights=weights)
    for n, first in [(4, [1, 1]), (6, [1, 2, 2, 1])]:
        rows = [[first[(j - i) % n] if (j - i) % n < len(first) else 0 for j in range(n)] for i in range(n)]
        arguments = {"n_workers": n, "k": n, "stragglers": len(first) - 1, "variant": "real"}
        yield case("cyclic-mds", arguments, rows, sum_only=True)
    h = [[1, 2, 3, -6], [1, -1, 2, -2]]
    table, rows = nested_rows(h)
    arguments = {"n_workers": 4, "k": 4, "stragglers": 2, "coefficients": table}
    yield case("nested", arguments, rows, sum_only=True, verdicts="sufficient")
    cluster = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]]
    arguments = {"n_workers": 8, "k": 8, "clusters": 2, "stragglers": 1, "inner": "frc"}
    yield case("clustered", arguments, grid(matrix(cluster), 2), sum_only=True)
    factors = {
        "outer": {"code": "cyclic", "n_workers": 3, "stragglers": 1, "coefficients": PAPER_BAND},
        "inner": {"code": "frc", "n_workers": 4, "stragglers": 1},
    }
    rows = kron(matrix(PAPER_ROWS), matrix(cluster))
    yield case("product-gradient", factors, rows, sum_only=True, verdicts="sufficient")
    runs = [[(i + t) % 4 for t in range(3)] for i in range(4)]
    yield case("uc-mmc", {"n_workers": 4, "k": 4, "r": 3}, identity(4), placement=runs)
    pairs = [[[int(j == i) for j in range(4)], [int((j - i) % 4 in {1, 2}) for j in range(4)]] for i in range(4)]
    rows = [row for pair in pairs for row in pair]
    yield case("cpgc", {"n_workers": 4, "k": 4, "sizes": [1, 2]}, rows, sum_only=True)
    yield tree_case()
    yield folded_case()
    yield lines_case()


def tree_case():
    """Make the tree of three children a node, two levels deep, with the code of the paper at every node."""
    rows = coded_reduce(matrix(PAPER_ROWS), 2, 1)
    inner = {"n_workers": 3, "k": 3, "stragglers": 1, "coefficients": PAPER_BAND}
    arguments = {"n_workers": 12, "stragglers": 1, "depth": 2, "inner": {"cyclic": inner}}
    dead = [[], [0, 7, 9], [2], [1, 3, 10], [0, 1], [3, 4, 6], [3, 4, 6, 7]]
    alive = [sum(_answers(node, set(gone)) for node in range(3)) >= 2 for gone in dead]
    made = case("coded-reduce", arguments, rows, sum_only=True, verdicts="sufficient")
    return {**made, "dead": [list(pair) for pair in zip(dead, alive, strict=True)]}


def _answers(node, gone):
    """Whether a child of the driver sends: it lives, and so do two of its children."""
    return node not in gone and sum(child not in gone for child in range(3 * node + 3, 3 * node + 6)) >= 2


def folded_case():
    """Make the code of Ye and Abbe on the points -2 .. 2: two numbers of a gradient in one of a message."""
    points, load, fold = [-2, -1, 0, 1, 2], 3, 2
    rows = ye_abbe(points, load, fold)
    numbers = [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    unknowns = [[Fraction(x)] for pair in numbers for x in pair]
    target = [[Fraction(int(j % fold == u)) for j in range(len(unknowns))] for u in range(fold)]
    arguments = {"n_workers": 5, "k": 5, "stragglers": 1, "fold": fold, "matrix": "vandermonde", "points": points}
    return {
        "code": "ye-abbe",
        "arguments": arguments,
        "rows": rows,
        "target": "sum",
        "blocks": numbers,
        "coded": product(rows, unknowns),
        "answer": transposed(product(target, unknowns)),
        "verdicts": "exact",
        "sets": f"{determined(rows, target):x}",
    }


def lines_case():
    """Make a code of directional derivatives: signed pairs of blocks, each row over the root of two."""
    lines = [[0], [0, 1, 1], [1, 2, -1], [2, 3, 1], [3, 0, 1], [0, 2, 1], [3], [1, 3, -1]]
    rows = []
    for line in lines:
        rows.append([Fraction(0)] * 4)
        rows[-1][line[0]] = Fraction(1)
        if len(line) > 1:
            rows[-1][line[1]] = Fraction(line[2])
    scale = [Fraction(1, 2 if len(line) > 1 else 1) for line in lines]
    return case("lwpd", {"n_workers": 8, "k": 4, "lines": lines}, rows, squared_scale=scale)


def approximations():
    """Approximate gradient codes with the least error."""
    yield approximate("ignore-stragglers", {"n_workers": 5, "k": 5}, identity(5), 30)
    of = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    rows = [[int(j // 3 == t) for j in range(9)] for t in of]
    yield approximate("erasurehead", {"n_workers": 9, "k": 9, "load": 3, "layout": "grouped"}, rows)
    fano = bibd_fano()
    yield approximate("bibd", {"design": fano}, fano)
    adjacency, edges = petersen()
    rows = [[int(j in edge) for j in range(10)] for edge in edges]
    yield approximate("graph", {"graph": edges}, rows)
    rows = [[Fraction(x, 3) for x in row] for row in adjacency]
    yield approximate("expander", {"n_workers": 10, "k": 10, "graph": adjacency}, rows)


def interpolating():
    """Lagrange codes on rational points, and gradients of least squares from them."""
    data, workers = [Fraction(x, 2) for x in (-2, 0, 1)], [Fraction(x, 4) for x in (-3, -1, 1, 3, 4, -4)]
    points = {"data_points": data, "worker_points": workers, "allow_unstable": True}
    yield case("lagrange", {"n_workers": 6, "k": 3, **points}, lagrange(data, workers))
    rows = lagrange(data, workers)
    blocks = matrix([[1, 2], [3, -4], [-2, 5]])  # one row each
    w = matrix([[2], [-1]])
    sent = [[x * product([x_tilde], w)[0][0] for x in x_tilde] for x_tilde in product(rows, blocks)]
    yield {
        "code": "pcr",
        "arguments": {"n_workers": 6, "k": 3, **points},
        "rows": rows,
        "w": w,
        "blocks": blocks,
        "stored": product(rows, blocks),
        "coded": sent,
        "answer": product(transposed(blocks), product(blocks, w)),
        "threshold": 5,
    }


def matmul():
    """Products of two coded operands; the wanted coefficients of polynomials are found by interpolation."""
    for code, points, p, q, r in [
        ("polynomial", [-2, -1, 0, 1, 2], 2, 2, 1),
        ("polynomial", [-1, 1, 2, 3, -2, -3], 3, 2, 1),
        ("matdot", [-1, 0, 1, 2], 1, 1, 2),
        ("matdot", [-2, -1, 0, 1, 2, 3], 1, 1, 3),
        ("entangled", [-2, -1, 1, 2, 3, -3], 2, 1, 2),
    ]:
        a = [Fraction(x) for x in (1, 2, -3, 4, 5, 7)[: r * p]]
        b = [Fraction(x) for x in (3, 5, 2, -6, 1, 4)[: r * q]]
        left, right = entangled(matrix([points])[0], p, q, r)
        sent = [dot(u, a) * dot(v, b) for u, v in zip(left, right, strict=True)]
        threshold = p * q * r + r - 1
        powers = [[Fraction(x) ** d for d in range(threshold)] for x in points[:threshold]]
        coefficients = solved(powers, [[x] for x in sent[:threshold]])
        answer = [coefficients[d][0] for d in wanted_powers(p, q, r)]
        direct = products(a, b, p, q, r)
        if answer != direct:
            raise ArithmeticError(f"{code}: {answer} is not {direct}")
        sizes = {"k": r} if code == "matdot" else {"p": p, "q": q} | ({"inner": r} if code == "entangled" else {})
        yield {
            "code": code,
            "arguments": {"n_workers": len(points), **sizes, "points": points, "allow_unstable": True},
            "left": left,
            "right": right,
            "a": a,
            "b": b,
            "coded": sent,
            "answer": answer,
            "threshold": threshold,
        }


def cases():
    """Make all cases."""
    for family in (polar, copies, mds, grids, sparse, gradients, approximations, interpolating, matmul):
        yield from family()


def main(path):
    """Write them, one a line."""
    lines = [json.dumps(made, default=str, separators=(",", ":")) for made in cases()]
    Path(path).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("vectors.json"))
