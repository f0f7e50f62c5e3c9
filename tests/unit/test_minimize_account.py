"""The account of a training: sums of reports, the most at once, ages of results, and what a fit says."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from serverless_gc.fitting import Account, Fit
from serverless_gc.fitting.result import peak, said
from serverless_gc.observe import Report, Span

TIMES = st.tuples(st.integers(0, 12), st.integers(1, 6)).map(lambda t: (t[0], t[0] + t[1]))


@given(st.lists(TIMES, max_size=12))
@settings(max_examples=50, deadline=None)
def test_the_peak_is_what_counting_at_every_moment_gives(times):
    spans = [Span(0, 0, 0, float(a), float(b)) for a, b in times]
    moments = [sum(a <= t < b for a, b in times) for t in range(20)]
    assert peak(spans) == max(moments)


def report(used, wasted, seconds=1.0):
    spans = [Span(i, 0, 0, 0.0, 1.0 + i) for i in range(used)]
    spans += [Span(used + i, 0, 0, 0.5, 1.0, fate="voided") for i in range(wasted)]
    return Report(issued=used + wasted, used=used, voided=wasted, elapsed=seconds, spans=tuple(spans), bytes_up=10)


def test_reports_add_up():
    account = Account().with_report(report(3, 2)).with_report(report(2, 0, 0.25))
    assert (account.issued, account.used, account.wasted, account.evaluations) == (7, 5, 2, 2)
    assert account.busy_used == (1 + 2 + 3) + (1 + 2)
    assert account.busy_wasted == 2 * 0.5
    assert account.billed_seconds == 10.0
    assert account.seconds == 1.25
    assert (account.peak, account.bytes_up) == (5, 20)
    assert account.staleness == {0: 5}


def test_what_runs_on_is_known_to_a_simulated_clock_only():
    assert Account().with_report(report(1, 1)).run_on is None
    account = Account().with_report(report(1, 1), run_on=1.5).with_report(report(1, 0), run_on=0.25)
    assert account.run_on == 1.75
    assert "up to 1.75 s more after giving up" in str(account)
    assert account.billed_seconds == 2.5


def test_the_peak_and_the_mean_count_attempts_that_were_given_up():
    account = Account().with_report(report(3, 2), run_on=4.0, most=7).with_report(report(2, 0), run_on=1.0, most=6)
    assert (account.peak, account.zombies) == (7, 2.5)
    assert "at most 7 at once, 2.5 of those given up in the mean" in str(account)
    assert Account().with_report(report(3, 2)).zombies is None


def test_samples_are_known_while_those_of_all_gradients_are():
    account = Account().with_report(report(3, 0), samples=40).with_report(report(3, 0), samples=2.5)
    assert account.samples == 42.5
    assert account.with_report(report(1, 0)).with_report(report(1, 0), samples=1).samples is None


def test_ages_of_stale_results_are_counted():
    account = Account().with_report(report(3, 0), (0, 2, 2)).with_report(report(2, 0), (1, 2))
    assert account.staleness == {0: 1, 1: 1, 2: 3}
    assert "staleness 1.40 updates in the mean, 2 at most" in str(account)
    assert Account.from_dict(account.to_dict()) == account


def fit(**fields):
    values = {
        "w": np.zeros(2),
        "value": 0.125,
        "gradient": np.zeros(2),
        "values": np.array([1.0, 0.125]),
        "gradient_norms": np.array([2.0, 1e-7]),
        "seconds": np.array([0.5, 1.0]),
        "billed_seconds": np.array([4.0, 8.0]),
        "steps": 1,
        "reason": "gradient",
        "message": said("gradient"),
        "method": "nesterov",
        "account": Account(updates=1, evaluations=2).with_report(report(3, 1)),
        "report": Report(code="mds", n_workers=4, notes=("beware",)),
    }
    return Fit(**{**values, **fields})


def test_a_summary_reads_like_a_report():
    assert fit().summary().splitlines() == [
        "nesterov on mds, 4 workers: 1 steps; the gradient is small enough",
        "  value    0.125, gradient 1.0e-07 (2.0e+00 at the start)",
        "  updates  1, 3 gradients each, 1.00 s",
        "  tasks    4 issued = 3 used + 1 wasted; at most 4 at once",
        "  billed   6.50 s = 6.00 s used + 0.50 s wasted; 1e-05 MB up, 0 MB down",
        "  store    0 reads, 0 writes, not counting workers that were given up",
        "  note     beware",
    ]


def test_a_summary_says_where_the_value_is_from_and_which_clock_ran():
    simulated = Account(updates=2).with_report(report(3, 1), run_on=0.25)
    lines = fit(steps=2, account=simulated).summary().splitlines()
    assert fit(steps=2).steps_since_value == 1
    assert lines[1] == "  value    0.125 before the last step, gradient 1.0e-07 (2.0e+00 at the start)"
    assert lines[2].endswith(" s on a simulated clock")


@pytest.mark.parametrize(
    ("reason", "success"), [("gradient", True), ("change", True), ("rounds", False), ("stuck", False)]
)
def test_success_is_having_nothing_left_to_gain(reason, success):
    assert fit(reason=reason).success is success


def test_a_resumed_run_and_a_run_without_a_gradient_say_so():
    assert "1 steps, taken up at step 3;" in fit(resumed_at=3).summary()
    nothing = np.array([])
    assert "value    nan\n" in fit(value=np.nan, values=nothing, gradient_norms=nothing).summary()
