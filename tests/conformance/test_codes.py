"""Every code of the registry passes the shipped suite at a small size."""

import matmul_cases as cases
import numpy as np
import pytest

from serverless_gc.codes import available, get
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.linear import LinearCode
from serverless_gc.testing.code_suite import CodeSuite

SMALL = {
    "bgc": {"n_workers": 8, "load": 3},
    "bibd": {"n_workers": 7},
    "cpgc": {"n_workers": 4},
    "clustered": {"n_workers": 8, "clusters": 2, "stragglers": 1},
    "cyclic": {"n_workers": 7, "stragglers": 2},
    "cyclic-mds": {"n_workers": 7, "stragglers": 2},
    "encoded": {"n_workers": 6},
    "erasurehead": {"n_workers": 9, "load": 3},
    "expander": {"n_workers": 10, "load": 3},
    "frc": {"n_workers": 8, "stragglers": 1},
    "gc-mmc": {"n_workers": 6, "clusters": 2},
    "graph": {"n_workers": 9, "k": 6},
    "heterogeneous": {"n_workers": 6, "k": 4, "p": [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]},
    "ignore-stragglers": {"n_workers": 6},
    "lagrange": {"n_workers": 8, "k": 4},
    "ldpc": {"n_workers": 9, "k": 5},
    "local-parity": {"n_workers": 9, "k": 4},
    "lt": {"n_workers": 5, "k": 6, "alpha": 1.6},
    "lwpd": {"n_workers": 9, "k": 4},
    "mds": {"n_workers": 8, "k": 5},
    "mds-nonsystematic": {"n_workers": 8, "k": 5},
    "pcr": {"n_workers": 8, "k": 3},
    "polar": {"n_workers": 8, "k": 4},
    "product": {"n_workers": 9, "k": 4},
    "product-gradient": {},
    "rbgc": {"n_workers": 8, "load": 3},
    "replication": {"n_workers": 8, "k": 4},
    "roots-of-unity": {"n_workers": 8, "k": 5},
    "sbc": {"n_workers": 9, "load": 3},
    "soft-bibd": {"n_workers": 7, "load": 3},
    "uc-mmc": {"n_workers": 5},
    "uncoded": {"k": 4},
    "ye-abbe": {"n_workers": 6, "stragglers": 2, "fold": 1},
}
SUFFICIENT = {
    "coded-reduce": get("coded-reduce", n_workers=12, stragglers=1),
    "lcc-mmc": get("lcc-mmc", n_workers=5, k=3),
    "local-parity-2": get("local-parity", n_workers=16, k=4, parities=2),
    "nested": get("nested", n_workers=5, stragglers=1),
    "polar-peel": get("polar", n_workers=8, k=4, mode="peel"),
    "polar-sc": get("polar", n_workers=8, k=4, mode="sc"),
    "polar-stages-peel": get("polar", n_workers=12, k=6, stages=2, mode="peel"),
    "polar-stages-sc": get("polar", n_workers=12, k=6, stages=2, mode="sc"),
    "rotation": get("rotation", n_workers=5, k=6),
    "short-dot": get("short-dot", n_workers=8, k=3),
}
"""Codes whose tracker does not find every set from which the answer follows."""


OPTIONS = {
    "polar-stages": get("polar", n_workers=12, k=6, stages=2),
    "polar-stages-hadamard": get("polar", n_workers=8, k=4, stages=1, kernel="hadamard", systematic=False),
}
"""Whose tracker finds them all, as those by name."""

ELSEWHERE = {"berrut", *cases.MATMUL}
"""Approximate, or with two operands: tests/unit/test_berrut.py, tests/unit/test_matmul_codes.py."""


def test_every_name_is_here():
    names = set(SMALL) | {code.name for code in SUFFICIENT.values()} | ELSEWHERE
    assert names == {info.name for info in available()}


class TestByName(CodeSuite):
    @pytest.fixture(autouse=True, params=sorted(SMALL))
    def name(self, request):
        self.code = get(request.param, **SMALL[request.param])

    def make_code(self):
        return self.code


class TestOptions(CodeSuite):
    @pytest.fixture(autouse=True, params=sorted(OPTIONS))
    def name(self, request):
        self.code = OPTIONS[request.param]

    def make_code(self):
        return self.code


class TestSufficientTrackers(CodeSuite):
    rank_exact = False

    @pytest.fixture(autouse=True, params=sorted(SUFFICIENT))
    def name(self, request):
        self.code = SUFFICIENT[request.param]

    def make_code(self):
        return self.code

    def follows(self, code, messages):
        if code.name == "short-dot":  # its other unknowns depend on the data
            return np.linalg.matrix_rank(code.matrix[list(messages)]) == code.threshold
        return super().follows(code, messages)


class TestLinear(CodeSuite):
    def make_code(self):
        return LinearCode([[1, 0], [0, 1], [1, 1], [1, -1]], placement=[[0, 1], [3, 2]])


class TestLinearGradient(CodeSuite):
    def make_code(self):
        return LinearGradientCode([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]])
