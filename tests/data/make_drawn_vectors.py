"""Writes ``drawn_vectors.json``: what codes with random or irrational coefficients must give, exactly.

Run ``python tests/data/make_drawn_vectors.py [path]``. Floats are rational numbers: the generators in ``drawn.json``
are taken as they are, everything is worked out in fractions, and only what is written is rounded, to the nearest float.

An entry belongs to the code of ``drawn.json`` in the same place. ``formula`` is its generator to fifty digits, where a
formula gives it; then follow the coded blocks, the answer, and which sets of messages determine it, as in
``vectors.json``. A set determines the sum of a gradient code if the squared error of the best weights is below
``SOLVED``: rows that are rounded hold all ones in their span up to rounding only. ``gap`` shows how clear that is.
"""

import json
import sys
from fractions import Fraction
from itertools import combinations
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
    squares,
    transposed,
)
from exact_formulas import (
    berrut,
    berrut_points,
    chebyshev_points,
    chebyshev_rows,
    circulant,
    least_variance,
    light_directions,
    multi_message_points,
    orthonormal_chebyshev,
    powers_on_the_circle,
    rotations,
)
from exact_reals import circle, read, root, written
from exact_schemes import entangled, lagrange, products, short_dot, wanted_powers
from make_vectors import blocks_of

SOLVED = Fraction(1, 10**20)
SQUARES = {"pcr", "lcc-mmc"}
"""Codes for a polynomial of the blocks: here ``X.T (X w)``."""


def numbers(nested):
    """Return the numbers of a stored matrix."""
    return [[read(x) for x in row] for row in nested]


def subsets(n, sizes):
    """Yield all subsets of these sizes."""
    for size in sizes:
        yield from map(list, combinations(range(n), size))


# -- codes whose answer is the blocks -------------------------------------------------------------------------


def linear(rows, blocks, **more):
    """Return what a generator says of every set, and of the least ones how they are conditioned."""
    k = len(rows[0])
    made = {
        "blocks": blocks,
        "coded": product(rows, blocks),
        "answer": blocks,
        "sets": f"{determined(rows, identity(k)):x}",
        **more,
    }
    if "conditions" in made:
        made["conditions"] = [[members, condition([rows[i] for i in members])] for members in subsets(len(rows), [k])]
    return made


def condition(rows):
    """Return the product of the Frobenius norms of a square matrix and its inverse."""
    inverse = solved(rows, identity(len(rows)))
    return root(sum(map(squares, rows)) * sum(map(squares, inverse)))


def data_code(given):
    """Blocks in, combinations out."""
    name, rows = given["code"], numbers(given["rows"])
    n, k = len(rows), len(rows[0])
    more = {}
    if name in {"mds", "mds-nonsystematic", "roots-of-unity"}:
        more["conditions"] = True
    formula = FORMULAS.get(name)
    if formula is not None and given["arguments"].get("construction") != "gaussian":
        more["formula"] = formula(n, k)
    return linear(rows, matrix(blocks_of(k)), verdicts=VERDICTS.get(name, "exact"), **more)


FORMULAS = {
    "mds-nonsystematic": orthonormal_chebyshev,
    "roots-of-unity": lambda n, k: powers_on_the_circle(n, k, n | 1),
    "rotation": lambda n, k: rotations(powers_on_the_circle(n // 2, k // 2, n // 2 | 1)),
    "lagrange": lambda n, k: lagrange(chebyshev_points(k), chebyshev_points(n)),
    "lwpd": light_directions,
}
VERDICTS = dict.fromkeys(["rotation", "lt", "ldpc", "nested"], "sufficient")
"""Codes whose tracker counts or peels, and so may ask for more than the rank does."""


def dots_with_zeros(given):
    """Short-Dot: rows of the whole matrix decide, of which the blocks are the first."""
    whole = numbers(given["matrix"])
    n, threshold, k = len(whole), len(whole[0]), len(given["rows"][0])
    blocks = matrix(blocks_of(k, width=2 * n))
    return {
        "coded": short_dot(whole, blocks),
        "answer": blocks,
        "sets": f"{determined(whole, identity(threshold)):x}",
        "verdicts": "exact",
    }


def rational_interpolation(given):
    """Berrut: any set answers, with the rational function through what arrived."""
    rows = numbers(given["rows"])
    n, k = len(rows), len(rows[0])
    data, workers, blocks = chebyshev_points(k), berrut_points(n), matrix(blocks_of(k))
    exact = berrut(data, workers)
    stored = product(exact, blocks)
    answers = []
    for members in drawn_sets(n, 40):
        weights = berrut([workers[i] for i in members], data)
        miss = [
            [x - y for x, y in zip(row, unit, strict=True)]
            for row, unit in zip(product(weights, [exact[i] for i in members]), identity(k), strict=True)
        ]
        answers.append([members, sum(map(squares, miss)) / k, product(weights, [stored[i] for i in members])])
    return {"formula": exact, "blocks": blocks, "coded": stored, "answers": answers}


# -- polynomials ----------------------------------------------------------------------------------------------


def squared_blocks(given):
    """Workers compute ``X.T (X w)`` of a block on a curve: the sum over the data blocks is interpolated."""
    name, arguments, k = given["code"], given["arguments"], len(given["rows"][0])
    n, threshold = len(given["rows"]), 2 * k - 1
    data = chebyshev_points(k)
    workers = chebyshev_points(n) if name == "pcr" else multi_message_points(arguments["n_workers"], arguments["r"])
    rows = lagrange(data, workers)
    blocks, w = matrix(blocks_of(k)), matrix([[2], [-1]])
    stored = product(rows, blocks)
    sent = [[x * product([row], w)[0][0] for x in row] for row in stored]
    powers = [[x**d for d in range(threshold)] for x in workers]
    wanted = [sum(x**d for x in data) for d in range(threshold)]
    return {
        "formula": rows,
        "blocks": blocks,
        "w": w,
        "stored": stored,
        "coded": sent,
        "answer": transposed(product(transposed(blocks), product(blocks, w)))[0],
        "sets": f"{determined(powers, [wanted]):x}",
        "verdicts": "sufficient",
    }


def two_operands(given):
    """Products of two coded operands: any rows, or polynomials of which some coefficients are wanted."""
    name, arguments = given["code"], given["arguments"]
    left, right = numbers(given["left"]), numbers(given["right"])
    p, q = arguments.get("p", 1), arguments.get("q", 1)
    r = len(left[0]) // p
    if name in {"matdot", "ortho-matdot", "entangled"}:
        points = chebyshev_points(len(left))
        system, target = interpolated(points, p, q, r, mean=name == "ortho-matdot")
        # the rows that were stored keep apart up to rounding only what those of the formula keep apart
        left, right = formula = orthonormal(points, r) if name == "ortho-matdot" else entangled(points, p, q, r)
    else:
        formula = CURVES[name](len(left), p, q) if name in CURVES else None
        system, target = [kron([u], [v])[0] for u, v in zip(left, right, strict=True)], identity(p * q)
    a = [row[0] for row in matrix(blocks_of(r * p))]
    b = [row[1] for row in matrix(blocks_of(r * q))]
    answer = products(a, b, p, q, r)
    sent = [dot(u, a) * dot(v, b) for u, v in zip(left, right, strict=True)]
    return {
        **({} if formula is None else {"formula": [x + y for x, y in zip(*formula, strict=True)]}),
        "a": a,
        "b": b,
        "coded": sent,
        "answer": answer[0] if given["target"] == "sum" else answer,
        "sets": f"{determined(system, target):x}",
        "verdicts": "exact" if name in {"khatri-rao", "polynomial", "polynomial-complex"} else "sufficient",
    }


def interpolated(points, p, q, r, *, mean):
    """Return the terms of the polynomial of the products at the points, and which combinations are wanted."""
    threshold = p * q * r + r - 1
    if mean:  # that of a Chebyshev polynomial is its first coefficient
        return chebyshev_rows(points, threshold), identity(threshold)[:1]
    return [[x**d for d in range(threshold)] for x in points], [identity(threshold)[d] for d in wanted_powers(p, q, r)]


def orthonormal(points, r):
    """Return orthonormal Chebyshev polynomials, for both operands."""
    rows = [[x * root(2) if j else x for j, x in enumerate(row)] for row in chebyshev_rows(points, r)]
    return rows, rows


def on_a_curve(points):
    """Return the rule that evaluates the polynomials of both operands there."""
    return lambda n, p, q: entangled(points(n), p, q, 1)


CURVES = {
    "polynomial": on_a_curve(chebyshev_points),
    "polynomial-complex": on_a_curve(lambda n: [circle(Fraction(2 * i, n)) for i in range(n)]),
}


# -- codes whose answer is a sum ------------------------------------------------------------------------------


def gradient_code(given):
    """Partition gradients in, combinations out; of every set, or some, the best weights and their error."""
    name, arguments, rows = given["code"], given["arguments"], numbers(given["rows"])
    n, fold = len(rows), arguments.get("fold", 1)
    k = len(rows[0]) // fold
    blocks = matrix(blocks_of(k))
    unknowns = blocks if fold == 1 else [[x] for block in blocks for x in block]
    target = [[Fraction(int(j % fold == u)) for j in range(len(unknowns))] for u in range(fold)]
    best, solving, failing = [], [], []
    for members in subsets(n, range(1, n + 1)) if n < 7 else drawn_sets(n, 80):
        chosen = [rows[i] for i in members]
        counted = [nearest(chosen, wanted) for wanted in target]
        error = sum(
            squares([x - y for x, y in zip(row, wanted, strict=True)])
            for row, wanted in zip(counted, target, strict=True)
        )
        (solving if error < SOLVED else failing).append(error)
        best.append([members, error / fold, counted[0] if fold == 1 else []])
    return {
        **gradient_formula(name, arguments, rows),
        "blocks": blocks,
        "coded": product(rows, unknowns),
        "answer": [x for row in product(target, unknowns) for x in row],
        "best": best,
        "gap": [max(solving, default=Fraction(0)), min(failing)],
        "verdicts": VERDICTS.get(name, "exact"),
    }


def gradient_formula(name, arguments, rows):
    """Return the generator by its formula, where there is one."""
    n = len(rows)
    if name == "cyclic-mds":
        s = arguments["stragglers"]
        made = circulant(n, s, arguments.get("first_exponent", max(1, (n - s + 1) // 2)))
        real = arguments.get("variant", "real") == "real"
        return {"formula": [[x.real for x in row] for row in made] if real else made}
    if name == "heterogeneous":
        return {
            "formula": least_variance([Fraction(x) for x in arguments["p"]], [[bool(x) for x in row] for row in rows])
        }
    return {}


def averages(given):
    """Encoded optimization: the mean of what arrived, for all, with its error."""
    n = given["arguments"]["n_workers"]
    blocks = matrix(blocks_of(n))
    best = []
    for members in subsets(n, range(1, n + 1)):
        counted = [Fraction(n, len(members)) if j in members else Fraction(0) for j in range(n)]
        best.append([members, squares([x - 1 for x in counted]), counted])
    return {"formula": identity(n), "blocks": blocks, "coded": blocks, "best": best}


def vectors(given):
    """Work out what one code must give."""
    special = {"berrut": rational_interpolation, "short-dot": dots_with_zeros, "encoded": averages}
    if given["code"] in special:
        made = special[given["code"]](given)
    elif "left" in given:
        made = two_operands(given)
    elif given["code"] in SQUARES:
        made = squared_blocks(given)
    else:
        made = (gradient_code if given["target"] == "sum" else data_code)(given)
    return {"code": given["code"], **made}


def as_floats(made):
    """Round what is to be written; sets of messages and names stay."""
    if isinstance(made, dict):
        return {key: as_floats(value) for key, value in made.items()}
    if isinstance(made, list):
        return [as_floats(x) for x in made]
    return made if isinstance(made, int | str) else written(made)


def main(path):
    """Write them, one a line."""
    stored = json.loads(Path(__file__).with_name("drawn.json").read_text(encoding="utf-8"))
    lines = [json.dumps(as_floats(vectors(given)), separators=(",", ":")) for given in stored]
    Path(path).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("drawn_vectors.json"))
