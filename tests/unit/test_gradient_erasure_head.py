"""ErasureHead: mean and worst errors, stopping times, unbiasing."""

import numpy as np
import pytest
from approx_codes import errors, mean_within, random_errors, subsets

from serverless_gc.codes import get
from serverless_gc.codes.gradient.approximate import missed_by_all
from serverless_gc.codes.gradient.erasure_head import ErasureHeadCode
from serverless_gc.errors import InputError


def test_worked_mean_errors():
    assert ErasureHeadCode(100, 100, load=5).expected_error(80) == pytest.approx(0.0205931, abs=5e-8)
    assert ErasureHeadCode(12, 12, load=3).expected_error(8) == pytest.approx(0.2181818, abs=5e-8)
    assert ErasureHeadCode(100, 100, load=5).one_step_error(80) == pytest.approx(4.79798, abs=5e-6)
    assert ErasureHeadCode(12, 12, load=3).one_step_error(8) == pytest.approx(1.6363636, abs=5e-8)


def test_mean_times_of_exponential_workers():
    code = ErasureHeadCode(30, 30, load=3)
    assert code.mean_cover_time() == pytest.approx(0.9763228, abs=5e-8)
    assert code.mean_arrival_time(30) == pytest.approx(3.9949871, abs=5e-8)
    assert code.mean_arrival_time(28) == pytest.approx(2.4949871, abs=5e-8)
    assert ErasureHeadCode(20, 20).mean_arrival_time(15) == pytest.approx(1.3144063, abs=5e-8)
    times = np.random.default_rng(0).exponential(size=(2000, 10, 3)).min(axis=2).max(axis=1)
    assert mean_within(times, code.mean_cover_time())


def test_no_code_of_its_load_has_a_smaller_mean_and_the_adversary_takes_whole_classes():
    code = ErasureHeadCode(8, 4, load=2)
    for s in range(9):
        assert code.expected_error(8 - s) == pytest.approx(missed_by_all(code.generator, 8 - s))
        assert errors(code, s).max() == code.worst_error(s)
    assert code.worst_error(4) == 2 == code.least_worst_error(4)
    assert ErasureHeadCode(8, 16, load=2).worst_error(5) == 8


def test_dividing_by_the_chance_of_cover_makes_the_answer_unbiased():
    code = ErasureHeadCode(6, 6, load=2, layout="stacked")
    for arrived in (0, 2, 4):
        alphas = [code.weights(ids, "unbiased").alpha for ids in subsets(6, [arrived])]
        np.testing.assert_allclose(np.mean(alphas, axis=0), float(arrived > 0))
    assert code.weights([0, 3], "unbiased").method == "unbiased"


def test_exact_once_all_classes_are_covered_and_each_class_counts_once():
    code = ErasureHeadCode(6, 6, load=2, layout="stacked")
    tracker = code.tracker()
    assert [bool(tracker.add(i)) for i in (0, 3, 1, 5)] == [False, False, False, True]
    assert code.weights([0, 3, 1, 5]).a.tolist() == [1, 1, 0, 0, 0, 1]
    g = np.random.default_rng(1).normal(size=(6, 2))
    sent = code.encode(g)
    total, certificate = code.decode({i: sent[i] for i in (0, 3, 1, 5)}, approximate=False)
    np.testing.assert_allclose(total, g.sum(axis=0))
    assert certificate.used == (0, 1, 5)


def test_random_sets_have_the_mean_error_of_the_formula():
    code = ErasureHeadCode(20, 20, load=4)
    assert mean_within(random_errors(code, 12, 500, 0), code.expected_error(12))


@pytest.mark.parametrize(
    ("sizes", "params", "words"),
    [
        ((8, 8), {"load": 3}, "load must divide n_workers=8, got 3: take one of 1, 2, 4, 8"),
        ((8, 6), {"load": 2}, "k must be a multiple of the number of classes, n_workers / load = 4, got 6"),
        ((8, 8), {"load": 9}, r"load must be an integer in 1\.\.8"),
        ((8, 8), {"layout": "mixed"}, "layout must be 'grouped' or 'stacked'"),
        (
            (17, 17),
            {},
            "n_workers must be a multiple of 2, 3 or 5.*got 17: take one of 14, 15, 16, 18",
        ),
    ],
)
def test_refusals(sizes, params, words):
    with pytest.raises(InputError, match=words):
        ErasureHeadCode(*sizes, **params)


def test_usual_loads():
    assert [get("erasurehead", n_workers=n).load for n in (16, 15, 25)] == [2, 3, 5]
