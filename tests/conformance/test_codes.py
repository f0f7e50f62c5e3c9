"""Every code of the registry passes the shipped suite at a small size."""

import pytest

from serverless_gc.codes import available, get
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.linear import LinearCode
from serverless_gc.testing.code_suite import CodeSuite

SMALL = {
    "bgc": {"n_workers": 8, "load": 3},
    "bibd": {"n_workers": 7},
    "erasurehead": {"n_workers": 9, "load": 3},
    "expander": {"n_workers": 10, "load": 3},
    "graph": {"n_workers": 9, "k": 6},
    "heterogeneous": {"n_workers": 6, "k": 4, "p": [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]},
    "ignore-stragglers": {"n_workers": 6},
    "ldpc": {"n_workers": 9, "k": 5},
    "lt": {"n_workers": 5, "k": 6, "alpha": 1.6},
    "lwpd": {"n_workers": 9, "k": 4},
    "mds": {"n_workers": 8, "k": 5},
    "polar": {"n_workers": 8, "k": 4},
    "product-gradient": {},
    "rbgc": {"n_workers": 8, "load": 3},
    "replication": {"n_workers": 8, "k": 4},
    "sbc": {"n_workers": 9, "load": 3},
    "soft-bibd": {"n_workers": 7, "load": 3},
    "uncoded": {"k": 4},
}
PEELING = {"polar-peel": {"n_workers": 8, "k": 4, "mode": "peel"}, "polar-sc": {"n_workers": 8, "k": 4, "mode": "sc"}}


def test_every_name_is_here():
    assert set(SMALL) == {info.name for info in available()}


class TestByName(CodeSuite):
    @pytest.fixture(autouse=True, params=sorted(SMALL))
    def name(self, request):
        self.code = get(request.param, **SMALL[request.param])

    def make_code(self):
        return self.code


class TestPeeling(CodeSuite):
    rank_exact = False

    @pytest.fixture(autouse=True, params=sorted(PEELING))
    def name(self, request):
        self.code = get("polar", **PEELING[request.param])

    def make_code(self):
        return self.code


class TestLinear(CodeSuite):
    def make_code(self):
        return LinearCode([[1, 0], [0, 1], [1, 1], [1, -1]], placement=[[0, 1], [3, 2]])


class TestLinearGradient(CodeSuite):
    def make_code(self):
        return LinearGradientCode([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]])
