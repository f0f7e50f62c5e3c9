"""The check of whole numbers that all parameters go through."""

import numpy as np
import pytest

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_integers_of_any_kind_become_ints(value):
    assert check_whole("k", value, 3, most=3) == 3
    assert type(check_whole("k", value, 0)) is int


@pytest.mark.parametrize("value", [True, np.True_, 2.0, np.float64(2), "2", None, [2], np.array([2, 2]), np.array(2.0)])
def test_what_is_no_integer_is_refused(value):
    with pytest.raises(InputError, match="k must be an integer of at least 1, got "):
        check_whole("k", value, 1)


@pytest.mark.parametrize(
    ("value", "most", "rule"), [(0, None, "of at least 1"), (0, 4, r"in 1\.\.4"), (5, 4, r"in 1\.\.4")]
)
def test_both_ends_of_the_range_belong_to_it(value, most, rule):
    with pytest.raises(InputError, match=f"k must be an integer {rule}, got {value}"):
        check_whole("k", value, 1, most)
