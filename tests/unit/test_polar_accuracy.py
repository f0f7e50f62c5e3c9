"""What polar codes predict of their accuracy: before any value is there, and never less than the truth."""

import numpy as np
import pytest

from serverless_gc.codes.polar.code import PolarCode
from serverless_gc.codes.threshold import first_messages
from serverless_gc.errors import NotDecodableError

SHAPES = [
    {"mode": "sc"},
    {"mode": "peel"},
    {"mode": "rank"},
    {"mode": "rank", "design": "reed-muller"},
    {"mode": "sc", "kernel": "hadamard"},
    {"mode": "rank", "kernel": "hadamard"},
    {"mode": "peel", "systematic": False},
    {"mode": "rank", "systematic": False},
    {"mode": "rank", "stages": 4},
]


def named(options):
    return "-".join(map(str, options.values()))


@pytest.mark.parametrize("options", SHAPES, ids=named)
def test_a_prediction_is_that_of_the_decode(options):
    rng = np.random.default_rng(0)
    code = PolarCode(64, 48, **options)
    blocks = rng.normal(size=(48, 3))
    for dtype in (np.float64, np.float32, np.complex64):
        coded = code.encode(blocks.astype(dtype))
        for _ in range(4):
            messages = first_messages(code, rng.permutation(64).tolist())
            messages += rng.integers(64, size=int(rng.integers(3))).tolist()
            _, certificate = code.decode({i: coded[i] for i in messages}, tolerance=np.inf)
            predicted = code.certify(messages, dtype)
            for figure in ("method", "used", "amplification", "predicted_error", "unknowns"):
                assert getattr(predicted, figure) == getattr(certificate, figure)
            assert predicted.residual is None


@pytest.mark.parametrize("options", SHAPES, ids=named)
@pytest.mark.parametrize(("n", "patterns"), [(64, 12), (256, 6), (1024, 1)])
def test_predictions_are_never_below_the_error_and_not_far_above(n, patterns, options):
    rng = np.random.default_rng(n)
    code = PolarCode(n, 3 * n // 4, **options)
    for dtype in (np.float64, np.float32):
        ratios = []
        for _ in range(patterns):
            messages = first_messages(code, rng.permutation(n).tolist())
            blocks = rng.normal(size=(code.k, 64)).astype(dtype)
            coded = code.encode(blocks)
            answer, certificate = code.decode({i: coded[i] for i in messages}, tolerance=np.inf)
            if certificate.predicted_error:
                ratios.append(certificate.predicted_error * np.linalg.norm(blocks) / np.linalg.norm(answer - blocks))
        assert min(ratios) > 1
        assert np.median(ratios) < 4
        assert max(ratios) < 8


def test_the_prediction_sees_which_results_are_bad():
    """The conditions of patterns of one code differ by orders of magnitude, and so do the errors."""
    rng = np.random.default_rng(5)
    code = PolarCode(256, 163, design="reed-muller")
    blocks = rng.normal(size=(163, 8)).astype(np.float32)
    coded = code.encode(blocks)
    predicted, errors = [], []
    for _ in range(40):
        messages = first_messages(code, rng.permutation(256).tolist())
        answer, _ = code.decode({i: coded[i] for i in messages}, tolerance=np.inf)
        predicted.append(code.certify(messages, np.float32).predicted_error)
        errors.append(np.linalg.norm(answer - blocks) / np.linalg.norm(blocks))
    assert max(errors) > 20 * min(errors)
    assert np.corrcoef(np.log(predicted), np.log(errors))[0, 1] > 0.9


def test_nothing_is_predicted_of_what_does_not_decode():
    code = PolarCode(16, 8)
    assert code.certify(range(16)).predicted_error == 0.0
    with pytest.raises(NotDecodableError, match="7 of 16 results leave"):
        code.certify(range(7))
