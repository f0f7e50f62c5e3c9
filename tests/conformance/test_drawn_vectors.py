"""Codes with random or irrational coefficients give what exact arithmetic on their own coefficients says.

``tests/data/drawn.json`` holds them as the package made them, ``tests/data/make_drawn_vectors.py`` derives
``drawn_vectors.json`` from their numbers alone.
"""

import json
import math

import numpy as np
import pytest
from exact_vectors import DATA, KNOWN, close, evenly, sets_in, stored, tracked, written_again

from serverless_gc.codes import from_manifest, get
from serverless_gc.codes.manifests import manifest_from_bytes
from serverless_gc.errors import NotDecodableError

CASES = {
    f"{given['code']}-{number}": {**given, **derived}
    for number, (given, derived) in enumerate(zip(stored("drawn.json"), stored("drawn_vectors.json"), strict=True))
}
EPS = np.finfo(float).eps
SOLVED = 1e-20
"""Squared error of weights below which a set determines a sum: as for the script."""


def test_the_file_is_what_the_script_writes(tmp_path):
    assert written_again("make_drawn_vectors.py", tmp_path) == (DATA / "drawn_vectors.json").read_bytes()


def test_every_code_has_vectors():
    assert {case["code"] for case in [*stored("vectors.json"), *CASES.values()]} == KNOWN


def picked(*keys, without=()):
    """Parametrize by the codes of which all these things are stored."""
    chosen = [
        pytest.param(from_manifest(manifest_from_bytes(json.dumps(case["manifest"]).encode())), case, id=name)
        for name, case in CASES.items()
        if set(keys) <= set(case) and not set(without) & set(case)
    ]
    return pytest.mark.parametrize(("code", "case"), chosen)


def in_binary(rows):
    parts = np.array([[[float.fromhex(part) for part in x.split()] for x in row] for row in rows])
    return parts[..., 0] if parts.shape[-1] == 1 else parts[..., 0] + 1j * parts[..., 1]


def numbers(stored, like):
    """Make an array of what was written: pairs where the code is complex."""
    array = np.array(stored, float)
    return array[..., 0] + 1j * array[..., 1] if np.iscomplexobj(like) else array


def matrix_of(code):
    """Return the generator, or those of both operands side by side, a row for each message."""
    if not hasattr(code, "operands"):
        return code.generator
    pairs = np.array([code.operands(worker) for worker in range(code.n_workers)])
    return np.hstack([code.left.generator[pairs[:, 0]], code.right.generator[pairs[:, 1]]])


def within_rounding(actual, expected, operations=4):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=operations * EPS * np.abs(expected).max())


@picked()
def test_a_manifest_gives_the_coefficients_that_were_stored(code, case):
    rows = case["rows"] if "rows" in case else [x + y for x, y in zip(case["left"], case["right"], strict=True)]
    within_rounding(matrix_of(code), in_binary(rows))


@picked("formula")
def test_coefficients_are_the_formula_to_rounding(code, case):
    """The generator was worked out anew, to fifty digits; the code is made from its arguments, not what was stored."""
    for matrix in (matrix_of(code), matrix_of(get(case["code"], **case["arguments"]))):
        within_rounding(matrix, numbers(case["formula"], matrix), operations=8)


@picked("rows", "coded", without=("w", "matrix"))
def test_coded_blocks(code, case):
    """Each entry differs by no more than its sum of products may round."""
    blocks = np.array(case["blocks"])
    expected = numbers(case["coded"], code.generator)
    flat = blocks.reshape(code.generator.shape[1], -1)
    rounding = 2 * (code.k + 2) * EPS * (np.abs(code.generator) @ np.abs(flat))
    actual = code.encode(blocks)
    assert actual.shape == expected.shape
    assert (np.abs(actual - expected) <= rounding).all()


@picked("matrix")
def test_coded_rows_with_zeros(code, case):
    close(code.encode(np.array(case["answer"])[:, None])[:, 0], np.array(case["coded"]))


@picked("w")
def test_stored_blocks_of_a_curve(code, case):
    close(code.encode(np.array(case["blocks"])[:, None])[:, 0], np.array(case["stored"]))


@picked("a")
def test_products_of_coded_operands(code, case):
    left, right = code.encode_left(np.array(case["a"])), code.encode_right(np.array(case["b"]))
    sent = np.array([left[i] * right[j] for i, j in map(code.operands, range(code.n_workers))])
    close(sent, numbers(case["coded"], sent))


def decoder_of(code):
    """Return what decodes messages: the round of gradients, of a code for data that are squared."""
    return getattr(code, "gradient_round", code)


@picked("sets")
def test_verdicts_are_the_exact_rank(code, case):
    """Where a verdict is only sufficient, the tracker may ask for more: it counts, or peels."""
    decoder, found = decoder_of(code), 0
    for members, determined in sets_in(case["sets"], len(case["coded"])):
        decodable = tracked(decoder, members)
        assert determined or not decodable, members
        assert decodable or not determined or case["verdicts"] == "sufficient", members
        found += decodable
    assert found


@picked("sets")
def test_answers(code, case):
    """Every set answers within what its certificate says of rounding, and no set that determines nothing answers."""
    decoder = decoder_of(code)
    coded = numbers(case["coded"], matrix_of(code))
    answer, decoded, accurate = np.array(case["answer"]), 0, 0
    for members, determined in evenly(sets_in(case["sets"], len(coded)), 100):
        values = {i: coded[i] for i in members}
        if not tracked(decoder, members):
            if members and not determined:
                with pytest.raises(NotDecodableError):
                    decoder.decode(values)
            continue
        actual, certificate = decoder.decode(values, tolerance=math.inf)
        error = np.abs(actual - answer).max() / np.abs(answer).max()
        assert error <= 100 * EPS * max(1.0, certificate.amplification), (members, certificate)
        decoded += 1
        accurate += error < 1e-12
    assert accurate >= 0.9 * decoded > 0


@picked("conditions")
def test_conditions(code, case):
    """The stored figure is that of Frobenius: at least the spectral one, at most so many times it as there are rows."""
    for members, product in case["conditions"]:
        estimate = code.certify(members).amplification
        assert estimate >= product / code.k * (1 - 1e-9)
        if case["code"] != "mds":  # whose estimate bounds the condition number, from above
            assert estimate <= product * (1 + 1e-9)


@picked("best")
def test_least_errors(code, case):
    """The best weights of every set have the exact error, count partitions as they should and give that answer."""
    blocks, coded = np.array(case["blocks"]), numbers(case["coded"], code.generator)
    for members, error, counted in case["best"]:
        weights = code.weights(members)
        assert weights.error == pytest.approx(error, abs=1e-10)
        values = {i: coded[i] for i in members}
        if counted:
            alpha = numbers(counted, code.generator)
            close(weights.alpha, alpha)
            if code.exact and error >= SOLVED:
                with pytest.raises(NotDecodableError):
                    code.decode(values)
                continue
            actual, certificate = code.decode(values)
            np.testing.assert_allclose(actual, alpha @ blocks, rtol=0, atol=1e-10 * np.abs(coded).max())
            assert certificate.error == pytest.approx(error, abs=1e-10)
        elif error < SOLVED:
            np.testing.assert_allclose(code.decode(values)[0], case["answer"], rtol=0, atol=1e-9)


@picked("gap")
def test_verdicts_are_the_exact_error(code, case):
    """Sets that determine the sum, up to the rounding of the coefficients, are far from all others."""
    rounding, least = case["gap"]
    assert rounding < 1e-26
    assert least > 1e-4
    for members, error, _ in case["best"]:
        decodable = tracked(code, members)
        assert error < SOLVED or not decodable, members
        assert decodable or error >= SOLVED or case["verdicts"] == "sufficient", members


@picked("answers")
def test_rational_interpolation(code, case):
    coded = np.array(case["coded"])
    for members, error, answer in case["answers"]:
        actual, certificate = code.decode({i: coded[i] for i in members})
        close(actual, np.array(answer))
        assert certificate.error == pytest.approx(error, rel=1e-10, abs=1e-24)
