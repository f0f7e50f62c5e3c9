"""No answer has lost its digits without a word: a round waits, warns or refuses."""

import warnings

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.codes import MDSCode

RNG = np.random.default_rng(11)
X, Y, W = RNG.normal(size=(120, 6)), RNG.normal(size=120), RNG.normal(size=6)
MATMUL = ["matdot", "ortho-matdot", "entangled", "polynomial", "polynomial-complex"]
DATA = ["lagrange", "pcr", "lcc-mmc"]
DOUBTFUL, LARGEST = 1e-6, 1e-3


def relative(answer, exact):
    return float(np.linalg.norm(answer - exact) / np.linalg.norm(exact))


def compute(session, code, n_workers, **sizes):
    """Relative error of an answer, and its report."""
    if code in MATMUL:
        answer, report = sgc.coded_matmul(
            X.T, X, code=code, n_workers=n_workers, session=session, with_report=True, **sizes
        )
        return relative(answer, X.T @ X), report
    data = session.encode(X, Y, code=code, n_workers=n_workers, **sizes)
    gradient, report = data.gradient(W, with_report=True)
    return relative(gradient, X.T @ (X @ W - Y)), report


def late(first, n_workers):
    """Let runs of neighbours answer first, which is the worst that can happen to a polynomial."""
    return sgc.inject.Stragglers(fraction=set(range(n_workers)) - set(first), slowdown=50)


@pytest.mark.parametrize("n_workers", [30, 50, 100, 200])
@pytest.mark.parametrize("code", [*MATMUL, *DATA])
def test_whoever_answers_first_the_answer_is_right(code, n_workers):
    blocks = 21 if code == "polynomial-complex" else 0  # enough that a few neighbours do not determine it
    orders = [
        sgc.inject.Stragglers(fraction=0.3, slowdown=10, seed=n_workers),
        late(range(12), n_workers),
        late(range(n_workers // 2, n_workers // 2 + 12), n_workers),
    ]
    for seed, order in enumerate(orders):
        delay = sgc.stragglers.ShiftedExponential(shift=1.0, rate=2.0)
        with sgc.Session("simulated", delay=delay, inject=order, seed=seed) as session, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "n_workers=|k=")
            sizes = {"p": 3, "q": 7} if blocks else {}
            error, report = compute(session, code, n_workers, **sizes)
        predicted = report.certificate.predicted_error
        assert predicted <= DOUBTFUL
        assert error <= 10 * predicted + 1e-12
        assert report.balanced


@pytest.mark.parametrize("code", [*MATMUL, *DATA])
def test_workers_of_this_machine_answer_in_their_order(code):
    with sgc.Session("local") as session, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n_workers=|k=")
        error, report = compute(session, code, 50)
    assert error <= 10 * report.certificate.predicted_error + 1e-12 <= 1e-4


def test_nothing_more_to_come_refuses_or_warns():
    with sgc.Session("simulated") as session:
        with pytest.raises(sgc.DecodeError, match=r"from 59 of 59 .* is not given: take fewer workers") as info:
            compute(session, "matdot", 59, k=30, allow_unstable=True)
        assert "wait for more results" not in str(info.value)
        assert info.value.predicted > info.value.tolerance == LARGEST
        with pytest.warns(sgc.AccuracyWarning, match="from 33 of 33 messages"):
            error, report = compute(session, "matdot", 33, k=17, allow_unstable=True)
    assert DOUBTFUL < report.certificate.predicted_error <= LARGEST
    assert error <= 10 * report.certificate.predicted_error


def test_a_tolerance_is_the_callers_own_bound():
    with sgc.Session("simulated", tolerance=1e-3) as session:
        error, _ = compute(session, "matdot", 33, k=17, allow_unstable=True)  # no warning: those are errors here
        assert error < 1e-3
    with sgc.Session("simulated", tolerance=1e-9) as session:
        with pytest.raises(sgc.DecodeError, match="fewer blocks"):
            compute(session, "matdot", 33, k=17, allow_unstable=True)
        error, report = compute(session, "matdot", 50)
        assert report.certificate.predicted_error <= 1e-9


def test_a_rule_that_stops_too_early_is_told_to_wait():
    with (
        sgc.Session("simulated", inject=late(range(12), 100), policy=lambda _: sgc.FirstK(9)) as session,
        pytest.raises(sgc.DecodeError, match=r"from 9 of 100 messages .*wait for more results"),
    ):
        compute(session, "matdot", 100)


def test_a_deadline_ends_the_waiting_for_accuracy():
    never = sgc.inject.Stragglers(fraction=set(range(13, 50)), slowdown=1e6)
    with sgc.Session("simulated", inject=never, deadline=5.0) as session, warnings.catch_warnings():
        warnings.simplefilter("ignore", sgc.AccuracyWarning)
        error, report = compute(session, "matdot", 50)
    assert report.used == 13
    assert DOUBTFUL < report.certificate.predicted_error <= LARGEST
    assert error <= 10 * report.certificate.predicted_error


def test_single_precision_waits_for_more():
    A, x = X, W
    used, errors = {}, {}
    for dtype in (np.float64, np.float32):
        with sgc.Session("simulated", inject=late(range(12), 50)) as session:
            z, report = session.encode(A, code="lagrange", n_workers=50, k=8, dtype=dtype).matvec(x, with_report=True)
        used[dtype], errors[dtype] = report.used, relative(z, A @ x)
        assert errors[dtype] <= 10 * report.certificate.predicted_error
    assert errors[np.float32] < 1e-2
    assert errors[np.float64] < 1e-5
    assert used[np.float32] > used[np.float64]


def test_well_conditioned_codes_wait_for_no_more():
    with sgc.Session("simulated", inject=late(range(30), 40)) as session:
        _, report = session.encode(X, code="mds", n_workers=40, k=30).matvec(W, with_report=True)
        assert report.used == 30
        _, report = sgc.coded_matmul(X.T, X, code="khatri-rao", n_workers=40, session=session, with_report=True)
        assert report.used == report.k


def test_a_report_says_it_once():
    with sgc.Session("simulated", tolerance=1e-3) as session:
        _, report = compute(session, "matdot", 33, k=17, allow_unstable=True)
    assert str(report).count("predicted relative error") == 2  # the figure, and the note on it
    assert str(report).count(report.certificate.warning) == 1


@pytest.mark.parametrize("seed", [0, 4])  # who arrives; both were taken for wrong results
def test_amplified_rounding_of_single_precision_is_no_wrong_result(seed):
    rng = np.random.default_rng(0)
    A, x = rng.normal(size=(4000, 20)), rng.normal(size=20)
    with sgc.Session("simulated", seed=seed) as s:
        z, report = s.encode(A, code="lt", n_workers=200, dtype=np.float32).matvec(x, with_report=True)
    error = np.linalg.norm(z - A @ x) / np.linalg.norm(A @ x)
    assert 1e-6 < error < report.certificate.predicted_error < 1e-3


class Asked(MDSCode):
    """Counts how often it is asked for a prediction."""

    asked = 0

    def certify(self, messages, dtype=np.float64):
        self.asked += 1
        return super().certify(messages, dtype)


def test_in_single_precision_the_decode_itself_predicts_the_error():
    code = Asked(12, 8)
    with sgc.Session("simulated", policy=lambda code: sgc.KSync(code.k + 2)) as session:
        z, report = session.encode(X, code=code, dtype=np.float32).matvec(W, with_report=True)
    assert code.asked == 0
    assert relative(z, X @ W) <= 10 * report.certificate.predicted_error < 1e-4
