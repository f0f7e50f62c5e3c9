"""What every code was specified by: results awaited, or for approximate codes the error, and where each figure is from.

Sections are those of the two specifications behind this library: D for codes of data and partial results, G for codes
of gradients. Where a figure follows from a definition there is a law, the chance that a random set of so many workers
decodes, worked out here from the definition alone; else it is a measurement of another implementation, with its own
uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from serverless_gc.codes import get
from serverless_gc.codes.threshold import count_arrivals

# -- laws: P(a random set of t of n workers decodes), t = 0 .. n ---------------------------------------------------


def exactly(n, needed):
    """Any so many, and no fewer."""
    return [float(t >= needed) for t in range(n + 1)]


def covered(n, classes):
    """One of each of so many classes of equal size."""
    each = n // classes
    missed = [
        [(-1) ** j * math.comb(classes, j) * math.comb(n - j * each, t) for j in range(classes + 1)]
        for t in range(n + 1)
    ]
    return [sum(terms) / math.comb(n, t) for t, terms in enumerate(missed)]


def among(n, special, needed):
    """So many of the special workers; others do not matter."""
    return [
        sum(math.comb(special, j) * math.comb(n - special, t - j) for j in range(needed, special + 1) if t >= j)
        / math.comb(n, t)
        for t in range(n + 1)
    ]


def together(*parts):
    """Every part decodes from its own workers; a part is its law."""
    sets = [1.0]
    for law in parts:
        ways = [p * math.comb(len(law) - 1, t) for t, p in enumerate(law)]
        sets = np.convolve(sets, ways).tolist()
    return [count / math.comb(len(sets) - 1, t) for t, count in enumerate(sets)]


def counted(n, **decodable):
    """By the number of decodable sets of each size, ``t4=81``; larger sets all decode, smaller ones do not."""
    sizes = {int(name[1:]): count for name, count in decodable.items()}
    return [sizes[t] / math.comb(n, t) if t in sizes else float(t > max(sizes)) for t in range(n + 1)]


def enumerated(n, decodes):
    """By trying all sets."""
    return [np.mean([decodes(chosen) for chosen in combinations(range(n), t)]) for t in range(n + 1)]


def determined(rows, wanted, messages=1):
    """Workers, of so many rows each, whose rows span the wanted combinations, by rank."""
    rows, wanted = np.array(rows, float), np.atleast_2d(np.array(wanted, float))

    def decodes(workers):
        arrived = rows[[worker * messages + j for worker in workers for j in range(messages)]]
        rank = np.linalg.matrix_rank
        return len(workers) > 0 and rank(arrived) == rank(np.vstack([arrived, wanted]))

    return enumerated(len(rows) // messages, decodes)


def steps(n, *shifts):
    """Rows that add up neighbours on a ring: for each worker one row for each set of shifts."""
    rows = np.zeros((n, len(shifts), n))
    for worker in range(n):
        for j, shift in enumerate(shifts):
            rows[worker, j, [(worker + s) % n for s in shift]] = 1.0
    return rows.reshape(-1, n)


def two_level(outer, inner):
    """Enough rows of a grid that have enough workers each, or columns; of each side the workers and the needed ones."""
    (n1, k1), (n2, k2) = outer, inner

    def decodes(workers):
        grid = np.zeros((n1, n2), bool)
        grid.reshape(-1)[list(workers)] = True
        return ((grid.sum(1) >= k2).sum() >= k1) or ((grid.sum(0) >= k1).sum() >= k2)

    return enumerated(n1 * n2, decodes)


LINES = [
    [1.0 if i == a else sign if i == b else 0.0 for i in range(4)]
    for a, b in combinations(range(4), 2)
    for sign in (1.0, -1.0)
]
"""The lines of weight two in four dimensions."""
PETERSEN = {1: 0.181818, 2: 0.416290, 3: 0.726407, 4: 1.146022}
P3 = counted(9, t4=81, t5=117)
"""A grid of 3 x 3 cells with one parity each way."""


# -- results awaited -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Of each trial, and their mean (or median) with its standard error."""

    each: np.ndarray
    middle: float
    standard_error: float

    @property
    def p95(self):
        """What 95 % of the trials do not exceed."""
        return float(np.percentile(self.each, 95))


@dataclass(frozen=True)
class Arrivals:
    """Results that one code waits for, over random orders of arrival.

    Attributes
    ----------
    law
        See above; mean and p95 follow from it.
    mean, uncertain, p95, orders
        Without a law: a measured mean, its standard error or rounding, and the 95th percentile of so many orders.
    trials, draws
        Orders tried here, in all, spread over so many draws of a random code.
    round
        Whose results they are, where a code has a round of its own for gradients.
    """

    code: str
    params: dict
    source: str
    law: list | None = None
    mean: float = math.nan
    uncertain: float = 0.0
    p95: float = math.nan
    orders: float = math.inf
    trials: int = 400
    draws: int = 1
    round: Callable = field(default=lambda code: code)

    def __post_init__(self):
        if self.law is not None:
            object.__setattr__(self, "mean", sum(1 - p for p in self.law))
            object.__setattr__(self, "p95", next(t for t, p in enumerate(self.law) if p >= 0.95 - 1e-12))

    @property
    def label(self):
        """Name, how it decodes, and its size."""
        code = self.round(get(self.code, **self.params))
        how = "".join(f" {value}" for value in self.params.values() if isinstance(value, str))
        return f"{self.code}{how} {code.n_workers}, {code.k}"

    def measured(self):
        """Try random orders."""
        counts = np.array([self._counts(seed) for seed in range(self.draws)])
        # Orders of one code are not independent trials of the ensemble of random codes.
        independent = counts.mean(axis=1) if self.draws > 1 else counts.reshape(-1)
        error = independent.std(ddof=1) / np.sqrt(len(independent))
        return Measured(counts.reshape(-1), float(counts.mean()), float(error))

    def _counts(self, seed):
        random = {"seed": seed} if self.draws > 1 else {}
        return count_arrivals(self.round(get(self.code, **self.params, **random)), self.trials // self.draws, seed + 1)


def sizes(n, k=None, **params):
    """Parameters of a code."""
    return {"n_workers": n, **({} if k is None else {"k": k}), **params}


def grid(n, k):
    """Parameters of a grid of equal sides."""
    return sizes(n * n, k * k, grid=((n, k), (n, k)))


def sides(n, p):
    """Both operands coded alike."""
    return {"n_left": n, "n_right": n, "p": p, "q": p}


PEEL, ALONE = {"mode": "peel"}, {"inactivation": 0}

ARRIVALS = (
    Arrivals("uncoded", sizes(20, 20), "D4", exactly(20, 20)),
    Arrivals("replication", sizes(64, 32), "D4: 54.934", covered(64, 32)),
    Arrivals("replication", sizes(90, 30), "D4: 65.039", covered(90, 30)),
    Arrivals("mds", sizes(64, 48), "D1, D5", exactly(64, 48)),
    Arrivals("mds-nonsystematic", sizes(64, 48), "D1, D5.2", exactly(64, 48)),
    Arrivals("roots-of-unity", sizes(31, 28), "D1, D5.3", exactly(31, 28)),
    Arrivals("rotation", sizes(31, 56), "D5.3: pairs of blocks, 28 workers", exactly(31, 28)),
    Arrivals("short-dot", sizes(20, 5, threshold=15), "D12: K", exactly(20, 15)),
    Arrivals("polar", sizes(8, 4, mode="sc"), "D3.5: 48 of 70, mean 4.3143", counted(8, t4=48)),
    Arrivals("polar", sizes(8, 4, mode="peel"), "D3.5: 52 of 70, mean 4.2571", counted(8, t4=52)),
    Arrivals("polar", sizes(8, 4, mode="rank"), "D3.5: 58 of 70, mean 4.1714", counted(8, t4=58)),
    Arrivals("polar", sizes(64, 32, mode="sc"), "D3.6", mean=38.8, uncertain=0.5, p95=45, orders=300),
    Arrivals("polar", sizes(64, 32, **PEEL), "D3.6", mean=37.7, uncertain=0.5, p95=44, orders=300),
    Arrivals("polar", sizes(64, 48, **PEEL), "D3.6", mean=52.2, uncertain=0.5, p95=57, orders=300),
    Arrivals("polar", sizes(256, 192, **PEEL), "D3.6", mean=208.6, uncertain=1.0, p95=220, orders=100, trials=100),
    Arrivals("product", grid(3, 2), "D6.3: 81 of 126, 117 of 126", P3),
    Arrivals("product", grid(4, 3), "D6.3", mean=10.0, uncertain=0.1, p95=12, orders=300),
    Arrivals("product", grid(11, 10), "D6.3", mean=106.8, uncertain=0.2, p95=112, orders=300),
    Arrivals("product", grid(16, 14), "D6.3", mean=204.7, uncertain=0.3, p95=212, orders=300, trials=60),
    Arrivals("local-parity", sizes(18, 8, tile=(2, 2)), "D6.1, D6.3: two tiles of 3 x 3", together(P3, P3)),
    Arrivals(
        "ldpc",
        sizes(6, 3, checks=((0, 1, 3), (1, 2, 3, 4), (0, 2, 4, 5)), **ALONE),
        "D8.1: 8 of 20, 13 of 15",
        counted(6, t3=8, t4=13),
    ),
    Arrivals("ldpc", sizes(64, 32, **ALONE), "D8.2: 1.21 K", mean=38.72, uncertain=0.5, draws=15),
    Arrivals("ldpc", sizes(256, 192, **ALONE), "D8.2: 1.08 K", mean=207.36, uncertain=1.5, draws=10, trials=100),
    Arrivals(
        "lt",
        sizes(200, 100, alpha=2.0, **ALONE),
        "D7.2: 1.34 K, 1.75 K",
        mean=134,
        uncertain=2.5,
        p95=175,
        orders=100,
        draws=15,
    ),
    Arrivals(
        "lagrange", sizes(8, 3), "D10.1: (K - 1) deg + 1, degree 2", exactly(8, 5), round=lambda code: code.evaluated(2)
    ),
    Arrivals("pcr", sizes(20, 5), "D10.1: 2 K - 1", exactly(20, 9), round=lambda code: code.gradient_round),
    Arrivals("khatri-rao", sizes(20, p=4, q=4), "D11: p q", exactly(20, 16)),
    Arrivals("polynomial", sizes(12, p=2, q=4), "D11: p q", exactly(12, 8)),
    Arrivals("polynomial-complex", sizes(20, p=4, q=4), "D11: p q", exactly(20, 16)),
    Arrivals("entangled", sizes(12, p=2, q=2, inner=2), "D11: p q r + r - 1", exactly(12, 9)),
    Arrivals("matdot", sizes(20, 5), "D11: 2 p - 1", exactly(20, 9)),
    Arrivals("ortho-matdot", sizes(30, 10), "D11: 2 p - 1", exactly(30, 19)),
    Arrivals("polar-matmul", {**sides(4, 3), **PEEL}, "D3.10: 1.13 k", mean=10.17, uncertain=0.05),
    Arrivals("polar-matmul", {**sides(8, 6), **PEEL}, "D3.10: 1.33 k", mean=47.88, uncertain=0.2),
    Arrivals("product-matmul", {"n_left": 4, "n_right": 4}, "D6.3", mean=10.0, uncertain=0.1, p95=12, orders=300),
    Arrivals("product-matmul", {"n_left": 11, "n_right": 11}, "D6.3", mean=106.8, uncertain=0.2, p95=112, orders=300),
    Arrivals(
        "uc-mmc", sizes(10, r=3), "D13.2: every partition once", determined(steps(10, [0], [1], [2]), np.eye(10), 3)
    ),
    Arrivals("cpgc", sizes(8), "D13.2: g_i, then g_(i+1) + g_(i+2)", determined(steps(8, [0], [1, 2]), np.ones(8), 2)),
    Arrivals(
        "gc-mmc",
        sizes(12, clusters=3, r=2),
        "D13.2: every partition of every cluster once",
        together(*[determined(steps(4, [0], [1]), np.eye(4), 2)] * 3),
    ),
    Arrivals("lcc-mmc", sizes(20, 10, r=3), "D13.2: 2 K - 1 = 19 messages, 3 a worker", exactly(20, 7)),
    Arrivals("lwpd", sizes(12, 4, systematic=False), "D14: 315 of 495 sets of four", determined(LINES, np.eye(4))),
    Arrivals("frc", sizes(12, stragglers=2), "G2: 6.057143", covered(12, 4)),
    Arrivals("frc", sizes(6, stragglers=1), "G2: 3.8", covered(6, 3)),
    Arrivals("erasurehead", sizes(30, load=3), "G9, G2: until every class is covered", covered(30, 10)),
    Arrivals("cyclic", sizes(10, stragglers=4), "G3.2: n - s", exactly(10, 6)),
    Arrivals("cyclic-mds", sizes(7, stragglers=2), "G4: n - s", exactly(7, 5)),
    Arrivals("ye-abbe", sizes(30, stragglers=3, fold=3), "G5.2: n - s", exactly(30, 27)),
    Arrivals("nested", sizes(12, stragglers=3), "G7: n - s of those that reached level s", exactly(12, 9)),
    Arrivals(
        "coded-reduce",
        sizes(30, stragglers=2, depth=2, inner="cyclic"),
        "G6: 3 of the driver's 5 children",
        among(30, 5, 3),
    ),
    Arrivals(
        "clustered",
        sizes(20, clusters=5, stragglers=1, inner="cyclic"),
        "G8: 3 of 4 in each cluster",
        together(*[exactly(4, 3)] * 5),
    ),
    Arrivals(
        "product-gradient",
        {
            "outer": {"code": "cyclic", "n_workers": 3, "stragglers": 1},
            "inner": {"code": "cyclic", "n_workers": 3, "stragglers": 1},
        },
        "G14.2: 117 of 126 sets of five",
        two_level((3, 2), (3, 2)),
    ),
    Arrivals("ignore-stragglers", sizes(20), "G1.10: err = s", exactly(20, 20)),
)
"""Every code that has an exact answer."""


# -- errors of approximate answers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errors:
    """Mean error of one approximate code over random sets of stragglers.

    Attributes
    ----------
    lost
        Stragglers; of a product, rows and columns that are lost; None for independent ones.
    mean, uncertain
        ``err``, summed over the partitions, and the uncertainty of a measured one (half a digit where it is exact).
    median
        Whether the figure is a median.
    """

    code: str
    params: dict
    source: str
    lost: int | tuple | None
    mean: float
    uncertain: float = 0.0
    method: str = "optimal"
    trials: int = 60
    draws: int = 1
    median: bool = False

    @property
    def label(self):
        """Name, size, stragglers and decoder."""
        code = get(self.code, **self.params)
        lost = "by chance" if self.lost is None else f"- {self.lost}"
        draw = f" {self.params['within']}" if "within" in self.params else ""
        return f"{self.code}{draw} {code.n_workers} {lost}" + ("" if self.method == "optimal" else f", {self.method}")

    def measured(self):
        """Try random sets."""
        rng = np.random.default_rng(3)
        codes = [get(self.code, **self.params, **({"seed": s} if self.draws > 1 else {})) for s in range(self.draws)]
        each = np.array([self._one(codes[trial % self.draws], rng) for trial in range(self.trials)])
        if self.median:  # as for normal errors with the same quartiles
            middle, spread = np.median(each), 1.2533 * np.subtract(*np.percentile(each, (75, 25))) / 1.349
        else:
            middle, spread = each.mean(), each.std(ddof=1)
        return Measured(each, float(middle), float(spread / np.sqrt(self.trials)))

    def _one(self, code, rng):
        n = code.n_workers
        if self.lost is None:
            arrived = np.flatnonzero(rng.random(n) >= self.params["p"])
        elif isinstance(self.lost, tuple):
            rows, columns = (
                rng.permutation(side.n_workers)[lost:]
                for side, lost in zip((code.outer, code.inner), self.lost, strict=True)
            )
            arrived = (rows[:, None] * code.inner.n_workers + columns).reshape(-1)
        else:
            arrived = rng.permutation(n)[self.lost :]
        if self.code == "berrut":
            return squared_error_of_tanh(code, arrived.tolist(), rng)
        return code.weights(arrived.tolist(), self.method).error


def squared_error_of_tanh(code, arrived, rng):
    """Relative, for data of ten normal numbers a block."""
    data = rng.normal(size=(code.k, 10))
    sent = np.tanh(code.encode(data, messages=arrived))
    answer, _ = code.decode(dict(zip(arrived, sent, strict=True)))
    return (np.linalg.norm(answer - np.tanh(data)) / np.linalg.norm(np.tanh(data))) ** 2


PETERSEN_GRAPH = sizes(10, graph="petersen")
HUNDRED = sizes(100, load=5)

ERRORS = (
    Errors("ignore-stragglers", sizes(20), "G1.10: s", 5, 5.0),
    Errors("ignore-stragglers", sizes(20), "G1.10: n s / (n - s)", 5, 20 / 3, method="one-step"),
    Errors("erasurehead", HUNDRED, "G9: 0.0205931", 20, 0.0205931, 5e-8, trials=4000),
    Errors("erasurehead", sizes(12, load=3), "G9: 0.2181818", 4, 0.2181818, 5e-8, trials=600),
    Errors("erasurehead", HUNDRED, "G10: 4.79798", 20, 4.79798, 5e-6, method="one-step"),
    Errors("bgc", HUNDRED, "G10: 5.72", 20, 5.72, 0.03, draws=60),
    Errors("bgc", HUNDRED, "G10: 23.75", 20, 23.75, method="one-step", draws=60),
    Errors("bgc", sizes(30, load=5), "G10: 2.68", 10, 2.68, 0.0275, draws=60, trials=300),
    Errors("rbgc", HUNDRED, "G10: 5.67", 20, 5.67, 0.05, draws=60),
    Errors("rbgc", HUNDRED, "G10: 21.61", 20, 21.61, 0.09, method="one-step", draws=60),
    Errors("sbc", {**HUNDRED, "within": 0.8}, "G11: 1.59", 20, 1.59, 0.03, draws=60),
    Errors("sbc", {**HUNDRED, "within": 0.5}, "G11: 4.38", 20, 4.38, 0.055, draws=60),
    Errors("sbc", {**HUNDRED, "within": 0.5}, "G11: 19.4976077", 20, 19.4976077, 5e-8, method="one-step", draws=60),
    Errors("expander", HUNDRED, "G10: 1.153", 20, 1.153, 0.01125, draws=12),
    *(Errors("expander", PETERSEN_GRAPH, f"G12: {mean}", lost, mean, 5e-7) for lost, mean in PETERSEN.items()),
    Errors("expander", PETERSEN_GRAPH, "G12: 1.728395", 4, 1.728395, 5e-7, method="one-step"),
    *(Errors("bibd", sizes(7), f"G13: {mean}", lost, mean, 5e-7) for lost, mean in ((1, 0.25), (2, 4 / 7), (4, 1.6))),
    Errors("bibd", sizes(21), "G13: 0.761905", 4, 0.761905, 5e-7),
    Errors("soft-bibd", sizes(20, load=5), "G14.1: 0.7894737", 4, 0.7894737, 5e-8, method="one-step"),
    Errors("soft-bibd", sizes(13, load=4), "G14.1, G13: a true design", 3, 9 / 13, 5e-8),
    Errors("graph", sizes(15, 10, graph="petersen"), "G15: 0.272172", 5, 0.272172, 5e-7, trials=400),
    Errors("graph", sizes(15, 10, graph="petersen"), "G15: 0.565416", 6, 0.565416, 5e-7, trials=400),
    Errors(
        "heterogeneous",
        {**sizes(4, 4), "p": (0.1, 0.2, 0.3, 0.4)},
        "G16: 0.4775414",
        None,
        0.4775414,
        5e-8,
        method="unbiased",
        trials=400,
    ),
    Errors("product-gradient", {}, "G14.2: Fano x Fano, 6 x 5 arrive", (1, 2), 5.6071429, 5e-8),
    Errors("encoded", sizes(32), "D9.2, G1.10: n s / (n - s)", 8, 32 / 3),
    Errors("berrut", sizes(100, 8), "D10.3: 1.5 % of tanh", 0, 0.015**2, 0.015 * 0.001, median=True),
    Errors("berrut", sizes(100, 8), "D10.3: 2.3 % of tanh", 25, 0.023**2, 0.023 * 0.001, median=True),
    Errors("berrut", sizes(100, 8), "D10.3: 5 % of tanh", 50, 0.05**2, 0.05 * 0.01, median=True),
)
"""Every code whose answers are approximate; squared as everywhere in this library."""
