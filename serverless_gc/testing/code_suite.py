"""What every code must do. A test class for a code inherits `CodeSuite` and gives a small instance of it.

::

    class TestMyCode(CodeSuite):
        def make_code(self):
            return MyCode(n_workers=8, k=4)

Call ``pytest.register_assert_rewrite("serverless_gc.testing.code_suite")`` in ``conftest.py`` for readable failures.
The suite tries sets of messages by the hundred: an instance of at most ten messages is tried completely.
"""

# ruff: noqa: D102 - the names of the tests are sentences

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from serverless_gc.codes.base import Certificate, Code, Tracker
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.registry import from_manifest
from serverless_gc.errors import InputError, NotDecodableError
from serverless_gc.types import Array

__all__ = ["CodeSuite"]

_TRIED = 400
"""Sets of messages tried where all would be too many."""


class CodeSuite:
    """Laws of `Code`.

    Attributes
    ----------
    accuracy
        Largest relative error of an answer from double precision messages.
    dtypes
        In what blocks are tried.
    rank_exact
        Whether the tracker finds every set from which the answer follows by linear algebra; a peeling tracker does not.
    """

    accuracy: float = 1e-9
    dtypes: Sequence[Any] = (np.float64, np.float32, np.complex128, np.int32, bool)
    rank_exact: bool = True

    @abstractmethod
    def make_code(self) -> Code:
        """Return a small instance."""

    # -- what codes of other shapes replace ----------------------------------------------------------

    def blocks(self, code: Code, seed: int = 0, shape: tuple[int, ...] = (3, 4)) -> Array:
        """Return source blocks."""
        return np.random.default_rng(seed).normal(size=(code.k, *shape))

    def sent(self, code: Code, blocks: Array) -> Array:
        """Return what the workers send, one message a row."""
        return code.encode(blocks)

    def wanted(self, code: Code, blocks: Array) -> Array:
        """Return what a decode should give."""
        return blocks if code.target == "blocks" else blocks.sum(axis=0)

    def follows(self, code: Code, messages: Sequence[int]) -> bool:
        """Say by dense linear algebra whether these messages determine the answer."""
        rows = code.generator[list(messages)]
        wanted = np.eye(code.k) if code.target == "blocks" else np.ones((1, code.k))
        if not len(messages):
            return False
        solution = np.linalg.lstsq(rows.T, wanted.T, rcond=1e-11)[0]
        return bool(np.abs(rows.T @ solution - wanted.T).max() < 1e-7)

    # -- laws ----------------------------------------------------------------------------------------

    def test_everything_that_arrives_decodes_to_what_was_encoded(self) -> None:
        code = self.make_code()
        for shape in ((3, 4), (1, 1), (2, 5)):
            blocks = self.blocks(code, shape=shape)
            sent = self.sent(code, blocks)
            answer, certificate = code.decode(dict(enumerate(sent)))
            self._right(answer, code, blocks, certificate)
            assert set(certificate.used) <= set(range(code.n_messages))

    def test_tracker_and_decoder_agree_on_every_set(self) -> None:
        code = self.make_code()
        blocks = self.blocks(code)
        sent = self.sent(code, blocks)
        seen = {True: 0, False: 0}
        for messages in self._sets(code):
            tracker = _filled(code, messages)
            seen[tracker.decodable] += 1
            values = {i: sent[i] for i in messages}
            if tracker.decodable:
                assert tracker.missing() == ()
            elif not self.rank_exact and self.follows(code, messages):
                continue  # the decoder may know more than a tracker that is only sufficient
            else:
                assert tracker.missing()
            if code.exact and not tracker.decodable:
                with pytest.raises(NotDecodableError):
                    code.decode(values)
            elif messages:
                answer, certificate = code.decode(values)
                self._right(answer, code, blocks, certificate)
                assert (certificate.error < 1e-9) == tracker.decodable or code.target == "blocks"
        assert seen[False], "every set of messages was decodable, even the empty one"
        assert seen[True] or not code.exact

    def test_the_tracker_is_right_by_linear_algebra(self) -> None:
        code = self.make_code()
        for messages in self._sets(code):
            decodable = _filled(code, messages).decodable
            follows = self.follows(code, messages)
            assert follows or not decodable, f"{messages} are called decodable, but do not determine the answer"
            if self.rank_exact:
                assert decodable or not follows, f"{messages} determine the answer, but are not called decodable"

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
            assert _filled(code, order[:cut]).decodable == _filled(code, sorted(order[:cut])).decodable

    def test_the_answer_does_not_depend_on_the_order_of_arrival(self) -> None:
        code = self.make_code()
        sent = self.sent(code, self.blocks(code))
        ids = list(range(code.n_messages))
        first, _ = code.decode({i: sent[i] for i in ids})
        again, _ = code.decode({i: sent[i] for i in reversed(ids)})
        assert np.array_equal(first, again)

    def test_the_guaranteed_threshold_holds(self) -> None:
        code = self.make_code()
        threshold = getattr(code, "guaranteed_threshold", None)
        if threshold is None:
            pytest.skip("the code states no guaranteed threshold")
        rng = np.random.default_rng(6)
        n = code.n_workers
        every = math.comb(n, threshold) <= _TRIED
        sets: Iterable[Any] = (
            itertools.combinations(range(n), threshold)
            if every
            else (rng.permutation(n)[:threshold] for _ in range(_TRIED))
        )
        for workers in sets:
            messages = [message for worker in workers for message in code.placement(int(worker))]
            assert _filled(code, messages).decodable, f"workers {tuple(workers)} are enough, but do not decode"

    def test_numeric_dtypes_are_accepted_and_promoted(self) -> None:
        code = self.make_code()
        for dtype in self.dtypes:
            blocks = (self.blocks(code) * 4).astype(dtype)
            answer, certificate = code.decode(dict(enumerate(self.sent(code, blocks))))
            accuracy = 1e-3 if np.dtype(dtype) == np.float32 else self.accuracy
            wide = blocks.astype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64)
            self._right(answer, code, wide, certificate, accuracy)

    def test_zero_blocks_stay_zero(self) -> None:
        code = self.make_code()
        blocks = np.zeros_like(self.blocks(code))
        answer, _ = code.decode(dict(enumerate(self.sent(code, blocks))))
        assert not np.any(answer)

    def test_memory_given_is_used_and_messages_stay_as_they_are(self) -> None:
        code = self.make_code()
        blocks = self.blocks(code)
        sent = self.sent(code, blocks)
        before = sent.copy()
        expected, _ = code.decode(dict(enumerate(sent)))
        out = np.full_like(expected, np.nan)
        answer, _ = code.decode(dict(enumerate(sent)), out=out)
        assert answer is out
        assert np.array_equal(out, expected)
        assert np.array_equal(sent, before)

    def test_a_code_is_rebuilt_from_its_stored_manifest_alone(self) -> None:
        code = self.make_code()
        again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
        blocks = self.blocks(code)
        sent = self.sent(code, blocks)
        assert np.array_equal(self.sent(again, blocks), sent)
        assert (again.n_workers, again.k, again.n_messages) == (code.n_workers, code.k, code.n_messages)
        assert [again.placement(j) for j in range(again.n_workers)] == [
            code.placement(j) for j in range(code.n_workers)
        ]
        values = {i: sent[i] for i in range(code.n_messages)}
        assert np.array_equal(again.decode(values)[0], code.decode(values)[0])

    def test_every_message_has_a_worker(self) -> None:
        code = self.make_code()
        placed = {message for worker in range(code.n_workers) for message in code.placement(worker)}
        assert placed == set(range(code.n_messages))

    def test_blocks_are_zero_in_columns_that_are_not_stored(self) -> None:
        code = self.make_code()
        for n_cols in (1, 4, 4 * code.n_workers + 1):
            assert code.width(n_cols) <= n_cols
            if code.support is None:
                continue
            assert code.needs_whole_rows, "messages that leave columns out depend on the column"
            sent = code.encode(self.blocks(code, shape=(3, n_cols)))
            widths = []
            for message in range(code.n_messages):
                kept = code.support.columns(message, n_cols)
                widths.append(len(kept))
                assert len(set(kept.tolist())) == len(kept)
                assert not np.delete(sent[message], kept, axis=-1).any(), f"message {message} loses entries"
                assert code.source_of(message) is None, "blocks that are carried unchanged are stored whole"
            assert code.width(n_cols) == max(widths)
            for worker in range(code.n_workers):
                needs = {code.support.classes[message] for message in code.placement(worker)}
                assert len(needs) == 1, f"the messages of worker {worker} need different entries of one operand"

    def test_bad_messages_are_refused(self) -> None:
        code = self.make_code()
        sent = self.sent(code, self.blocks(code))
        for bad in (-1, code.n_messages):
            with pytest.raises(InputError, match="message id"):
                code.tracker().add(bad)
            with pytest.raises(InputError, match="message id"):
                code.decode({**dict(enumerate(sent)), bad: sent[0]})
        with pytest.raises(InputError, match="shape"):
            code.decode({**dict(enumerate(sent)), 0: sent[0][..., :1]})
        with pytest.raises(NotDecodableError):
            code.decode({})
        for worker in (-1, code.n_workers):
            with pytest.raises(InputError, match="worker must be"):
                code.placement(worker)

    # -- helpers -------------------------------------------------------------------------------------

    def _right(
        self, answer: Array, code: Code, blocks: Array, certificate: Certificate, accuracy: float | None = None
    ) -> None:
        """Check an answer; an approximate one is as near as the error of its weights promises."""
        wanted = self.wanted(code, blocks)
        assert answer.shape == wanted.shape
        promised = math.sqrt(certificate.error) * float(np.linalg.norm(blocks.reshape(len(blocks), -1), 2))
        rounding = (self.accuracy if accuracy is None else accuracy) * (float(np.linalg.norm(wanted)) or 1.0)
        miss = float(np.linalg.norm(answer - wanted))
        assert miss <= promised + rounding, f"off by {miss:.1e}, promised {promised:.1e} and rounding {rounding:.1e}"

    def _sets(self, code: Code) -> Iterator[tuple[int, ...]]:
        n = code.n_messages
        if n <= 10:
            for size in range(n + 1):
                yield from itertools.combinations(range(n), size)
            return
        rng = np.random.default_rng(7)
        yield ()
        yield tuple(range(n))
        for _ in range(_TRIED):
            size = int(rng.integers(1, n + 1))
            yield tuple(sorted(rng.permutation(n)[:size].tolist()))


def _filled(code: Code, messages: Iterable[int]) -> Tracker:
    tracker = code.tracker()
    for message in messages:
        tracker.add(int(message))
    return tracker
