"""Small instances of every code, the bounds of its parameters, and what lies one step beyond them."""

from matmul_cases import MATMUL

SMALL = {
    "berrut": {"n_workers": 9, "k": 2},
    "bgc": {"n_workers": 8, "load": 3},
    "bibd": {"n_workers": 7},
    "clustered": {"n_workers": 8, "clusters": 2, "stragglers": 1},
    "coded-reduce": {"n_workers": 6, "stragglers": 1, "depth": 2},
    "cpgc": {"n_workers": 4},
    "cyclic": {"n_workers": 7, "stragglers": 2},
    "cyclic-mds": {"n_workers": 7, "stragglers": 2},
    "encoded": {"n_workers": 6},
    "erasurehead": {"n_workers": 9, "load": 3},
    "expander": {"n_workers": 10, "load": 3},
    "frc": {"n_workers": 8, "stragglers": 1},
    "gc-mmc": {"n_workers": 4, "clusters": 2},
    "graph": {"n_workers": 9, "k": 6},
    "heterogeneous": {"n_workers": 6, "k": 4, "p": [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]},
    "ignore-stragglers": {"n_workers": 6},
    "lagrange": {"n_workers": 8, "k": 4},
    "lcc-mmc": {"n_workers": 5, "k": 3},
    "ldpc": {"n_workers": 9, "k": 5},
    "local-parity": {"n_workers": 9, "k": 4},
    "lt": {"n_workers": 5, "k": 6, "alpha": 1.6},
    "lwpd": {"n_workers": 9, "k": 4},
    "mds": {"n_workers": 8, "k": 5},
    "mds-nonsystematic": {"n_workers": 8, "k": 5},
    "nested": {"n_workers": 5, "stragglers": 1},
    "pcr": {"n_workers": 8, "k": 3},
    "polar": {"n_workers": 8, "k": 4},
    "product": {"n_workers": 9, "k": 4},
    "product-gradient": {},
    "rbgc": {"n_workers": 8, "load": 3},
    "replication": {"n_workers": 8, "k": 4},
    "roots-of-unity": {"n_workers": 8, "k": 5},
    "rotation": {"n_workers": 5, "k": 6},
    "sbc": {"n_workers": 9, "load": 3},
    "short-dot": {"n_workers": 8, "k": 3},
    "soft-bibd": {"n_workers": 7, "load": 3},
    "uc-mmc": {"n_workers": 5, "r": 2},
    "uncoded": {"k": 4},
    "ye-abbe": {"n_workers": 6, "stragglers": 2, "fold": 1},
    **MATMUL,
}
"""By name; at most ten messages wherever the code can be so small."""

OPTIONS = {
    "coded-reduce-12": ("coded-reduce", {"n_workers": 12, "stragglers": 1}),
    "gc-mmc-6": ("gc-mmc", {"n_workers": 6, "clusters": 2}),
    "ldpc-peel": ("ldpc", {"n_workers": 9, "k": 5, "inactivation": 0}),
    "ldpc-regular": ("ldpc", {"n_workers": 9, "k": 6, "ensemble": "regular"}),
    "local-parity-2": ("local-parity", {"n_workers": 16, "k": 4, "parities": 2}),
    "lt-peel": ("lt", {"n_workers": 5, "k": 6, "alpha": 1.6, "inactivation": 0}),
    "mds-gaussian": ("mds", {"n_workers": 8, "k": 5, "parity": "gaussian"}),
    "mds-chebyshev": ("mds-nonsystematic", {"n_workers": 8, "k": 5, "construction": "chebyshev"}),
    "mds-vandermonde": ("mds-nonsystematic", {"n_workers": 8, "k": 5, "construction": "vandermonde"}),
    "nested-2": ("nested", {"n_workers": 4, "stragglers": 2}),
    "polar-classic": ("polar", {"n_workers": 8, "k": 4, "systematic": False}),
    "polar-punctured": ("polar", {"n_workers": 9, "k": 4, "shortening": "puncture"}),
    "polar-shortened": ("polar", {"n_workers": 6, "k": 4, "mode": "peel", "shortening": "shorten"}),
    "polar-peel": ("polar", {"n_workers": 8, "k": 4, "mode": "peel"}),
    "polar-sc": ("polar", {"n_workers": 8, "k": 4, "mode": "sc"}),
    "polar-stages": ("polar", {"n_workers": 12, "k": 6, "stages": 2}),
    "polar-stages-hadamard": (
        "polar",
        {"n_workers": 8, "k": 4, "stages": 1, "kernel": "hadamard", "systematic": False},
    ),
    "polar-stages-peel": ("polar", {"n_workers": 12, "k": 6, "stages": 2, "mode": "peel"}),
    "polar-stages-sc": ("polar", {"n_workers": 12, "k": 6, "stages": 2, "mode": "sc"}),
    "product-gradient-6": (
        "product-gradient",
        {"outer": {"code": "frc", "n_workers": 2}, "inner": {"code": "cyclic", "n_workers": 3}},
    ),
    "product-gradient-9": (
        "product-gradient",
        {"outer": {"code": "cyclic", "n_workers": 3}, "inner": {"code": "cyclic", "n_workers": 3}},
    ),
    "ye-abbe-folded": ("ye-abbe", {"n_workers": 6, "stragglers": 2, "fold": 2}),
}
"""Further instances, of other decoders and constructions."""


def sized(n, k=None, **params):
    return {"n_workers": n, **({} if k is None else {"k": k}), **params}


WAITS = [("wait", {"wait": 0}), ("wait", {"wait": 100}), ("wait", {"wait": 2.5})]
MORE_BLOCKS = [("k", sized(8, 9))]
OTHER_NUMBER = [("k", sized(8, 7)), ("k", sized(8, 9))]
LOADS = [("load", sized(8, load=0)), ("load", sized(8, load=9))]
STRAGGLERS = [("stragglers", sized(6, stragglers=6)), ("stragglers", sized(6, stragglers=-1))]
PARTS = [(name, sized(8, **{"p": 2, "q": 2, name: 0})) for name in ("p", "q")]

BOUNDS = {
    "berrut": ([sized(8, 2, awaited=1), sized(8, 8, awaited=8)], [*MORE_BLOCKS, ("awaited", sized(8, 2, awaited=9))]),
    "bgc": ([sized(8, load=8), sized(8, wait=8)], [*LOADS, *WAITS]),
    "bibd": ([sized(4), sized(12, reverse=True)], [("n_workers", sized(8)), ("load", sized(7, load=2)), *WAITS]),
    "clustered": (
        [sized(4, clusters=1, stragglers=3), sized(4, clusters=4, stragglers=0), sized(4, clusters=2, flexibility=2)],
        [
            *OTHER_NUMBER,
            ("clusters", sized(4, clusters=3)),
            ("clusters", sized(4, clusters=0)),
            ("stragglers", sized(4, clusters=2, stragglers=2)),
            ("flexibility", sized(4, clusters=2, flexibility=3)),
            ("flexibility", sized(4, clusters=2, flexibility=0)),
        ],
    ),
    "coded-reduce": (
        [sized(3, depth=1, stragglers=0), sized(3, depth=1, stragglers=2)],
        [("depth", sized(6, depth=0)), ("depth", sized(6, depth=3)), ("stragglers", sized(6, depth=2, stragglers=2))],
    ),
    "cpgc": (
        [sized(4, sizes=[1]), sized(4, sizes=[1, 3])],
        [
            ("n_workers", sized(4, 5)),
            ("sizes", sized(4, sizes=[])),
            ("sizes", sized(4, sizes=[2])),
            ("sizes", sized(4, sizes=[1, 4])),
            ("sizes", sized(4, sizes=[1, 0])),
        ],
    ),
    "cyclic": ([sized(6, stragglers=0), sized(6, stragglers=5)], [*OTHER_NUMBER, *STRAGGLERS]),
    "cyclic-mds": (
        [sized(6, stragglers=5), sized(5, stragglers=0), sized(6, stragglers=2, variant="complex")],
        [*OTHER_NUMBER, *STRAGGLERS, ("stragglers", sized(6, stragglers=2, variant="real"))],
    ),
    "encoded": (
        [sized(6, beta=1.0, frame="uncoded"), sized(6, beta=1.0)],
        [*OTHER_NUMBER, ("beta", sized(6, beta=0.99)), ("frame", sized(6, frame="none")), *WAITS],
    ),
    "entangled": ([sized(9, p=2, q=2, inner=2)], [("n_workers", sized(8, p=2, q=2, inner=2)), *PARTS]),
    "erasurehead": (
        [sized(6, load=1), sized(6, load=6), sized(6, load=2, layout="stacked")],
        [("load", sized(6, load=4)), ("load", sized(6, load=7)), ("k", sized(6, 4, load=2)), *WAITS],
    ),
    "expander": (
        [sized(5, load=4), sized(3, load=2)],
        [*OTHER_NUMBER, ("load", sized(6, load=6)), ("load", sized(6, load=0)), *WAITS],
    ),
    "frc": (
        [sized(6, stragglers=0), sized(6, stragglers=5), sized(6, 12, stragglers=1)],
        [("stragglers", sized(6, stragglers=3)), ("k", sized(6, 7, stragglers=1)), *STRAGGLERS],
    ),
    "gc-mmc": (
        [sized(4, clusters=1, r=4), sized(4, clusters=4, r=1), sized(4, 8, clusters=2, r=1)],
        [
            ("clusters", sized(4, clusters=3)),
            ("clusters", sized(4, 6, clusters=4)),
            ("r", sized(4, clusters=2, r=3)),
            ("r", sized(4, clusters=2, r=0)),
            ("k", sized(4, 2, clusters=2)),
        ],
    ),
    "graph": (
        [sized(3, 3), sized(6, 4)],
        [("n_workers", sized(7, 4)), ("n_workers", sized(2, 2)), ("load", {"k": 4, "load": 4}), *WAITS],
    ),
    "heterogeneous": (
        [sized(4, p=0.0), sized(4, load=4), sized(4, load=1)],
        [
            ("p", sized(4, p=1.0)),
            ("p", sized(4, p=-0.1)),
            ("p", sized(4, p=[0.1] * 3)),
            ("placement", sized(2, p=0.1, placement=[[0], []])),
            ("load", sized(4, load=0)),
            ("load", sized(4, load=5)),
            *WAITS,
        ],
    ),
    "ignore-stragglers": ([sized(4, wait=4), sized(4, wait=1)], [*OTHER_NUMBER, *WAITS]),
    "khatri-rao": (
        [sized(6, p=2, q=3), sized(4, p=4, q=1)],
        [("n_workers", sized(5, p=2, q=3)), *PARTS],
    ),
    "lagrange": ([sized(8, 8)], [*MORE_BLOCKS, ("worker_points", sized(3, 2, worker_points=[0.1, 0.1, 0.2]))]),
    "lcc-mmc": (
        [sized(3, 3, r=2, degree=1), sized(5, 3, r=1), sized(3, 3, r=3)],
        [
            ("r", sized(5, 3, r=4)),
            ("r", sized(5, 3, r=0)),
            ("degree", sized(5, 3, degree=0)),
            ("n_workers", sized(4, 3, r=1)),
            ("k", sized(60, 21)),
        ],
    ),
    "ldpc": (
        [sized(4, 3), sized(4, 3, column_weight=1)],
        [
            ("k", sized(4, 4)),
            ("column_weight", sized(6, 4, column_weight=3)),
            ("column_weight", sized(6, 4, column_weight=0)),
            ("inactivation", sized(6, 4, inactivation=-1)),
        ],
    ),
    "local-parity": (
        [sized(2, 1), sized(8, 7)],
        [
            ("k", sized(8, 8)),
            ("n_workers", sized(1, 1)),
            ("parities", sized(9, 4, parities=0)),
            ("parities", sized(9, 4, parities=3)),
        ],
    ),
    "lt": (
        [sized(4, 12, alpha=1.0), sized(1, 5)],
        [
            ("alpha", sized(4, 12, alpha=0.99)),
            ("c", sized(4, 12, c=0)),
            ("delta", sized(4, 12, delta=0)),
            ("delta", sized(4, 12, delta=1)),
            ("inactivation", sized(4, 12, inactivation=-1)),
        ],
    ),
    "lwpd": (
        [sized(4, 4), sized(16, 4), sized(8, 4, systematic=False)],
        [("n_workers", sized(3, 4)), ("n_workers", sized(17, 4))],
    ),
    "matdot": ([sized(5, 3)], [("n_workers", sized(4, 3)), ("k", sized(16, 6))]),
    "mds": ([sized(8, 7)], [*MORE_BLOCKS, ("parity", sized(8, 4, parity="none"))]),
    "mds-nonsystematic": (
        [sized(8, 8, construction="vandermonde"), sized(8, 8, construction="chebyshev")],
        [*MORE_BLOCKS, ("k", sized(10, 9, construction="vandermonde")), ("construction", sized(8, construction="x"))],
    ),
    "nested": ([sized(5, stragglers=0), sized(5, stragglers=4)], [*OTHER_NUMBER, *STRAGGLERS]),
    "ortho-matdot": ([sized(5, 3)], [("n_workers", sized(4, 3)), ("k", sized(30, 11))]),
    "pcr": ([sized(7, 4, allow_unstable=True)], [("n_workers", sized(6, 4)), ("k", sized(60, 21))]),
    "polar": (
        [sized(5, 3), sized(8, 8, mode="sc"), sized(9, 1), sized(8, 4, stages=3), sized(8, 8, stages=0)],
        [
            *MORE_BLOCKS,
            ("mode", sized(8, 4, mode="none")),
            ("kernel", sized(8, 4, kernel="none")),
            ("design", sized(8, 4, design=0.0)),
            ("design", sized(8, 4, design=1.0)),
            ("design", sized(8, 4, design=[0.1] * 7)),
            ("stages", sized(8, 4, stages=4)),
            ("stages", sized(12, 6, stages=3)),
            ("k", sized(8, 3, stages=2)),
        ],
    ),
    "polar-matmul": ([sized(4, p=2, q=2, n_left=2, n_right=2)], [("p", sized(4, p=3, q=2, n_left=2, n_right=2))]),
    "polynomial": ([sized(4, p=2, q=2)], [("n_workers", sized(3, p=2, q=2)), ("p", sized(20, p=3, q=3)), *PARTS]),
    "polynomial-complex": ([sized(4, p=2, q=2)], [("n_workers", sized(3, p=2, q=2)), *PARTS]),
    "product": (
        [sized(6, 2, grid=[[3, 2], [2, 1]]), sized(6, 4, grid=[[3, 2], [2, 2]]), sized(6, 6, grid=[[3, 3], [2, 2]])],
        [
            *MORE_BLOCKS,
            ("grid", sized(6, 4, grid=[[3, 4], [2, 1]])),
            ("grid", sized(6, 4, grid=[[3, 0], [2, 1]])),
            ("grid", sized(7, 4, grid=[[3, 2], [2, 2]])),
        ],
    ),
    "product-gradient": (
        [{"outer": {"code": "frc", "n_workers": 2}, "inner": {"code": "cyclic", "n_workers": 3}}],
        [("n_workers", sized(8)), *WAITS],
    ),
    "product-matmul": (
        [sized(4, p=2, q=2, n_left=2, n_right=2), sized(6, p=2, q=1)],
        [("p", sized(4, p=3, q=2, n_left=2, n_right=2))],
    ),
    "rbgc": ([sized(8, load=8)], [*LOADS, *WAITS]),
    "replication": (
        [sized(5, 2, allow_uneven=True)],
        [("n_workers", sized(5, 2)), ("n_workers", sized(3, 4))],
    ),
    "roots-of-unity": ([sized(8, 7)], MORE_BLOCKS),
    "rotation": ([sized(3, 2), sized(4, 8)], [("k", sized(4, 3)), ("k", sized(4, 10))]),
    "sbc": (
        [sized(6, load=2, within=1.0), sized(6, load=2, within=1 / 3)],
        [
            *OTHER_NUMBER,
            ("load", sized(8, load=3)),
            ("within", sized(6, load=2, within=1.1)),
            ("within", sized(6, load=2, within=0.1)),
            *WAITS,
        ],
    ),
    "short-dot": (
        [sized(6, 3, threshold=3), sized(6, 3, threshold=6)],
        [*MORE_BLOCKS, ("threshold", sized(6, 3, threshold=2)), ("threshold", sized(6, 3, threshold=7))],
    ),
    "soft-bibd": ([sized(6, load=1), sized(6, load=6), sized(6, proposals=0)], [*LOADS, *WAITS]),
    "uc-mmc": (
        [sized(4, r=1), sized(4, r=4)],
        [("r", sized(4, r=0)), ("r", sized(4, r=5)), ("n_workers", sized(4, 5))],
    ),
    "uncoded": ([sized(8)], [("n_workers", sized(7, 8))]),
    "ye-abbe": (
        [sized(4, stragglers=0, fold=1), sized(4, stragglers=3, fold=1), sized(4, stragglers=1, fold=1, load=2)],
        [
            *OTHER_NUMBER,
            *STRAGGLERS,
            ("fold", sized(6, stragglers=1, fold=0)),
            ("load", sized(6, stragglers=3, fold=4)),
            ("load", sized(6, stragglers=1, fold=1, load=3)),
        ],
    ),
}
"""By name: parameters at the bounds, and for each bound the parameter that a refusal names and what lies beyond."""
