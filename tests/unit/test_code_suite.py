"""The shipped suite finds what is wrong with a code, and says it in words."""

import numpy as np
import pytest

from serverless_gc.codes import registry
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.mds.code import MDSCode
from serverless_gc.codes.registry import register
from serverless_gc.errors import InputError
from serverless_gc.testing.code_suite import CodeSuite

MATRIX = np.array([[1.0, 0], [0, 1], [1, 1], [1, -1]])


def suite(made):
    class Suite(CodeSuite):
        def make_code(self):
            return made()

    return Suite()


class Hasty(LinearCode):
    """Content with any message."""

    def tracker(self):
        return MDSCode(4, 1).tracker()


class Patient(LinearCode):
    """Wants one message more than it needs."""

    def tracker(self):
        return MDSCode(4, 3).tracker()


class Ordered(LinearCode):
    """Trusts whoever came first a little more."""

    def decode(self, values, **options):
        answer, certificate = super().decode(values, **options)
        return answer * (1 + 1e-12 * next(iter(values))), certificate


class Generous(LinearCode):
    guaranteed_threshold = 1


class Stingy(LinearCode):
    guaranteed_threshold = 3


class Drawn(LinearCode):
    """Draws its matrix again instead of storing it."""

    name = "drawn"

    def __init__(self, n_workers, k):
        super().__init__(np.random.default_rng(0).normal(size=(n_workers, k)))

    def manifest(self):
        return {"code": self.name, "n_workers": self.n_workers, "k": self.k}

    @classmethod
    def from_manifest(cls, manifest):
        return cls(manifest["n_workers"], manifest["k"])


class Wordless(LinearCode):
    """Refuses too many blocks, and does not say what is wrong."""

    def __init__(self, n_workers, k):
        if not 1 <= k < n_workers:
            raise InputError("no")
        super().__init__(np.random.default_rng(0).normal(size=(n_workers, k)))


class Careless(LinearCode):
    """Takes any sizes."""

    def __init__(self, n_workers, k):  # noqa: ARG002 - that is what is wrong
        super().__init__(MATRIX)


class Partial(LinearCode):
    """Gives what it has."""

    def decode(self, values, **options):
        if 0 < len(values) < 2:
            return np.zeros((2, *next(iter(values.values())).shape)), super().decode(dict.fromkeys(range(4), 0.0))[1]
        return super().decode(values, **options)


@pytest.mark.parametrize(
    ("code", "law", "said"),
    [
        (Hasty, "the_tracker_is_right_by_an_independent_rule", r"\(0,\) are called decodable, but do not determine"),
        (Patient, "the_tracker_is_right_by_an_independent_rule", r"\(0, 1\) are enough by the code's rule, but"),
        (Ordered, "the_answer_does_not_depend_on_the_order_of_arrival", "depends on their order"),
        (Generous, "as_many_workers_as_guaranteed_always_suffice", r"workers \(0,\) are as many as guaranteed"),
        (
            Stingy,
            "one_worker_fewer_than_guaranteed_may_not_suffice",
            "of 2 workers decodes: 3 are more",
        ),
        (Partial, "tracker_and_decoder_agree_on_every_set", "DID NOT RAISE"),
    ],
)
def test_a_wrong_code_is_found(code, law, said):
    tests = suite(lambda: code(MATRIX))
    with pytest.raises((AssertionError, pytest.fail.Exception), match=said):
        getattr(tests, f"test_{law}")()


def test_sizes_that_are_refused_without_a_name_are_found():
    with pytest.raises(pytest.fail.Exception, match=r"\(1, 1\) workers and blocks are refused without naming"):
        suite(lambda: Wordless(4, 2)).test_codes_at_the_bounds_of_their_parameters_work()
    with pytest.raises(pytest.fail.Exception, match="the refusal does not name n_workers: no"):
        suite(lambda: Wordless(4, 2)).test_one_step_beyond_a_bound_is_refused_by_name()
    with pytest.raises(pytest.fail.Exception, match="n_workers is out of its bounds, but this was made: "):
        suite(lambda: Careless(4, 2)).test_one_step_beyond_a_bound_is_refused_by_name()


def test_a_code_that_is_drawn_again_is_found(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    register("drawn", Drawn, summary="Not stored.")
    with pytest.raises(AssertionError, match="a stored code was drawn again"):
        suite(lambda: Drawn(4, 2)).test_a_code_is_rebuilt_from_its_stored_manifest_alone(monkeypatch)
