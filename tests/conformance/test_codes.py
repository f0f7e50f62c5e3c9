"""Every code of the registry passes the shipped suite at a small size."""

import subprocess
import sys

import matmul_cases as cases
import numpy as np
import pytest
from code_cases import BOUNDS, OPTIONS, SMALL
from code_rules import RULES

from serverless_gc.codes import available, get
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.manifests import manifest_to_bytes
from serverless_gc.testing.code_suite import TARGET, CodeSuite

CODES = {name: get(name, **params) for name, params in SMALL.items()}
CODES |= {label: get(name, **params) for label, (name, params) in OPTIONS.items()}

SUMS_OF_BLOCKS = {
    *("clustered", "coded-reduce", "erasurehead", "frc", "ignore-stragglers", "local-parity", "product", "replication"),
    *("uc-mmc", "uncoded", "ldpc-peel", "lt-peel"),
    *(label for label in CODES if label.startswith("polar") and label not in {"polar-matmul", "polar-stages-hadamard"}),
}
"""Codes that only add, subtract and copy."""


def test_every_name_is_here():
    names = {info.name for info in available()}
    assert set(SMALL) == set(BOUNDS) == names


class ByName(CodeSuite):
    @pytest.fixture(autouse=True)
    def name(self, request):
        self.label = request.param
        self.code = CODES[self.label]
        self.rank_exact = self.label not in RULES
        self.whole_numbers = self.label in SUMS_OF_BLOCKS
        self.sparse = self.sparse and self.code.name != "lcc-mmc"
        self.tight = self.code.name != "cpgc"  # which promises less than it keeps

    def make_code(self):
        return self.code

    def enough(self, code, messages):
        rule = RULES.get(self.label)
        return super().enough(code, messages) if rule is None else rule(code, messages)

    def edges(self):
        yield from super().edges()
        if self.label in BOUNDS:
            yield from (get(self.label, **params) for params in BOUNDS[self.label][0])

    def too_far(self):
        yield from super().too_far()
        for name, params in BOUNDS[self.label][1] if self.label in BOUNDS else ():
            yield name, lambda params=params: get(self.code.name, **params)


OTHERS = {"berrut", "encoded", "short-dot", *cases.MATMUL}


@pytest.mark.parametrize("name", sorted(set(CODES) - OTHERS), indirect=True)
class TestByName(ByName):
    pass


@pytest.mark.parametrize("name", ["short-dot"], indirect=True)
class TestShortDot(ByName):
    """Further unknowns of its messages depend on the data."""

    sparse = False

    def follows(self, code, messages):
        return np.linalg.matrix_rank(code.matrix[list(messages)]) == code.threshold


@pytest.mark.parametrize("name", ["encoded"], indirect=True)
class TestEncoded(ByName):
    """Its parts are mixtures of all rows, and it waits for as many results as the call says."""

    dtypes = (np.float64, np.float32, np.int32, bool)
    sparse = False

    def ask(self, session, code, A, x):
        data = session.encode(A, np.full(len(A), TARGET) if isinstance(A, np.ndarray) else None, code=code)
        return data.gradient(x, wait=session.policy_for(code, None).inner.k)

    def parts(self, code, A, x):  # noqa: ARG002 - every part is the gradient through a share of the identity
        return np.array([[np.linalg.norm(A, 2) * np.linalg.norm(A @ x - TARGET)]])


@pytest.mark.parametrize("name", ["berrut"], indirect=True)
class TestBerrut(ByName):
    """Approximate for any number of results; its tracker counts those that a round waits for."""

    def follows(self, code, messages):
        return len(messages) >= code.awaited or {code.source_of(m) for m in messages} >= set(range(code.k))

    def promise(self, code, blocks, certificate):
        return np.sqrt(code.k) * super().promise(code, blocks, certificate)


@pytest.mark.parametrize("name", sorted(cases.MATMUL), indirect=True)
class TestMatmul(ByName):
    """Source blocks are those of the left operand; those of the right one follow from them."""

    def blocks(self, code, seed=0, shape=(3, 4)):
        return cases.operands(code, seed, (2, *shape))[0]

    def right(self, code, blocks):
        columns = np.random.default_rng(9).normal(size=(code.right.n_blocks, blocks.shape[1], 4))
        single = blocks.dtype == np.float32
        return columns.astype(np.float32).astype(np.float32 if single else np.result_type(blocks, float))

    def sent(self, code, blocks):
        return cases.multiplied(code, blocks, self.right(code, blocks))

    def wanted(self, code, blocks):
        return cases.wanted(code, blocks, self.right(code, blocks))

    def follows(self, code, messages):
        if not messages:
            return False
        targets = getattr(code._products, "targets", np.eye(code.k))
        rows = code.generator[list(messages)]
        solution = np.linalg.lstsq(rows.T, targets.T.astype(rows.dtype), rcond=1e-12)[0]
        return bool(np.abs(rows.T @ solution - targets.T).max() < 1e-7)


class TestLinear(CodeSuite):
    def make_code(self):
        return LinearCode([[1, 0], [0, 1], [1, 1], [1, -1]], placement=[[0, 1], [3, 2]])


class TestLinearGradient(CodeSuite):
    tight = False  # nobody told it how many stragglers its matrix tolerates

    def make_code(self):
        return LinearGradientCode([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]])


def test_another_process_decodes_from_what_was_stored(tmp_path):
    """One process for all: manifests and messages in files, answers bit by bit the same."""
    tests = {"berrut": TestBerrut, "short-dot": TestShortDot, "encoded": TestEncoded}
    expected = {}
    for label, code in CODES.items():
        suite = (TestMatmul if label in cases.MATMUL else tests.get(label, TestByName))()
        sent = suite.sent(code, suite.blocks(code))
        (tmp_path / f"{label}.manifest").write_bytes(manifest_to_bytes(code.manifest()))
        np.save(tmp_path / f"{label}.npy", sent)
        expected[label] = code.decode(dict(enumerate(sent)))[0]
    subprocess.run([sys.executable, "-c", DECODE, str(tmp_path)], check=True)
    for label, answer in expected.items():
        assert np.array_equal(np.load(tmp_path / f"{label}.answer.npy"), answer), label


DECODE = """
import sys
from pathlib import Path

import numpy as np

from serverless_gc.codes.manifests import manifest_from_bytes
from serverless_gc.codes.registry import from_manifest

for path in Path(sys.argv[1]).glob("*.manifest"):
    code = from_manifest(manifest_from_bytes(path.read_bytes()))
    sent = np.load(path.with_suffix(".npy"))
    np.save(path.with_suffix(".answer.npy"), code.decode(dict(enumerate(sent)))[0])
"""
