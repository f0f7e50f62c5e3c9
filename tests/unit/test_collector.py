"""Values wait where the decoder wants them, and it still sees every one as it came."""

from collections import Counter

import numpy as np
import pytest

from serverless_gc.codes import ReplicationCode, get
from serverless_gc.errors import WrongResult
from serverless_gc.rounds.collect import Collector


def in_order(code, sent, order):
    collector = Collector(code, sent[0].shape, sent.dtype)
    for message in order:
        collector.file(message, sent[message])
    return collector


@pytest.mark.parametrize("name", ["replication", "lt"])
@pytest.mark.parametrize("step", [1, -1])
def test_copies_of_a_block_that_differ_are_noticed_whichever_landed_first(name, step):
    code = get(name, n_workers=16, k=8)
    copies = Counter(code.source_of(message) for message in range(16))
    plain = [i for i in range(16) if code.source_of(i) is not None and copies[code.source_of(i)] > 1]
    assert plain
    for wrong in plain:
        sent = code.encode(np.random.default_rng(3).normal(size=(8, 5)))
        sent[wrong, 0] += 1.0
        collector = in_order(code, sent, range(16)[::step])
        with pytest.raises(WrongResult):
            collector.decode(range(16), None, 0.0)
        for message in range(16):  # who was wrong is asked of the values afterwards
            np.testing.assert_array_equal(collector.values[message], sent[message])


@pytest.mark.parametrize("step", [1, -1])
def test_copies_that_agree_give_the_blocks(step):
    code = get("replication", n_workers=12, k=4)
    blocks = np.random.default_rng(3).normal(size=(4, 5))
    answer, certificate = in_order(code, code.encode(blocks), range(12)[::step]).decode(range(12), None, 0.0)
    np.testing.assert_array_equal(answer, blocks)
    assert (certificate.residual, certificate.surplus_checked) == (0.0, 8)


def test_a_single_copy_is_not_copied_again():
    code = get("replication", n_workers=8, k=4)
    sent = code.encode(np.ones((4, 3)))
    collector = in_order(code, sent, [0, 5, 2, 7])
    assert all(np.may_share_memory(value, collector.answer) for value in collector.values.values())


@pytest.mark.parametrize("placed", [0, 3])
def test_replication_compares_before_it_writes(placed):
    code = ReplicationCode(6, 3)
    sent = code.encode(np.ones((3, 2)))
    sent[0, 0] += 1.0
    out = np.empty((3, 2))
    out[0] = sent[placed]
    with pytest.raises(WrongResult):
        code.decode(dict(enumerate(sent)) | {placed: out[0]}, out=out)
