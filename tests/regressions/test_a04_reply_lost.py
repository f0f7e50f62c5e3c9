"""A4: the function finished, the reply was lost: the stored result is found by its key, not computed again."""

import serverless_gc as sgc


def test_lost_replies_are_recovered_from_the_store(problem):
    with sgc.Session(inject=sgc.inject.Faults(lose_reply=[1, 5, 6, 11])) as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=16)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.recovered == 2 * 4  # four in each of the two rounds
    assert report.issued == 2 * 16  # none was executed again
    assert report.failed == 0
    assert "8 lost replies, their results recovered" in str(report)
