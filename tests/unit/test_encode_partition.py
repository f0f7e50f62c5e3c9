import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serverless_gc.encode import Partition
from serverless_gc.errors import InputError


def test_worked_example_of_an_all_padding_block():
    part = Partition(10, 6)
    assert (part.b, part.n_padding, part.n_filled) == (2, 2, 5)
    assert [part.range(j) for j in range(6)] == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 10)]


def test_fewer_rows_than_blocks():
    part = Partition(3, 5)
    assert (part.b, part.n_padding, part.n_filled) == (1, 2, 3)
    assert part.range(4) == (3, 3)


@given(st.integers(1, 60), st.integers(1, 20), st.sampled_from([(), (1,), (2, 3)]))
def test_ranges_tile_the_rows_and_join_inverts_split(m, k, tail):
    part = Partition(m, k)
    covered = [i for j in range(k) for i in range(*part.range(j))]
    assert covered == list(range(m))
    values = np.arange(m * int(np.prod(tail)), dtype=float).reshape(m, *tail)
    blocks = part.split(values)
    assert blocks.shape == (k, part.b, *tail)
    assert not blocks.reshape(k * part.b, -1)[m:].any()
    assert np.array_equal(part.join(blocks), values)
    assert np.array_equal(part.join(list(blocks)), values)
    assert (part.n_filled == 1) == (m <= part.b)


def test_join_and_split_are_views_when_they_can_be():
    part = Partition(12, 4)
    blocks = np.zeros((4, 3, 2))
    joined = part.join(blocks)
    joined[5] = 7
    assert blocks[1, 2, 0] == 7
    values = np.zeros((12, 2))
    assert np.shares_memory(part.split(values), values)


@pytest.mark.parametrize(
    ("m", "k", "word"), [(0, 1, "m must"), (1, 0, "k must"), (True, 1, "m must"), (2, 1.5, "k must")]
)
def test_bad_sizes_are_named(m, k, word):
    with pytest.raises(InputError, match=word):
        Partition(m, k)


def test_wrong_shapes_are_refused():
    part = Partition(10, 4)
    with pytest.raises(InputError, match=r"\(4, 3, \.\.\.\)"):
        part.join(np.zeros((4, 2)))
    with pytest.raises(InputError, match="10 rows"):
        part.split(np.zeros(9))
    with pytest.raises(InputError, match=r"0\.\.3"):
        part.range(4)
