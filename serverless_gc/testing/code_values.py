"""Laws of what a code computes: answers, their dtypes and their order of arrival, bad messages, the stored manifest."""

# ruff: noqa: D102 - the names of the tests are sentences

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest

from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.registry import from_manifest
from serverless_gc.errors import InputError, InvokeError, NotDecodableError
from serverless_gc.rounds.collect import Collector
from serverless_gc.testing.code_hooks import CodeHooks, filled, first_messages

__all__ = ["ValueLaws"]


class ValueLaws(CodeHooks):
    """Laws that compare answers with what was encoded."""

    def test_everything_that_arrives_decodes_to_what_was_encoded(self) -> None:
        code = self.make_code()
        for shape in ((3, 4), (1, 1), (2, 5), (1, 6)):
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
            tracker = filled(code, messages)
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

    def test_the_answer_does_not_depend_on_the_order_of_arrival(self) -> None:
        code = self.make_code()
        sent = self.sent(code, self.blocks(code))
        rng = np.random.default_rng(11)
        for _ in range(10):
            ids = first_messages(code, rng.permutation(code.n_messages))
            answers = [
                code.decode({i: sent[i] for i in order})[0]
                for order in (ids, ids[::-1], sorted(ids), rng.permuted(ids))
            ]
            for answer in answers[1:]:
                assert np.array_equal(answer, answers[0]), f"the answer from {ids} depends on their order"

    # -- dtypes and entries --------------------------------------------------------------------------

    def test_numeric_dtypes_are_accepted_and_promoted(self) -> None:
        code = self.make_code()
        for dtype in self.dtypes:
            blocks = (self.blocks(code) * 4).astype(dtype)
            answer, certificate = code.decode(dict(enumerate(self.sent(code, blocks))))
            accuracy = 1e-3 if np.dtype(dtype) == np.float32 else self.accuracy
            wide = blocks.astype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64)
            self._right(answer, code, wide, certificate, accuracy)

    def test_whole_numbers_stay_whole(self) -> None:
        code = self.make_code()
        if not self.whole_numbers:
            pytest.skip("the code does not compute with whole numbers only")
        blocks = (self.blocks(code) * 2**30).astype(np.int64)
        sent = self.sent(code, blocks)
        rng = np.random.default_rng(13)
        for _ in range(10):
            ids = first_messages(code, rng.permutation(code.n_messages))
            answer, _ = code.decode({i: sent[i] for i in ids})
            assert np.array_equal(answer, self.wanted(code, blocks)), f"the answer from {ids} was rounded"

    def test_zero_blocks_stay_zero(self) -> None:
        code = self.make_code()
        blocks = np.zeros_like(self.blocks(code))
        answer, _ = code.decode(dict(enumerate(self.sent(code, blocks))))
        assert not np.any(answer)

    def test_single_blocks_may_be_zero(self) -> None:
        code = self.make_code()
        rng = np.random.default_rng(14)
        for kept in (0, -1):
            blocks = np.zeros_like(self.blocks(code))
            blocks[kept] = self.blocks(code)[kept]
            sent = self.sent(code, blocks)
            answer, certificate = code.decode({i: sent[i] for i in first_messages(code, rng.permutation(len(sent)))})
            self._right(answer, code, blocks, certificate)

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

    # -- bad messages --------------------------------------------------------------------------------

    def test_bad_messages_are_refused(self) -> None:
        code = self.make_code()
        sent = self.sent(code, self.blocks(code))
        for bad in (-1, code.n_messages):
            with pytest.raises(InputError, match="message id"):
                code.decode({**dict(enumerate(sent)), bad: sent[0]})
        with pytest.raises(InputError, match="shape"):
            code.decode({**dict(enumerate(sent)), 0: sent[0][..., :1]})
        with pytest.raises(NotDecodableError):
            code.decode({})

    def test_results_that_are_not_finite_count_as_not_arrived(self) -> None:
        code = self.make_code()
        blocks = self.blocks(code)
        sent = self.sent(code, blocks)
        for spoilt, value in ((0, np.nan), (code.n_messages - 1, np.inf)):
            collector = Collector(code, sent.shape[1:], sent.dtype)
            for message in range(code.n_messages):
                if message != spoilt:
                    collector.file(message, sent[message])
            bad = sent[spoilt].copy()
            bad[..., -1] = value
            with pytest.raises(InvokeError, match="NaN or Inf"):
                collector.file(spoilt, bad)
            assert spoilt not in collector.values
            others = sorted(collector.values)
            if code.exact and not filled(code, others).decodable:
                with pytest.raises(NotDecodableError):
                    collector.decode(others, None, 0.0)
            elif others:
                answer, certificate = collector.decode(others, None, 0.0)
                self._right(answer, code, blocks, certificate)

    def test_a_second_result_of_a_worker_changes_nothing(self) -> None:
        code = self.make_code()
        blocks = self.blocks(code)
        sent = self.sent(code, blocks)
        collector = Collector(code, sent.shape[1:], sent.dtype)
        for message in range(code.n_messages):
            collector.file(message, sent[message])
            collector.file(message, sent[message] + 1)
        answer, certificate = collector.decode(range(code.n_messages), None, 0.0)
        self._right(answer, code, blocks, certificate)

    # -- the manifest --------------------------------------------------------------------------------

    def test_a_code_is_rebuilt_from_its_stored_manifest_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        code = self.make_code()
        stored = manifest_to_bytes(code.manifest())
        with monkeypatch.context() as patch:
            patch.setattr(np.random, "default_rng", _drawn_again)
            again = from_manifest(manifest_from_bytes(stored))
            generator = again.generator
        assert np.array_equal(generator, code.generator)
        blocks = self.blocks(code)
        sent = self.sent(code, blocks)
        assert np.array_equal(self.sent(again, blocks), sent)
        assert (again.n_workers, again.k, again.n_messages) == (code.n_workers, code.k, code.n_messages)
        assert [again.placement(j) for j in range(again.n_workers)] == [
            code.placement(j) for j in range(code.n_workers)
        ]
        rng = np.random.default_rng(15)
        for _ in range(3):
            ids = first_messages(code, rng.permutation(code.n_messages))
            assert filled(again, ids).decodable == filled(code, ids).decodable
            values = {i: sent[i] for i in ids}
            assert np.array_equal(again.decode(values)[0], code.decode(values)[0])
        assert manifest_to_bytes(again.manifest()) == stored


def _drawn_again(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a stored code was drawn again: streams of random numbers differ between versions of NumPy")
