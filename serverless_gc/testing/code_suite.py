"""What every code must do. A test class for a code inherits `CodeSuite` and gives a small instance of it.

::

    class TestMyCode(CodeSuite):
        def make_code(self):
            return MyCode(n_workers=8, k=4)

The suite tries sets of messages by the hundred: an instance of at most ten messages is tried completely.
"""

from __future__ import annotations

import sys

import pytest

# pytest shows the values in a failure only of modules that it was told of before they were imported.
_LAWS = (f"{__package__}.code_{part}" for part in ("hooks", "rounds", "structure", "values"))
pytest.register_assert_rewrite(*(name for name in _LAWS if name not in sys.modules))

from serverless_gc.testing.code_rounds import TARGET, RoundLaws  # noqa: E402
from serverless_gc.testing.code_structure import StructureLaws  # noqa: E402
from serverless_gc.testing.code_values import ValueLaws  # noqa: E402

__all__ = ["TARGET", "CodeSuite"]


class CodeSuite(StructureLaws, ValueLaws, RoundLaws):
    """Laws of `Code`.

    A test class has to give `make_code`. It may say more, or replace what differs for a code of another shape:

    - `blocks`, `sent`, `wanted`: source blocks, what workers make of them, and the answer;
    - `follows`: whether messages determine the answer; `enough`: whether they do by the code's own rule;
    - `threshold`: how many workers always suffice; `promise`: how far off an approximate answer may be;
    - `edges`, `too_far`: instances at the bounds of the parameters, and what lies one step beyond them;
    - `ask`, `operands`, `parts`: one round of a session.

    Attributes
    ----------
    accuracy
        Largest relative error of an answer from double precision messages.
    dtypes
        In what blocks are tried.
    rank_exact
        Whether the tracker finds every set from which the answer follows by linear algebra; a peeling tracker does not.
        Give its rule as `enough` then, or the suite only checks that the tracker promises no more than there is.
    tight
        Whether some set of one worker fewer than the guaranteed threshold does not decode.
    whole_numbers
        Whether answers from whole numbers are exact, because the code adds and subtracts only.
    sparse
        Whether sessions encode sparse matrices by this code; others refuse them.
    """
