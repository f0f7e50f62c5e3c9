"""Every scheme gives what exact rational arithmetic says: generators, coded blocks, verdicts, answers, errors.

``tests/data/make_vectors.py`` derives ``tests/data/vectors.json`` from the definitions, without this package.
"""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from exact_vectors import DATA, KNOWN, close, evenly, sets_in, stored, tracked, written_again

from serverless_gc.codes import get
from serverless_gc.codes.gradient import CyclicRepetitionCode
from serverless_gc.errors import NotDecodableError

CASES = stored("vectors.json")


def number(text):
    return float(Fraction(text))


def array(nested):
    return np.array([array(x) if isinstance(x, list) else number(x) for x in nested])


def argument(value):
    """Give a parameter its type: fractions were written as text."""
    if isinstance(value, dict):
        if "cyclic" in value:
            return CyclicRepetitionCode(**argument(value["cyclic"]))
        return {name: argument(x) for name, x in value.items()}
    if isinstance(value, list):
        return [argument(x) for x in value]
    if isinstance(value, str) and re.fullmatch(r"-?\d+(/\d+)?", value):
        return number(value)
    return value


def picked(*keys, without=()):
    """Parametrize by the cases that have all these entries, of the codes that there are."""
    chosen = [c for c in CASES if c["code"] in KNOWN and set(keys) <= set(c) and not set(without) & set(c)]
    return pytest.mark.parametrize("case", chosen, ids=[f"{c['code']}-{i}" for i, c in enumerate(chosen)])


def code_of(case):
    return get(case["code"], **argument(case["arguments"]))


def scale_of(case):
    return np.sqrt(array(case["squared_scale"]))[:, None] if "squared_scale" in case else 1.0


def test_the_file_is_what_the_script_writes(tmp_path):
    assert written_again("make_vectors.py", tmp_path) == (DATA / "vectors.json").read_bytes()


@picked("rows")
def test_generator_and_placement(case):
    code = code_of(case)
    if case["code"] == "short-dot":
        assert np.array_equal(code.matrix[:, : code.k], array(case["rows"]))
    else:
        close(code.generator, array(case["rows"]) * scale_of(case))
        assert code.growth == pytest.approx(np.abs(code.generator).sum(axis=1).max())
    for row, message in zip(code.generator, range(code.n_messages), strict=True):
        blocks, coefficients = code.combination(message)
        assert np.array_equal(blocks, np.flatnonzero(row))
        assert np.array_equal(coefficients, row[blocks])
    if "information_set" in case:
        assert list(code.information_set) == case["information_set"]
    if "placement" in case:
        assert [list(code.placement(worker)) for worker in range(code.n_workers)] == case["placement"]


@picked("rows", "coded", without=("w",))
def test_coded_blocks(case):
    code = code_of(case)
    blocks = array(case["blocks"])
    expected = array(case["coded"]) * scale_of(case)
    if "whole_rows" in case:
        close(code.encode(blocks[:, None])[:, 0], expected)
    else:
        close(code.encode(blocks), expected)
        some = list(range(code.n_messages))[::-2]
        close(code.encode(blocks, messages=some), expected[some])


def sets(case):
    """Yield sets of messages, and whether they determine what is wanted."""
    yield from case["sampled"] if "sampled" in case else sets_in(case["sets"], len(case["rows"]))


@picked("verdicts")
def test_verdicts(case):
    code = code_of(case)
    found = 0
    for members, determined in sets(case):
        decodable = tracked(code, members)
        assert determined or not decodable, members
        assert decodable or not determined or case["verdicts"] != "exact", members
        found += decodable
    assert found


@picked("verdicts")
def test_answers(case):
    """Of sets taken evenly from all; where the tracker asks for more than is needed, the decoder may do without."""
    code = code_of(case)
    coded, answer = array(case["coded"]) * scale_of(case), array(case["answer"])
    answer = answer[0] if case["target"] == "sum" else answer
    decoded = 0
    for members, determined in evenly(sets(case)):
        values = {i: coded[i] for i in members}
        if tracked(code, members):
            actual, certificate = code.decode(values)
            np.testing.assert_allclose(actual, answer, rtol=0, atol=1e-9 * np.abs(answer).max())
            assert certificate.error < 1e-18
            decoded += 1
        elif not determined and code.exact:
            with pytest.raises(NotDecodableError):
                code.decode(values)
    assert decoded


@picked("weights")
def test_weights(case):
    code = code_of(case)
    for members, weights in case["weights"].items():
        ids = [int(i) for i in members.split(",")]
        close(code.weights(ids).a[ids], np.array(weights, float))


@picked("best")
def test_least_error(case):
    code = code_of(case)
    coded = array(case["coded"])
    for best in case["best"]:
        ids, answer = best["arrived"], array(best["answer"])[0]
        close(code.weights(ids).alpha, array(best["alpha"]))
        actual, certificate = code.decode({i: coded[i] for i in ids})
        assert certificate.error == pytest.approx(number(best["error"]), abs=1e-11)
        np.testing.assert_allclose(actual, answer, rtol=0, atol=1e-10 * np.abs(coded).max())


@picked("dead")
def test_a_tree_with_dead_nodes(case):
    code = code_of(case)
    gradients = np.arange(1.0, code.k + 1)
    for dead, decodable in case["dead"]:
        if decodable:
            assert code.aggregate(gradients, set(dead)) == pytest.approx(120.0)
        else:
            with pytest.raises(NotDecodableError):
                code.aggregate(gradients, set(dead))


@picked("w")
def test_gradients_by_interpolation(case):
    code = code_of(case)
    blocks, w = array(case["blocks"])[:, None, :], array(case["w"])[:, 0]
    stored = code.encode(blocks)
    close(stored[:, 0], array(case["stored"]))
    sent = np.stack([x.T @ (x @ w) for x in stored])
    close(sent, array(case["coded"]))
    _interpolated(code.gradient_round, case, array(case["coded"]), array(case["answer"])[:, 0])


@picked("left")
def test_products_of_two_operands(case):
    code = code_of(case)
    left, right = code.encode_left(array(case["a"])), code.encode_right(array(case["b"]))
    pairs = [code.operands(worker) for worker in range(code.n_workers)]
    close(code.left.generator[[i for i, _ in pairs]], array(case["left"]))
    close(code.right.generator[[j for _, j in pairs]], array(case["right"]))
    close(np.array([left[i] * right[j] for i, j in pairs]), array(case["coded"]))
    answer = array(case["answer"])
    _interpolated(code, case, array(case["coded"]), answer[0] if code.target == "sum" else answer)


def _interpolated(code, case, coded, answer):
    n, threshold = len(coded), case["threshold"]
    assert code.guaranteed_threshold == threshold
    for members in range(2**n):
        ids = [i for i in range(n) if members >> i & 1]
        if len(ids) >= threshold:
            assert tracked(code, ids)
            actual = code.decode({i: coded[i] for i in ids}, tolerance=math.inf)[0]
            np.testing.assert_allclose(actual, answer, rtol=0, atol=1e-8 * max(1.0, np.abs(answer).max()))
