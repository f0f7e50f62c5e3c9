import dataclasses
import json
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from serverless_gc.codes.base import Certificate
from serverless_gc.errors import ServerlessGCError
from serverless_gc.observe import Report, Span


def rounds():
    first = Report(
        issued=20,
        used=12,
        surplus=2,
        failed=3,
        voided=3,
        elapsed=1.5,
        awaited=14,
        retries=2,
        recovered=1,
        failures={"throttled": 1, "lost": 2},
        code="mds",
        n_workers=16,
        k=12,
        bytes_up=1_500_000,
        encode_seconds=0.2,
        certificate=Certificate("lu", predicted_error=1e-13, amplification=50.0),
        spans=(Span(0, 0, 0, 10.0, 11.0),),
        decodable={0: 11.0},
        notes=("three functions may still be billed",),
    )
    second = Report(
        issued=8,
        used=8,
        elapsed=0.5,
        awaited=8,
        late=1,
        failures={"lost": 1},
        code="mds",
        n_workers=8,
        k=8,
        bytes_down=2_000,
        decode_seconds=0.01,
        certificate=Certificate("lu", predicted_error=1e-9, amplification=2.0, residual=1e-15, surplus_checked=1),
        spans=(Span(3, 1, 0, 11.5, 12.0, fate="failed"),),
        decodable={0: 12.0},
        notes=("three functions may still be billed", "concurrency is 10"),
    )
    return first, second


def test_merge_adds_and_keeps_the_worse_certificate():
    first, second = rounds()
    both = first.merge(second).check()
    assert (both.issued, both.used, both.surplus, both.failed, both.voided) == (28, 20, 2, 3, 3)
    assert (both.elapsed, both.rounds, both.awaited, both.late) == (2.0, 2, 22, 1)
    assert both.failures == {"throttled": 1, "lost": 3}
    assert (both.code, both.n_workers, both.k) == ("mds", 16, 12)
    assert both.certificate is second.certificate
    assert second.merge(first).certificate is second.certificate
    assert both.notes == ("three functions may still be billed", "concurrency is 10")
    assert [s.round for s in both.spans] == [0, 1]
    assert both.decodable == {0: 11.0, 1: 12.0}
    assert (first.issued, second.issued) == (20, 8), "the parts are not changed"


def test_rounds_numbered_apart_keep_their_numbers():
    a = Report(spans=(Span(0, 0, 4, 0.0, 1.0),), decodable={4: 1.0})
    b = Report(spans=(Span(0, 0, 5, 1.0, 2.0),), decodable={5: 2.0})
    assert a.merge(b).decodable == {4: 1.0, 5: 2.0}


@pytest.mark.parametrize(
    ("fine", "worse"),
    [
        (Certificate("a", predicted_error=1e-12), Certificate("b", predicted_error=float("nan"))),
        (Certificate("a", predicted_error=1e-12), Certificate("b", residual=1e-3, surplus_checked=2)),
        (Certificate("a"), Certificate("b", amplification=9.0)),
        (Certificate("a"), Certificate("b", warning="one result disagrees")),
        (None, Certificate("b")),
    ],
)
def test_what_is_worse(fine, worse):
    assert Report(certificate=fine).merge(Report(certificate=worse)).certificate is worse
    assert Report(certificate=worse).merge(Report(certificate=fine)).certificate is worse


def test_an_account_that_does_not_add_up_is_said_with_its_counts():
    bad = Report(issued=4, used=3)
    assert not bad.balanced
    with pytest.raises(ServerlessGCError, match="4 issued = 3 used"):
        bad.check()
    good = Report(issued=4, used=3, voided=1)
    assert good.check() is good


def test_summary_is_a_few_readable_lines():
    first, second = rounds()
    assert str(first.merge(second)).splitlines() == [
        "mds, 16 workers, k = 12: 2 rounds in 2.00 s",
        "  tasks    28 issued = 20 used + 2 surplus + 3 failed + 3 voided; 22 results had arrived",
        "  trouble  2 retries; 1 lost reply, its result recovered; 1 late reply; failures: 3 lost, 1 throttled",
        "  cost     1.5 MB up, 2 kB down; encode 0.20 s, decode 10 ms",
        "  answer   predicted relative error 1.0e-09 (lu); 1 surplus result agrees within 1.0e-15",
        "  note     three functions may still be billed",
        "  note     concurrency is 10",
    ]
    assert str(Report(issued=1, used=1, awaited=1)).splitlines() == [
        "report: 1 round in 0 ms",
        "  tasks    1 issued = 1 used + 0 surplus + 0 failed + 0 voided; 1 result had arrived",
    ]


def test_seconds_of_a_simulated_clock_are_said_to_be():
    first, second = rounds()
    both = first.merge(dataclasses.replace(second, simulated=True))
    assert both.simulated
    assert str(both).startswith("mds, 16 workers, k = 12: 2 rounds in 2.00 s on a simulated clock\n")
    assert "on a simulated clock" in repr(both)


def test_to_dict_is_json():
    first, _ = rounds()
    report = Report(issued=np.int64(3), elapsed=np.float64(0.5), certificate=first.certificate, spans=first.spans)
    back = json.loads(json.dumps(report.to_dict()))
    assert (back["issued"], back["elapsed"], back["spans"][0]["t_end"]) == (3, 0.5, 11.0)
    assert back["certificate"]["amplification"] == 50.0
    assert json.loads(json.dumps(first.to_dict()))["decodable"] == {"0": 11.0}


def test_a_report_is_a_value():
    with pytest.raises(FrozenInstanceError):
        Report().used = 3
    first, second = rounds()
    merged = first.merge(second)
    assert pickle.loads(pickle.dumps(merged)) == merged  # noqa: S301 - our own bytes


def test_exact_reasons_follow_the_kinds_of_failures():
    first = Report(issued=3, failed=3, failures={"bad-reply": 2, "lost": 1}, reasons={"empty reply": 2, "lost": 1})
    second = Report(issued=1, failed=1, failures={"bad-reply": 1}, reasons={"stale reply": 1})
    both = first.merge(second)
    assert both.reasons == {"empty reply": 2, "lost": 1, "stale reply": 1}
    assert "failures: 3 bad-reply, 1 lost (2 empty reply, 1 lost, 1 stale reply)" in str(both)
    same = Report(issued=1, failed=1, failures={"lost": 1}, reasons={"lost": 1})
    assert str(same).splitlines()[2] == "  trouble  failures: 1 lost"
