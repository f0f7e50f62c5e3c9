"""Wrong arguments are refused in words, with what was meant, before anything is stored or invoked."""

import copy
import pickle

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.store import MemoryStore
from serverless_gc.types import Timing, Wait

X = np.arange(24.0).reshape(12, 2)
Y = np.ones(12)
W = np.zeros(2)


@pytest.fixture
def session():
    with sgc.Session("simulated") as s:
        yield s


@pytest.fixture(params=["mds", "frc", "lcc-mmc"])
def data(request, session):
    return session.encode(X, Y, code=request.param, n_workers=6)


def invocations(session):
    return sgc.background.run(session.resources()).invoker.stats.invocations


@pytest.mark.parametrize(
    ("word", "meant"),
    [("learning_rate", "lr"), ("step", "lr"), ("steps", "max_rounds"), ("tolerence", "tolerance"), ("los", "loss")],
)
def test_minimize_says_what_was_meant_before_any_round(session, data, word, meant):
    before = invocations(session)
    with pytest.raises(sgc.InputError, match=f"minimize has no argument '{word}'; did you mean '{meant}'"):
        sgc.minimize(data, W, **{word: 0.1})
    assert invocations(session) == before


@pytest.mark.parametrize("method", ["gradient", "value_and_gradient"])
@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"policy": sgc.WaitAll()}, r"give it to Session\(policy=...\) or minimize"),
        ({"los": "squared"}, "did you mean 'loss'"),
        ({"xyz": 1}, "it takes w, loss, l2, reduction"),
    ],
)
def test_a_gradient_refuses_what_it_does_not_take(data, method, options, hint):
    with pytest.raises(sgc.InputError, match=rf"gradient has no argument '{next(iter(options))}'; {hint}"):
        getattr(data, method)(W, **options)


def test_options_of_another_kind_of_code_are_told_where_they_go(session):
    data = session.encode(X, Y, code="mds", n_workers=6)
    with pytest.raises(sgc.InputError, match=r"CodedData.gradient has no argument 'wait'; it goes with a gradient"):
        data.gradient(W, wait=3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_worker": 4}, "no argument 'n_worker'; did you mean 'n_workers'"),
        ({"redution": "mean"}, "no argument 'redution'; did you mean 'reduction'"),
        ({"sead": 1}, "no argument 'sead'; did you mean 'seed'"),
        ({"loss": "logistc"}, "no loss is called 'logistc'; did you mean 'logistic'\\?$"),
        ({"backend": "lcal"}, "no backend is called 'lcal'; did you mean 'local'\\?$"),
    ],
)
def test_a_typo_is_not_blamed_on_the_code(options, said):
    with pytest.raises(sgc.InputError, match=said):
        sgc.coded_gradient(X, Y, W, **{"code": "mds", **options})


def test_close_names_are_told_without_all_the_others():
    with pytest.raises(sgc.InputError, match=r"no code is called 'pollar'; did you mean 'polar'\?$"):
        sgc.coded_gradient(X, Y, W, code="pollar")
    with pytest.raises(sgc.InputError, match=r"no code is called 'zzz'; there are .*polar"):
        sgc.coded_gradient(X, Y, W, code="zzz")


def test_a_method_is_suggested(data):
    with pytest.raises(sgc.InputError, match=r"no method is called 'lbgfs'; did you mean 'lbfgs'\?$"):
        sgc.minimize(data, W, method="lbgfs")


def test_parameters_of_a_matmul_code_pass():
    product = sgc.coded_matmul(X.T, X, code="ortho-matdot", n_workers=6, k=2, backend="simulated")
    np.testing.assert_allclose(product, X.T @ X)


# -- policies -------------------------------------------------------------------------------------------


class Lacking:
    leftover = "cancel"

    def open(self, view):  # noqa: ARG002 - the protocol's
        return ()

    def on_arrival(self, view, arrival):  # noqa: ARG002 - as above
        return Wait()


@pytest.mark.parametrize("policy", [sgc.WaitAll(), sgc.FirstK(5), lambda code: sgc.FirstK(code.n_workers)])
def test_a_session_takes_a_policy_or_a_function(policy):
    with sgc.Session("simulated", policy=policy) as s:
        g, report = s.encode(X, Y, code="mds", n_workers=6, k=4).gradient(W, with_report=True)
    assert report.awaited == 2 * (5 if isinstance(policy, sgc.FirstK) and not isinstance(policy, sgc.WaitAll) else 6)
    np.testing.assert_allclose(g, X.T @ (X @ W - Y))


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            sgc.WaitAll,
            r"is the class WaitAll, which makes no policy of a code; write policy=FirstK\(3\), or policy=lam",
        ),
        (3, r"got 3; write policy=FirstK\(3\)"),
        (lambda: None, "cannot be called with one argument, the code"),
        (Lacking(), "a Lacking is no waiting policy: it lacks on_failure, timer, on_timer"),
    ],
)
def test_other_policies_are_refused_with_an_example(data, policy, said):
    with pytest.raises(sgc.InputError, match=said):
        sgc.Session("simulated", policy=policy)
    with pytest.raises(sgc.InputError, match=said):
        sgc.minimize(data, W, policy=policy)


def test_what_a_function_returns_is_checked_when_it_is_called():
    with sgc.Session("simulated", policy=lambda _: Lacking()) as s:
        data = s.encode(X, Y, code="mds", n_workers=6)
        with pytest.raises(sgc.InputError, match="a Lacking is no waiting policy"):
            data.gradient(W)
        assert invocations(s) == 0


@pytest.mark.parametrize("policy", [sgc.policies.UntilError, sgc.policies.UntilDecodable])
def test_policies_of_a_code_say_so(policy):
    with pytest.raises(sgc.InputError, match=rf"{policy.__name__} is made from a code first, got 0.1; write"):
        policy(0.1)


# -- laws, copies ---------------------------------------------------------------------------------------


class OwnLaw:
    def sample(self, rng):
        return Timing(compute=rng.exponential())


def test_a_law_of_ones_own_with_another_signature_is_named():
    with pytest.raises(sgc.InputError, match=r"the law OwnLaw has sample\(rng\), .* sample\(slot, k, work, rng\)"):
        sgc.Session("simulated", delay=OwnLaw())


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_sessions_and_data_are_not_copied(data, copied):
    for what in (data.owner, data):
        with pytest.raises(sgc.InputError, match=f"a {type(what).__name__} can be neither pickled nor copied"):
            copied(what)


def test_a_refused_call_stores_nothing():
    store = MemoryStore()
    with sgc.Session("simulated", store=store) as s:
        with pytest.raises(sgc.InputError, match="encode with code='mds' has no argument 'n_worker'"):
            s.encode(X, Y, code="mds", n_worker=4)
        assert sgc.background.run(_keys(store)) == []


async def _keys(store):
    return [info.key async for info in store.list()]


def test_a_column_of_targets_is_told_to_be_flattened(session):
    for code in ("mds", "frc"):
        data = session.encode(X, Y[:, None], code=code, n_workers=6)
        with pytest.raises(sgc.InputError, match=r"got \(12, 1\); use y.ravel\(\)"):
            data.gradient(W)
