"""Codes by workers and load, or the nearest size."""

import pytest

from serverless_gc.codes import available
from serverless_gc.errors import InputError
from serverless_gc.plan import shares, sized


@pytest.mark.parametrize("name", [info.name for info in available() if info.kind in {"data", "gradient"}])
def test_every_code_has_a_size_near_thirty_workers(name):
    found = sized(name, 30, 3)
    assert 20 <= found.code.n_workers <= 40
    assert (found.code.n_workers == 30) or found.note


@pytest.mark.parametrize("name", ["erasurehead", "bgc", "graph", "expander", "mds", "replication", "polar"])
def test_a_size_that_exists_is_taken(name):
    found = sized(name, 30, 3)
    assert found.note == ""
    assert found.code.n_workers == 30
    assert shares(found.code).mean() * 30 == pytest.approx(3, abs=0.5)


def test_codes_without_redundancy_have_none():
    for name in ("uncoded", "ignore-stragglers"):
        found = sized(name, 30, 3)
        assert (found.code.k, found.note) == (30, "")


def test_the_nearest_size_is_named():
    assert sized("bibd", 30).note == "bibd: no code of 30 workers; the nearest has 31 workers"
    divided = sized("erasurehead", 31, 3)
    assert divided.code.n_workers in {30, 32, 33}
    assert f"the nearest has {divided.code.n_workers} workers and load {divided.code.load}" in divided.note


def test_a_load_that_follows_from_the_size_is_named():
    found = sized("product-gradient", 28, 3)
    assert found.note == "product-gradient: no code of 28 workers and load 3; the nearest has 28 workers and load 6"


@pytest.mark.parametrize(("n", "load", "missing", "held"), [(12, 4, 1, "3.2"), (12, 6, 2, ""), (30, 3, 1, "3.43")])
def test_trees_come_nearest_to_a_load(n, load, missing, held):
    found = sized("coded-reduce", n, load)
    assert (found.code.n_workers, found.code.tolerated) == (n, missing)
    tail = f"no code of {n} workers and load {load}; the nearest has {n} workers and load {held}"
    assert found.note == (f"coded-reduce: {tail}" if held else "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("poler", 30, 3), "did you mean 'polar'"),
        (("mds", 0), "workers must be an integer of at least 1"),
        (("mds", 30, 0), "load must be an integer of at least 1"),
        (("mds", 30, 31), "load must be at most the number of workers, 30, got 31"),
    ],
)
def test_wrong_words_and_numbers(arguments, says):
    with pytest.raises(InputError, match=says):
        sized(*arguments)
