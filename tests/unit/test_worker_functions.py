# ruff: noqa: ARG001, ARG002, ARG005 - losses have the arguments of losses
"""A user's function on a worker: what is verified, what is loaded, what it sees."""

import functools
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from serverless_gc.errors import InputError
from serverless_gc.rounds.functions import builtin_loss, ship
from serverless_gc.wire import CsrBlock
from serverless_gc.worker import functions
from serverless_gc.worker.functions import FunctionError, FunctionRefused, SparsePart
from serverless_gc.worker.losses import Logistic, Loss


def block(shipment):
    return np.frombuffer(shipment.data, np.uint8)


def test_a_function_is_loaded_once_in_a_thread_and_never_shared_by_two():
    def counter():
        seen = []

        def loss(X, y, w):
            seen.append(len(X))
            return len(seen) * w

        return loss

    shipment = ship(counter())
    first = functions.load(block(shipment), shipment.stamp)
    assert functions.load(block(shipment), shipment.stamp) is first
    others = []
    thread = threading.Thread(target=lambda: others.append(functions.load(block(shipment), shipment.stamp)))
    thread.start()
    thread.join()
    assert others[0] is not first
    for _ in range(8):  # others push it out
        more = ship(functools.partial(np.add, _))
        functions.load(block(more), more.stamp)
    assert functions.load(block(shipment), shipment.stamp) is not first


def test_nothing_is_unpickled_that_is_not_what_was_sent():
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    shipment = ship(functools.partial(max, Trap()))
    with pytest.raises(FunctionRefused, match=r"was pickled by Python 2\.7"):
        functions.load(block(shipment), {**shipment.stamp, "python": "2.7"})
    damaged = block(shipment).copy()
    damaged[-1] ^= 1
    for wrong in (damaged, CsrBlock(np.ones(1), np.zeros(1, int), np.array([0, 1]), (1, 1))):
        with pytest.raises(FunctionRefused, match="not the one that was given as loss="):
            functions.load(wrong, shipment.stamp)


def test_what_cannot_be_loaded_says_why():
    class Picky:
        def __reduce__(self):
            return (int, ("no number",))

    shipment = ship(functools.partial(max, Picky()))
    with pytest.raises(FunctionRefused, match="cannot be loaded here: ValueError: invalid literal"):
        functions.load(block(shipment), shipment.stamp)


def test_a_module_missing_at_the_call_is_named():
    def loss(X, y, w):
        import no_such_module_anywhere

        return no_such_module_anywhere

    with pytest.raises(FunctionRefused, match="needs the module 'no_such_module_anywhere'"):
        functions.call(loss, [np.eye(2), np.ones(2)], np.ones(2), "here", value=False)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((np.nan, np.ones(2)), "value that holds NaN or Inf; on here"),
        (np.ones(2) * 1j, "dtype complex128"),
        (("much", np.ones(2)), "raised ValueError: could not convert"),
        ([[1, 2], [3]], "raised ValueError"),
        (None, "dtype object"),
    ],
)
def test_answers_that_are_no_gradients(answer, words):
    with pytest.raises(FunctionError, match=words):
        functions.call(lambda *_: answer, [np.eye(2), np.ones(2)], np.ones(2), "here", value=False)


@pytest.mark.parametrize("dtype", [float, complex])
def test_sparse_parts_multiply_as_scipy_does(dtype):
    rng = np.random.default_rng(1)
    M = np.where(rng.random((5, 3)) < 0.5, rng.standard_normal((5, 3)), 0).astype(dtype)
    M = M * (1 + 2j) if dtype is complex else M
    csr = sp.csr_array(M)
    X = SparsePart(CsrBlock(csr.data, csr.indices, csr.indptr, csr.shape))
    a, b = rng.standard_normal((3, 2)), rng.standard_normal(5)
    np.testing.assert_allclose(X @ a, M @ a, atol=1e-14)
    np.testing.assert_allclose(X.T @ b, M.T @ b, atol=1e-14)
    np.testing.assert_allclose(X.T.T @ a, M @ a, atol=1e-14)
    np.testing.assert_array_equal(X.toarray(), M)
    np.testing.assert_array_equal(X.T.toarray(), M.T)
    assert (X.shape, X.T.shape, len(X)) == ((5, 3), (3, 5), 5)
    with pytest.raises(TypeError):
        b @ X


def test_built_in_losses_go_by_name_and_all_others_by_value():
    class Mine(Logistic):
        pass

    assert builtin_loss(Logistic()) == ("logistic", {})
    assert builtin_loss(Mine()) is None
    shipment = ship(Mine())
    assert isinstance(functions.load(block(shipment), shipment.stamp), Loss)


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([{}]), np.ones(2, np.longdouble)], ids=str)
def test_arrays_that_mean_another_thing_elsewhere_are_refused(array):
    with pytest.raises(InputError, match=r"variable 'array'.*make it a list"):
        ship(lambda X, y, w: array[0])


def test_attributes_and_arguments_are_named():
    class Holder:
        def __init__(self):
            self.lock = threading.Lock()

        def loss(self, X, y, w):
            return self.lock and w

    with pytest.raises(InputError, match=r"attribute 'lock' \(a _thread.lock\) cannot be pickled"):
        ship(Holder().loss)
    with pytest.raises(InputError, match=r"argument 0 of the partial \(a _thread.lock\)"):
        ship(functools.partial(max, threading.Lock()))
    with pytest.raises(InputError, match=r"argument 'key' of the partial \(a _thread.lock\)"):
        ship(functools.partial(max, key=threading.Lock()))
