"""A25: five answers that are no results, most with status 200: none is decoded, each is counted by its reason."""

import base64
import json

import numpy as np

import serverless_gc as sgc
from serverless_gc.testing.lambda_endpoint import Step
from serverless_gc.wire import Reply


def test_none_is_decoded_and_five_reasons_are_counted(problem, account):
    of_another_run = Reply("another-run", 1, "1-0", 0, 0, "ok", value=np.full(84, 1e9)).to_bytes()
    account.script(
        Step(action="reply", headers={"X-Amz-Function-Error": "Unhandled"}, body='{"errorType": "KeyError"}'),
        Step(action="reply", body="null"),
        Step(action="reply", body='{"statusCode": 200, "body": "hello"}'),
        Step(action="reply", body=json.dumps({"sgc": base64.b64encode(of_another_run).decode()})),
        Step(action="reply", status=202),
    )
    with sgc.Session("aws") as s:
        data = s.encode(problem.X, code="uncoded", n_workers=12)
        z, report = data.matvec(problem.w, with_report=True)
    assert abs(z - problem.X @ problem.w).max() < 1e-10
    assert report.balanced
    assert (report.issued, report.used, report.failed) == (17, 12, 5)
    assert report.failures == {"function": 1, "bad-reply": 4}
    assert report.reasons == dict.fromkeys(
        ("function raised", "empty reply", "no envelope", "stale reply", "unexpected status"), 1
    )
    assert report.stale == 1
    for reason in report.reasons:
        assert f"1 {reason}" in str(report)


def test_a_function_that_answers_like_that_for_good_is_named(problem, account):
    account.script(Step(action="reply", body="null", times=0))
    with sgc.Session("aws", max_attempts=2) as s:
        data = s.encode(problem.X, code="uncoded", n_workers=4)
        try:
            data.matvec(problem.w)
        except sgc.NotDecodableError as error:
            said = str(error)
    assert "bad-reply" in said
    assert "empty reply" in said
    assert "serverless-gc doctor" in said
    assert f"aws logs tail /aws/lambda/{account.function}" in said
