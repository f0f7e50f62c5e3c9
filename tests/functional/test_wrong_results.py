"""A worker that answers wrong numbers: noticed by surplus results, named where the code can tell, never used."""

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.codes import get
from serverless_gc.codes.suspects import locate


def everything(margin):
    return lambda code: sgc.UntilDecodable(code, margin=margin)


@pytest.mark.parametrize("code", ["mds", "polar"])
@pytest.mark.parametrize("backend", ["local", "simulated"])
def test_the_wrong_worker_is_named_and_left_out(code, backend):
    rng = np.random.default_rng(0)
    A, x = rng.normal(size=(60, 7)), rng.normal(size=7)
    with sgc.Session(backend, policy=everything(99), inject=sgc.inject.Faults(wrong=[5])) as s:
        z, report = s.encode(A, code=code, n_workers=16, k=8).matvec(x, with_report=True)
    np.testing.assert_allclose(z, A @ x, rtol=1e-9)
    assert any("the result of worker 5 contradicts all others" in note for note in report.notes)
    assert report.balanced


def test_two_wrong_workers_are_an_error_not_an_answer():
    A, x = np.random.default_rng(1).normal(size=(60, 7)), np.ones(7)
    with sgc.Session(policy=everything(99), inject=sgc.inject.Faults(wrong=[2, 9])) as s:
        data = s.encode(A, code="mds", n_workers=16, k=8)
        with pytest.raises(sgc.WrongResult, match="contradict"):
            data.matvec(x)


def test_one_surplus_result_notices_but_cannot_name():
    A, x = np.random.default_rng(1).normal(size=(60, 7)), np.ones(7)
    with sgc.Session(policy=everything(99), inject=sgc.inject.Faults(wrong=[2])) as s:
        with pytest.raises(sgc.WrongResult, match="contradict"):
            s.encode(A, code="mds", n_workers=9, k=8).matvec(x)
        with pytest.raises(sgc.WrongResult, match="contradict"):
            s.encode(A, code="replication", n_workers=16, k=8).matvec(x)


@pytest.mark.parametrize("name", ["mds", "polar", "replication"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_single_wrong_message_is_located(name, dtype):
    code = get(name, n_workers=12, k=4)
    blocks = np.random.default_rng(2).normal(size=(4, 5)).astype(dtype)
    sent = code.encode(blocks)
    for wrong in range(12):
        values = dict(enumerate(sent.copy()))
        assert locate(code.generator, values) == ()
        values[wrong][2] += 0.1
        located = locate(code.generator, values)
        # In the polar code some message may be alone in checking another: then either could be wrong.
        assert located in {(wrong,), ()} if name == "polar" else located == (wrong,)
