"""One round or two: the table of choices, and the Gram matrix."""

import numpy as np
import pytest

from serverless_gc.data.strategy import Choice, Gram, check_strategy, choose, gram_may_pay, make_gram
from serverless_gc.encode import as_source
from serverless_gc.errors import InputError

FACTS = {"loss": "squared", "weighted": False, "sparse": False, "shape": (1000, 10), "gradients": 5}


def conditioned(number):
    return Gram(np.diag([1.0, number**2]))


FINE, BAD = Gram(np.diag([1.0, 4.0])), Gram(np.diag([1.0, 1e10]))


@pytest.mark.parametrize(
    ("change", "gram", "expected", "words"),
    [
        ({}, FINE, "gram", "condition number 2"),
        ({}, BAD, "two-round", "condition number of X is 1e"),
        ({}, conditioned(0.99e4), "gram", "condition number 9900"),
        ({}, conditioned(1.01e4), "two-round", "square it"),
        ({"dtype": np.complex128}, conditioned(0.99e4), "gram", "condition number 9900"),
        ({"dtype": np.float32}, conditioned(99.0), "gram", "condition number 99"),
        ({"dtype": np.float32}, conditioned(101.0), "two-round", "square it in single precision"),
        ({"dtype": np.complex64}, conditioned(101.0), "two-round", "square it in single precision"),
        ({"gradients": 1}, FINE, "two-round", "several gradients"),
        ({"loss": "poisson"}, FINE, "two-round", "the loss is poisson"),
        ({"weighted": True}, FINE, "two-round", "weights"),
        ({"sparse": True}, None, "two-round", "sparse"),
        ({"shape": (99, 10)}, FINE, "two-round", "costs more"),
        ({"shape": (10**6, 201)}, FINE, "two-round", "costs more"),
    ],
)
def test_auto_follows_the_table(change, gram, expected, words):
    choice = choose("auto", **FACTS | change, gram=gram)
    assert choice.strategy == expected
    assert words in str(choice)


def test_the_condition_decides_once_the_matrix_is_there():
    assert choose("auto", **FACTS, gram=None) is None
    assert choose("gram", **FACTS | {"shape": (3, 3), "gradients": 0}, gram=None) is None
    assert choose("gram", **FACTS, gram=BAD) == Choice("gram", "asked for")
    assert choose("two-round", **FACTS, gram=FINE).strategy == "two-round"


def test_what_does_not_apply_is_refused():
    for change, words in [({"loss": "logistic"}, "squared loss only"), ({"weighted": True}, "weights")]:
        with pytest.raises(InputError, match=words):
            choose("gram", **FACTS | change, gram=FINE)
    with pytest.raises(InputError, match="strategy must be one of auto, two-round, gram, polynomial, got 'fast'"):
        check_strategy("fast")
    assert check_strategy("gram") == "gram"
    assert not gram_may_pay((1000, 10), sparse=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, np.complex128])
def test_the_gram_matrix_is_the_products_of_all_columns(dtype, monkeypatch):
    monkeypatch.setattr("serverless_gc.data.strategy._STRIP_BYTES", 400)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(37, 5)) * 9).astype(dtype)
    wide = X.astype(np.complex128 if dtype == np.complex128 else np.float64)
    if dtype == np.complex128:
        X = wide = wide + 1j * rng.normal(size=(37, 5))
    gram = make_gram(as_source(X))
    np.testing.assert_allclose(gram.matrix, wide.conj().T @ wide, rtol=1e-13)
    assert gram.condition == pytest.approx(np.linalg.cond(wide), rel=1e-6)


def test_a_singular_matrix_has_no_finite_condition():
    assert make_gram(as_source(np.ones((9, 2)))).condition == np.inf
