"""Checks of parameters that every floor needs."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from serverless_gc.errors import InputError

__all__ = ["check_whole"]


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return a whole number as an int.

    Parameters
    ----------
    name
        What the message calls it.
    value
        An integer of Python or NumPy; True and 2.0 are none.
    least, most
        Its range, both ends included; without ``most`` it has no upper end.

    Raises
    ------
    InputError
        If it is no integer or outside the range.

    Examples
    --------
    >>> check_whole("k", 3, 1)
    3
    >>> check_whole("k", 9, 1, most=8)
    Traceback (most recent call last):
    serverless_gc.errors.InputError: k must be an integer in 1..8, got 9
    """
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        rule = f"of at least {least}" if most is None else f"in {least}..{most}"
        raise InputError(f"{name} must be an integer {rule}, got {value!r}")
    return number
