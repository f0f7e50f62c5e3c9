"""Product codes: exactness by the factors', two-level decoding, rectangles, sizes."""

import numpy as np
import pytest
from approx_codes import errors, generic, subsets

from serverless_gc.codes import get
from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.gradient.approximate import ApproximateCode
from serverless_gc.codes.gradient.bibd import BIBDCode
from serverless_gc.codes.gradient.erasure_head import ErasureHeadCode
from serverless_gc.codes.gradient.product import ProductGradientCode
from serverless_gc.codes.gradient.spectral import spectral_ratio
from serverless_gc.errors import InputError, NotDecodableError


class Cyclic(LinearGradientCode):
    """A cyclic code: every row combines ``s + 1`` neighbours, any ``s`` rows may be missing."""

    def __init__(self, n, s):
        checks = np.random.default_rng(0).normal(size=(s, n))
        checks[:, -1] = -checks[:, :-1].sum(axis=1)
        matrix = np.eye(n)
        for i in range(n):
            others = [(i + t) % n for t in range(1, s + 1)]
            matrix[i, others] = -np.linalg.solve(checks[:, others], checks[:, i])
        super().__init__(matrix)
        self._stragglers = s

    @property
    def tolerated(self):
        return self._stragglers


@pytest.fixture(scope="module")
def nine():
    return ProductGradientCode(outer=Cyclic(3, 1), inner=Cyclic(3, 1))


def undecodable(code, stragglers):
    return [
        lost
        for lost in subsets(code.n_workers, [stragglers])
        if code.weights(set(range(code.n_workers)).difference(lost)).error > 1e-12 * code.k
    ]


def test_all_sets_of_a_product_of_exact_codes(nine):
    assert (nine.n_workers, nine.load, nine.exact, nine.awaited, nine.tolerated) == (9, 4, True, None, 3)
    assert nine.worst_error(3) == 0.0
    assert not undecodable(nine, 3)
    lost = undecodable(nine, 4)
    assert len(lost) == 9
    for each in lost:  # the corners of rectangles
        rows, columns = {i // 3 for i in each}, {i % 3 for i in each}
        assert (len(rows), len(columns)) == (2, 2)


def test_all_sets_of_a_product_of_different_codes():
    code = ProductGradientCode(outer=Cyclic(4, 1), inner=Cyclic(3, 2))
    assert (code.n_workers, code.load, code.tolerated) == (12, 6, 5)
    assert not undecodable(code, 5)
    assert len(undecodable(code, 6)) == 6


def test_two_levels_suffice_and_now_and_then_the_solution_comes_earlier(nine):
    plain = generic(nine)
    early = {4: 0, 5: 0, 6: 0}
    for arrived in subsets(9, [4, 5, 6]):
        tracker, reference = nine.tracker(), plain.tracker()
        for i in arrived:
            tracker.add(i)
            reference.add(i)
        assert reference.decodable or not tracker.decodable
        early[len(arrived)] += reference.decodable and not tracker.decodable
        assert tracker.error == pytest.approx(0.0 if reference.decodable else reference.error, abs=1e-8)
        assert bool(tracker.missing()) or reference.decodable
    assert early == {4: 36, 5: 0, 6: 0}
    for arrived in subsets(9, [6]):
        tracker = nine.tracker()
        for i in arrived:
            tracker.add(i)
        assert tracker.decodable


def test_two_level_weights_give_the_sum(nine):
    g = np.random.default_rng(2).normal(size=(9, 3))
    sent = nine.encode(g)
    for lost in subsets(9, [3]):
        total, certificate = nine.decode({i: sent[i] for i in range(9) if i not in lost})
        np.testing.assert_allclose(total, g.sum(axis=0), atol=1e-9)
        assert certificate.method == "optimal"
    with pytest.raises(NotDecodableError):
        nine.decode({i: sent[i] for i in (0, 1, 2, 3, 6)})


def test_rectangles_of_block_designs():
    code = ProductGradientCode()
    e1, e2 = (BIBDCode(7).worst_error(s) for s in (1, 2))
    arrived = [7 * i + j for i in range(1, 7) for j in (0, 2, 3, 5, 6)]
    assert code.weights(arrived).error == pytest.approx(5.6071429, abs=5e-8)
    assert code.weights(arrived).error == pytest.approx(7 * e2 + 7 * e1 - e1 * e2)
    np.testing.assert_allclose(code.weights(arrived).a, code.weights(arrived, "lstsq").a, atol=1e-10)


def test_the_certificate_of_a_product_is_made_of_the_factors():
    for outer, inner in ((BIBDCode(7), BIBDCode(4)), (ErasureHeadCode(4, 4, load=2), BIBDCode(7))):
        code = ProductGradientCode(outer=outer, inner=inner)
        assert code._spectral_ratio == pytest.approx(spectral_ratio(code.generator))
    small = ProductGradientCode(outer=ErasureHeadCode(2, 2, load=2), inner=BIBDCode(4))
    assert small.tolerated == 1
    for s in (1, 2, 3):
        assert errors(small, s).max() <= small.worst_error(s) + 1e-9
    uneven = LinearGradientCode([[1.0, 1.0], [1.0, 0.0]], exact=False)
    assert ProductGradientCode(outer=uneven, inner=BIBDCode(4)).worst_error(1) is None


def test_incomplete_factors_give_no_guarantee():
    partial = LinearGradientCode([[1.0, 0.0], [1.0, 0.0]], exact=False)
    code = ProductGradientCode(outer=partial, inner=ErasureHeadCode(2, 2, load=2))
    assert code.tolerated == 0
    assert code.worst_error(0) == pytest.approx(2.0)
    assert isinstance(code, ApproximateCode)


def test_factors_by_name_and_size():
    code = get("product-gradient", n_workers=49 * 3, outer="bibd", inner={"code": "bibd", "n_workers": 7})
    assert [factor.n_workers for factor in (code.outer, code.inner)] == [21, 7]
    assert [get("product-gradient", n_workers=n).outer.n_workers for n in (28, 77, 169)] == [4, 7, 13]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_workers": 50}, "two sizes of block designs.*got 50: take one of 44, 49, 52"),
        ({"outer": "bibd"}, "outer and inner must be given both"),
        ({"outer": "mds", "inner": "bibd"}, "outer must be a gradient code"),
        ({"outer": "bibd", "inner": 3}, "inner must be a gradient code"),
        ({"outer": {"n_workers": 7}, "inner": "bibd"}, "outer must name its code under 'code'"),
        ({"outer": "bibd", "inner": "bibd", "n_workers": 9}, "n_workers must be the product.*441, got 9"),
        ({"outer": LinearGradientCode([[1j]]), "inner": "bibd"}, "outer must have one real message a worker"),
        (
            {"outer": LinearGradientCode(np.eye(2), placement=[[0, 1]]), "inner": "bibd"},
            "outer must have one real message a worker",
        ),
    ],
)
def test_refusals(params, words):
    with pytest.raises(InputError, match=words):
        ProductGradientCode(**params)
