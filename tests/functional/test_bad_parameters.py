"""A parameter that a data code cannot have is named, with the rule, before anything is stored or invoked."""

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.codes import available, get
from serverless_gc.store import MemoryStore
from serverless_gc.store.wrappers import CountingStore

WHOLE = [
    ({"n_workers": 0}, "n_workers"),
    ({"n_workers": -3, "k": 1}, "n_workers"),
    ({"n_workers": 2.5}, "n_workers"),
    ({"n_workers": True, "k": 1}, "n_workers"),
    ({"n_workers": 4, "k": 0}, "k"),
    ({"n_workers": 4, "k": "two"}, "k"),
    ({"n_workers": 8, "k": 4, "colour": "red"}, "colour"),
]
"""Of every code: sizes that are no counts, and what it has never heard of."""

TOO_MANY = ({"n_workers": 4, "k": 5}, "k must")

OWN = {
    "ldpc": [
        ({"n_workers": 4, "k": 4}, "k must be less than n_workers"),
        ({"n_workers": 8, "k": 4, "column_weight": 0}, "column_weight"),
        ({"n_workers": 8, "k": 4, "column_weight": 5}, "column_weight"),
        ({"n_workers": 8, "k": 4, "ensemble": "none"}, "ensemble"),
        ({"n_workers": 8, "k": 4, "inactivation": -1}, "inactivation"),
        ({"n_workers": 8, "k": 4, "order": "depth-first"}, "order"),
        ({"n_workers": 6, "k": 3, "checks": [[0, 1]]}, "checks"),
    ],
    "local-parity": [
        ({"n_workers": 9, "k": 5, "tile": [2, 2]}, "k is 5"),
        ({"n_workers": 10, "k": 4, "tile": [2, 2]}, "n_workers must be a multiple"),
        ({"n_workers": 9, "k": 4, "tile": [0, 2]}, "tile"),
        ({"n_workers": 9, "k": 4, "parities": 3}, "parities must be 1 or 2"),
    ],
    "lt": [
        ({"n_workers": 4, "k": 8, "c": 0}, "c"),
        ({"n_workers": 4, "k": 8, "delta": 0}, "delta"),
        ({"n_workers": 4, "k": 8, "delta": 1}, "delta"),
        ({"n_workers": 4, "k": 8, "alpha": 0.5}, "alpha"),
        ({"n_workers": 4, "k": 8, "seed": -1}, "seed"),
        ({"n_workers": 1, "k": 3, "symbols": [[0], [1]]}, "symbols"),
        ({"n_workers": 1, "k": 2, "symbols": [[0], [2]]}, "symbols"),
    ],
    "mds": [
        TOO_MANY,
        ({"n_workers": 4, "k": 2, "parity": "vandermonde"}, "parity"),
        ({"n_workers": 4, "k": 2, "parity": [[1, 1]]}, "parity"),
        ({"n_workers": 4, "k": 2, "seed": -1}, "seed"),
    ],
    "mds-nonsystematic": [
        TOO_MANY,
        ({"n_workers": 12, "k": 9, "construction": "vandermonde"}, "allow_unstable"),
        ({"n_workers": 4, "k": 2, "construction": "none"}, "construction"),
        ({"n_workers": 4, "k": 2, "construction": [[1, 2]]}, "construction"),
    ],
    "polar": [
        ({"n_workers": 4, "k": 5}, "k must not exceed"),
        ({"n_workers": 8, "k": 4, "design": 0.0}, "design"),
        ({"n_workers": 8, "k": 4, "design": 1.0}, "design"),
        ({"n_workers": 8, "k": 4, "design": [0.1] * 7}, "design"),
        ({"n_workers": 8, "k": 4, "design": [0.1] * 7 + [1.5]}, "design"),
        ({"n_workers": 8, "k": 4, "kernel": "ternary"}, "kernel"),
        ({"n_workers": 8, "k": 4, "mode": "best"}, "mode"),
        ({"n_workers": 8, "k": 4, "shortening": "cut"}, "shortening"),
        ({"n_workers": 8, "k": 4, "information_set": [1, 2, 3]}, "information_set"),
        ({"n_workers": 8, "k": 4, "stages": 4}, "stages must"),
        ({"n_workers": 8, "k": 3, "stages": 2}, "k must be a multiple"),
    ],
    "product": [
        ({"n_workers": 9, "k": 5, "grid": [[3, 2], [3, 2]]}, "grid"),
        ({"n_workers": 8, "k": 4, "grid": [[3, 2], [3, 2]]}, "n_workers"),
        ({"n_workers": 9, "k": 4, "grid": [[3, 4], [3, 2]]}, "grid"),
        ({"n_workers": 9, "k": 4, "grid": [[3, 2], [3, 2]], "parities": [[[1, 1]], [[1]]]}, "parities"),
    ],
    "replication": [
        ({"n_workers": 5, "k": 2}, "n_workers"),
        ({"n_workers": 2, "k": 3, "allow_uneven": True}, "k"),
    ],
    "roots-of-unity": [TOO_MANY, ({"n_workers": 100, "k": 50}, "allow_unstable")],
    "rotation": [
        ({"n_workers": 4, "k": 3}, "k must be even"),
        ({"n_workers": 4, "k": 10}, "k must be even and at most"),
        ({"n_workers": 100, "k": 100}, "allow_unstable"),
    ],
    "short-dot": [
        TOO_MANY,
        ({"n_workers": 6, "k": 3, "threshold": 2}, "threshold"),
        ({"n_workers": 6, "k": 3, "threshold": 7}, "threshold"),
        ({"n_workers": 3, "k": 1, "threshold": 2, "matrix": [[1, 0]] * 3}, "matrix"),
        ({"n_workers": 3, "k": 1, "threshold": 2, "matrix": [[1, 1]]}, "matrix"),
    ],
    "uncoded": [({"n_workers": 4, "k": 3}, "k")],
}
TABLE = [
    pytest.param(info.name, params, words, id=f"{info.name}-{params}")
    for info in available()
    if info.name in OWN
    for params, words in WHOLE + OWN[info.name]
]


@pytest.fixture(scope="module")
def counted():
    store = CountingStore(MemoryStore())
    with sgc.Session("local", store=store) as session:
        yield session, store


@pytest.mark.parametrize(("name", "params", "words"), TABLE)
def test_named_before_anything_is_stored(counted, name, params, words):
    session, store = counted
    before = store.requests["put"]
    with pytest.raises(ValueError, match=words) as caught:
        session.encode(np.ones((6, 2)), np.ones(6), code=name, **params)
    assert isinstance(caught.value, sgc.InputError)
    assert store.requests["put"] == before


def test_what_is_written_is_counted(counted):
    session, store = counted
    before = store.requests["put"]
    session.encode(np.ones((6, 2)), code="mds", n_workers=4, k=3)
    assert store.requests["put"] > before


@pytest.mark.parametrize("name", sorted(OWN))
def test_sets_and_messages_that_are_none(name):
    """Too few results, results of other shapes, and results that no worker sends."""
    code = get(name)
    shape = (code.k, 2, code.n_workers) if code.needs_whole_rows else (code.k, 3)
    sent = code.encode(np.ones(shape))
    with pytest.raises(sgc.NotDecodableError):
        code.decode({0: sent[0]})
    with pytest.raises(ValueError, match="message id"):
        code.decode({**dict(enumerate(sent)), code.n_messages: sent[0]})
    with pytest.raises(ValueError, match="shape"):
        code.decode({**dict(enumerate(sent)), 0: sent[0][:1]})
    for bad in (-1, code.n_messages):
        with pytest.raises(ValueError, match="message id"):
            code.tracker().add(bad)
    for bad in (-1, code.n_workers):
        with pytest.raises(ValueError, match="worker"):
            code.placement(bad)
