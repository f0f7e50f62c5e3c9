"""Gradient codes under stragglers and failures: exact answers, or approximate ones by choice, never silently."""

import gradient_codes
import numpy as np
import pytest
from gradient_cases import close, problem

import serverless_gc as sgc
from serverless_gc.codes.gradient import LinearGradientCode


@pytest.mark.parametrize("name", ["frc", "cyclic", "complex", "two-each"])
def test_failed_workers_are_stragglers(name):
    X, y, w, expected = problem("squared", 40)
    lost = [1] if name in {"frc", "two-each"} else [1, 4]
    with sgc.Session(inject=sgc.inject.Faults(fail=lost, fail_times=9), max_attempts=2) as s:
        data = s.encode(X, y, code=gradient_codes.EXACT[name]())
        gradient, report = data.gradient(w, with_report=True)
        close(gradient, expected)
        assert report.error <= 1e-12 * data.code.k
        assert report.balanced
    most = sgc.inject.Faults(fail=[0, 1, 2, 3, 4], fail_times=9)
    with sgc.Session(inject=most, max_attempts=1) as s, pytest.raises(sgc.NotDecodableError, match="cannot be counted"):
        s.encode(X, y, code=gradient_codes.EXACT[name]()).gradient(w)


def test_a_policy_that_wants_more_than_can_come_is_named():
    X, y, w, _ = problem("squared", 40)
    slow = sgc.inject.Stragglers(fraction=[0], slowdown=10)  # so that all others are there when it fails
    lost = [slow, sgc.inject.Faults(non_finite=[0])]
    options = {"inject": lost, "max_attempts": 1, "policy": lambda code: sgc.FirstK(code.n_workers)}
    said = r"11 of 12 results .* all 12 partitions can be counted from them, but the wait policy wants more"
    with (
        sgc.Session("simulated", delay=sgc.stragglers.Constant(1.0), **options) as s,
        pytest.raises(sgc.NotDecodableError, match=said),
    ):
        s.encode(X, y, code="frc", n_workers=12, stragglers=1).gradient(w)


def late(*slots):
    """These workers need ten thousand seconds of a virtual clock."""
    return sgc.Session(
        "simulated",
        delay=sgc.stragglers.Constant(1.0),
        inject=sgc.inject.Stragglers(fraction=slots, slowdown=1e4, persistent=True),
    )


def fano_mixture(X, y, w, arrived):
    """The best combination in plain NumPy, and its error."""
    rows = [range(j * len(X) // 7, (j + 1) * len(X) // 7) for j in range(7)]
    each = np.array([X[r].T @ (X[r] @ w - y[r]) for r in rows])
    B = gradient_codes.FANO[arrived]
    a = np.linalg.lstsq(B.T, np.ones(7), rcond=None)[0]
    return a @ B @ each, float(np.sum((a @ B - 1) ** 2))


@pytest.mark.parametrize(
    ("options", "arrived"),
    [
        ({"max_error": 0.1}, [0, 1, 2, 3, 4]),  # 4/7 of 7 is 0.082 per partition
        ({"max_error": 0.08}, [0, 1, 2, 3, 4, 5]),
        ({"wait": 3}, [0, 1, 2]),
        ({"wait": 6, "max_error": 0.2}, [0, 1, 2, 3]),  # whichever comes first
    ],
)
def test_a_round_closes_when_the_error_is_small_enough(options, arrived):
    X, y, w, _ = problem("squared", 30)
    expected, error = fano_mixture(X, y, w, arrived)
    for exact in (True, False):
        with sgc.Session("simulated", delay=sgc.stragglers.Constant(1.0)) as s:
            data = s.encode(X, y, code=gradient_codes.fano(exact=exact))
            gradient, report = data.gradient(w, with_report=True, **options)
        assert sorted(report.weights) == arrived
        assert report.error == pytest.approx(error)
        assert report.error_per_partition == pytest.approx(error / 7)
        assert any(f"squared error of {error:.3g}" in note for note in report.notes)
        assert report.to_dict()["certificate"]["error"] == report.error
        np.testing.assert_allclose(gradient, expected, rtol=1e-9)


def test_at_the_deadline_the_best_approximation_or_an_error():
    X, y, w, _ = problem("squared", 30)
    code = gradient_codes.fano(exact=True)
    with late(2, 5) as s:
        data = s.encode(X, y, code=code)
        with pytest.raises(sgc.DeadlineExceeded, match="on_undecodable='approximate'"):
            data.gradient(w, deadline=5.0)
        gradient, report = data.gradient(w, deadline=5.0, on_undecodable="approximate", with_report=True)
    expected, error = fano_mixture(X, y, w, [0, 1, 3, 4, 6])
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)
    assert report.error == pytest.approx(error) == pytest.approx(4 / 7)
    assert any("approximate" in note for note in report.notes)
    assert report.elapsed == pytest.approx(5.0, abs=0.5)
    with late(*range(7)) as s, pytest.raises(sgc.DeadlineExceeded, match="0 of 7 results"):
        s.encode(X, y, code=code).gradient(w, deadline=5.0, on_undecodable="approximate")


def test_when_nothing_more_can_come_the_same_is_said():
    X, y, w, _ = problem("squared", 30)
    with sgc.Session(inject=sgc.inject.Faults(fail=[3], fail_times=9), max_attempts=1) as s:
        data = s.encode(X, y, code=gradient_codes.fano())
        with pytest.raises(sgc.NotDecodableError):  # it waits for all seven unless told otherwise
            data.gradient(w)
        with pytest.raises(sgc.NotDecodableError):
            data.gradient(w, max_error=0.01)
        _, report = data.gradient(w, max_error=0.01, on_undecodable="approximate", with_report=True)
        assert report.error == pytest.approx(0.25)
        _, report = data.gradient(w, max_error=0.05, with_report=True)
        assert report.error == pytest.approx(0.25)


def test_an_approximate_code_waits_for_as_many_as_it_says():
    class Patient(LinearGradientCode):
        @property
        def awaited(self):
            return 5

    X, y, w, _ = problem("squared", 30)
    with late(6) as s:
        _, report = s.encode(X, y, code=Patient(gradient_codes.FANO, exact=False)).gradient(w, with_report=True)
    assert (report.used, report.voided) == (5, 2)
    assert report.error == pytest.approx(4 / 7)
    with sgc.Session("simulated", policy=lambda _: sgc.FirstK(6)) as s:  # the session's own policy is followed
        _, report = s.encode(X, y, code=Patient(gradient_codes.FANO, exact=False)).gradient(w, with_report=True)
    assert report.used == 6
