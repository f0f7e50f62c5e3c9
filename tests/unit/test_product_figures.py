"""Product codes: average thresholds, accuracy at the threshold, and the predicted error."""

import numpy as np
import pytest

from serverless_gc.codes.product.code import ProductCode

# line (n, k), mean of the table's 300 orders, orders here
GRIDS = [
    ((3, 2), 4.46, 300),
    ((4, 3), 10.0, 300),
    ((11, 10), 106.8, 150),
    ((16, 15), 236.0, 100),
    ((16, 14), 204.7, 100),
    ((32, 30), 921.4, 25),
    ((32, 28), 816.0, 25),
]


def square(side):
    return ProductCode(side[0] ** 2, side[1] ** 2, grid=(side, side))


def threshold(code, rng):
    order = rng.permutation(code.n_workers).tolist()
    tracker = code.tracker()
    count = next(j for j, i in enumerate(order, 1) if tracker.add(i))
    return order[:count]


@pytest.mark.parametrize(("side", "mean", "trials"), GRIDS)
def test_average_threshold(side, mean, trials):
    code, rng = square(side), np.random.default_rng(1)
    found = np.array([len(threshold(code, rng)) for _ in range(trials)])
    assert abs(found.mean() - mean) < 3 * found.std() * (1 / trials + 1 / 300) ** 0.5
    assert found.max() <= code.guaranteed_threshold


@pytest.mark.parametrize(
    ("side", "trials", "median", "worst", "median_single", "worst_single"),
    [
        ((11, 10), 12, 1.2e-15, 1e-13, 3e-7, 5e-6),
        ((16, 14), 12, 4e-14, 2e-12, 1.2e-5, 1e-4),
        ((32, 30), 5, 2e-13, 3e-10, 4e-5, 4e-3),
    ],
)
def test_error_at_the_threshold(side, trials, median, worst, median_single, worst_single):
    code, rng = square(side), np.random.default_rng(2)
    blocks = rng.normal(size=(code.k, 16))
    double, single = code.encode(blocks), code.encode(blocks.astype(np.float32))
    errors = {double.dtype: [], single.dtype: []}
    for _ in range(trials):
        ids = threshold(code, rng)
        for coded in (double, single):
            decoded, certificate = code.decode({i: coded[i] for i in ids})
            error = np.linalg.norm(decoded - blocks) / np.linalg.norm(blocks)
            errors[coded.dtype].append(error)
            if certificate.method == "peel":
                assert certificate.predicted_error / 10 < error < 5 * certificate.predicted_error
                assert code.certify(ids, coded.dtype).predicted_error == certificate.predicted_error
                assert bool(certificate.warning) == (certificate.predicted_error > (1e-8, 1e-4)[coded is single])
    assert np.median(errors[double.dtype]) < median
    assert max(errors[double.dtype]) < worst
    assert np.median(errors[single.dtype]) < median_single
    assert max(errors[single.dtype]) < worst_single


def test_double_precision_sums_keep_chains_of_single_precision_results_from_rounding_again():
    code, rng = square((32, 28)), np.random.default_rng(5)
    blocks = rng.normal(size=(code.k, 4)).astype(np.float32)
    coded = code.encode(blocks)
    orders = (threshold(code, rng) for _ in range(20))
    ids = next(ids for ids in orders if code.certify(ids, np.float32).warning)
    decoded, certificate = code.decode({i: coded[i] for i in ids})
    assert certificate.warning
    exact, _ = code.decode({i: coded[i].astype(np.float64) for i in ids}, tolerance=1.0)
    assert decoded.dtype == np.float32
    assert np.linalg.norm(decoded - exact) < 0.05 * np.linalg.norm(exact - blocks)


def test_more_results_shorten_the_repairs():
    code, rng = square((16, 14)), np.random.default_rng(3)
    ratios = []
    for _ in range(20):
        ids = threshold(code, rng)
        rest = [i for i in range(code.n_workers) if i not in ids]
        more = [*ids, *rng.choice(rest, 8, replace=False).tolist()]
        ratios.append(code.certify(more).predicted_error / code.certify(ids).predicted_error)
    assert np.median(ratios) < 0.5


def test_one_parity_repair_is_counted_exactly():
    code = ProductCode(4, 3, grid=((4, 3), (1, 1)))
    certificate = code.certify([0, 1, 3])
    # block 2 is message 3 less two others: 3 + 1 + 1 units, and 3 terms of three quarters a unit each
    assert certificate.amplification == pytest.approx((5 + 3 / 4 * 5) ** 0.5)
    assert certificate.predicted_error == pytest.approx(0.5 * 2.0**-53 * ((2 + 5 + 3 / 4 * 5) / 3) ** 0.5)
    assert code.certify([0, 1, 2, 3]).predicted_error == 0
