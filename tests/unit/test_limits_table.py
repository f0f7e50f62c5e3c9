"""Every quota stands in one table, with where it is documented."""

import dataclasses
import re
from pathlib import Path

import pytest

from serverless_gc import limits
from serverless_gc.errors import InputError
from serverless_gc.limits import AS_OF, SOURCES, Limits

CONSTANTS = [name for name in limits.__all__ if isinstance(getattr(limits, name), int)]
FIELDS = [field.name for field in dataclasses.fields(Limits)]


def test_every_quota_has_a_source_and_the_table_a_date():
    assert SOURCES.keys() == {*FIELDS, *CONSTANTS}
    assert all(source.startswith("https://docs.aws.amazon.com/") for source in SOURCES.values())
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", AS_OF)


@pytest.mark.parametrize("name", FIELDS)
def test_a_quota_of_nothing_is_refused(name):
    with pytest.raises(InputError, match=name):
        Limits(**{name: 0})


def test_the_worker_reckons_processors_as_the_table_does():
    """The handler is deployed alone and cannot read the table."""
    handler = (Path(__file__).parents[2] / "lambda" / "handler.py").read_text()
    assert re.search(rf"^MB_PER_VCPU = {limits.MB_PER_VCPU}$", handler, re.MULTILINE)
