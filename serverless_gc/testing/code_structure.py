"""Laws of what a code decides without values: trackers, thresholds, placements, and the bounds of its parameters."""

# ruff: noqa: D102 - the names of the tests are sentences

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from serverless_gc.codes.base import Code
from serverless_gc.errors import InputError, NotDecodableError
from serverless_gc.testing.code_hooks import TRIED, CodeHooks, filled, first_messages, messages_of, refused

__all__ = ["StructureLaws"]


class StructureLaws(CodeHooks):
    """Laws that look at messages arriving, and at no value but where the bounds of the parameters are tried."""

    def test_the_tracker_is_right_by_an_independent_rule(self) -> None:
        code = self.make_code()
        for messages in self._sets(code):
            decodable = filled(code, messages).decodable
            if decodable:
                assert self.follows(code, messages), f"{messages} are called decodable, but do not determine the answer"
            enough = self.enough(code, messages)
            assert enough is None or decodable == enough, (
                f"{messages} are {'' if enough else 'not '}enough by the code's rule, but the tracker says otherwise"
            )

    def test_the_tracker_is_idempotent_monotone_and_blind_to_order(self) -> None:
        code = self.make_code()
        rng = np.random.default_rng(5)
        for _ in range(20):
            order = rng.permutation(code.n_messages)
            tracker = code.tracker()
            verdicts = []
            for message in order:
                verdict = bool(tracker.add(int(message)))
                assert bool(tracker.add(int(message))) == verdict == tracker.decodable
                verdicts.append(verdict)
            assert verdicts == sorted(verdicts), "a decodable set became undecodable by one more message"
            cut = int(rng.integers(0, code.n_messages + 1))
            assert filled(code, order[:cut]).decodable == filled(code, sorted(order[:cut])).decodable

    def test_a_tracker_says_what_is_missing_until_it_is_content(self) -> None:
        code = self.make_code()
        tracker, arrived = code.tracker(), list[int]()
        for message in np.random.default_rng(8).permutation(code.n_messages).tolist():
            verdict = tracker.add(message)
            arrived.append(message)
            assert verdict.missing == tracker.missing()
            assert set(tracker.missing()) <= set(range(code.k))
            if self.rank_exact or tracker.decodable or not self.follows(code, arrived):
                assert bool(tracker.missing()) != tracker.decodable, f"after {arrived}"

    # -- thresholds ----------------------------------------------------------------------------------

    def test_as_many_workers_as_guaranteed_always_suffice(self) -> None:
        code = self.make_code()
        for workers in _some_sets(code, self._promised(code)):
            assert filled(code, messages_of(code, workers)).decodable, (
                f"workers {tuple(workers)} are as many as guaranteed, but do not decode"
            )

    def test_one_worker_fewer_than_guaranteed_may_not_suffice(self) -> None:
        code = self.make_code()
        threshold = self._promised(code)
        if not self.tight:
            pytest.skip("the guaranteed threshold is not tight")
        stuck = any(not filled(code, messages_of(code, workers)).decodable for workers in _scant(code, threshold - 1))
        assert stuck, f"every set tried of {threshold - 1} workers decodes: {threshold} are more than are needed"

    def _promised(self, code: Code) -> int:
        threshold = self.threshold(code)
        if threshold is None:
            pytest.skip("the code guarantees no threshold")
        assert 1 <= threshold <= code.n_workers, f"{threshold} of {code.n_workers} workers are said to suffice"
        return threshold

    # -- placement -----------------------------------------------------------------------------------

    def test_every_message_has_a_worker(self) -> None:
        code = self.make_code()
        placed = {message for worker in range(code.n_workers) for message in code.placement(worker)}
        assert placed == set(range(code.n_messages))

    def test_workers_and_messages_that_there_are_not_are_refused(self) -> None:
        code = self.make_code()
        for worker in (-1, code.n_workers):
            with pytest.raises(InputError, match="worker must be"):
                code.placement(worker)
        for message in (-1, code.n_messages):
            with pytest.raises(InputError, match="message id"):
                code.tracker().add(message)

    # -- bounds of the parameters --------------------------------------------------------------------

    def test_codes_at_the_bounds_of_their_parameters_work(self) -> None:
        tried = 0
        for code in self.edges():
            tried += 1
            blocks = self.blocks(code)
            sent = self.sent(code, blocks)
            order = np.random.default_rng(10).permutation(code.n_messages)
            assert {m for worker in range(code.n_workers) for m in code.placement(worker)} == set(order.tolist())
            for messages in (order.tolist(), first_messages(code, order)):
                answer, certificate = code.decode({i: sent[i] for i in messages})
                self._right(answer, code, blocks, certificate)
            with pytest.raises(NotDecodableError):
                code.decode({})
        if not tried:
            pytest.skip("the code has no sizes of its own: give edges()")

    def test_one_step_beyond_a_bound_is_refused_by_name(self) -> None:
        beyond = list(self.too_far())
        for name, make in beyond:
            refused(name, make)
        if not beyond:
            pytest.skip("the code has no sizes of its own: give too_far()")


def _some_sets(code: Code, size: int) -> Iterator[Iterable[int]]:
    """Yield sets of so many workers: all, or where those are too many runs of neighbours and some at random."""
    n = code.n_workers
    if math.comb(n, size) <= TRIED:
        yield from itertools.combinations(range(n), size)
        return
    rng = np.random.default_rng(6)
    for first in range(n):
        yield [(first + i) % n for i in range(size)]
    for _ in range(TRIED):
        yield rng.permutation(n)[:size].tolist()


def _scant(code: Code, size: int) -> Iterator[Iterable[int]]:
    """Yield sets of so many workers, and what an adversary leaves over who silences all holders of one block."""
    yield from _some_sets(code, size)
    n = code.n_workers
    for block in range(code.k):
        holders = [w for w in range(n) if any(code.generator[m, block] for m in code.placement(w))]
        if len(holders) <= n - size:
            yield (holders + [w for w in range(n) if w not in holders])[n - size :]
