"""A parameter that a code cannot have is named, with the rule, before anything is stored or invoked."""

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
GRADIENT = {
    "bgc": [({"n_workers": 10, "load": 11}, "load must be in 1..10")],
    "bibd": [
        ({"n_workers": 8}, "no block design is known with points=8 .nearest sizes: 4, 7, 9"),
        ({"design": [[1, 1, 0], [1, 0, 0], [0, 1, 1]]}, "must be balanced.*take 'soft-bibd'"),
    ],
    "clustered": [
        ({"n_workers": 20, "clusters": 3}, "clusters must divide n_workers=20"),
        ({"n_workers": 20, "clusters": 5, "stragglers": 4}, "clusters of 4 workers"),
        ({"n_workers": 20, "clusters": 5, "flexibility": 6}, "flexibility must be at most clusters=5"),
    ],
    "coded-reduce": [
        ({"n_workers": 13, "depth": 2}, r"n \+ n\*\*2 for a tree of depth 2, got 13: use 12 or 20"),
        ({"n_workers": 13, "depth": 3}, r"n \+ n\*\*2 \+ ... \+ n\*\*3 for a tree of depth 3, got 13: use 3 or 14"),
        ({"n_workers": 12, "stragglers": 3}, "stragglers must be less than the branching=3"),
    ],
    "cyclic": [
        ({"n_workers": 6, "stragglers": 6}, "stragglers must be less than n_workers=6"),
        ({"n_workers": 6, "k": 5}, "k must equal n_workers=6"),
    ],
    "cyclic-mds": [
        ({"n_workers": 6, "stragglers": 2, "variant": "real"}, "odd.*use stragglers=3 or variant='complex'")
    ],
    "erasurehead": [({"n_workers": 10, "load": 3}, "load must divide n_workers=10, got 3: take one of 1, 2, 5, 10")],
    "expander": [
        ({"n_workers": 7, "load": 3}, "3-regular graph on 7 vertices does not exist.*change one of them by 1"),
        ({"n_workers": 10, "graph": "margulis"}, "take one of 9, 16, 25, 36, or graph='random'"),
    ],
    "frc": [
        ({"n_workers": 12, "stragglers": 4}, r"stragglers \+ 1 must divide n_workers=12.*use 3 or 5.*code 'cyclic'"),
        ({"n_workers": 12, "k": 8, "stragglers": 1}, "k must be a multiple of the 6 classes"),
    ],
    "graph": [({"graph": "petersen", "n_workers": 14}, "n_workers must be the number of edges.*take one of 15")],
    "heterogeneous": [
        ({"n_workers": 3, "p": [0.1, 0.2, 1.0]}, "that of worker 2 is 1.0"),
        ({"n_workers": 3, "p": [0.1, 0.2]}, "one number or one for each of 3 workers"),
    ],
    "ignore-stragglers": [({"n_workers": 4, "wait": 5}, "wait must be")],
    "nested": [({"n_workers": 6, "stragglers": 6}, "stragglers must be less than n_workers=6")],
    "product-gradient": [
        ({"n_workers": 50}, "take one of 44, 49, 52, 63"),
        ({"outer": "frc"}, "outer and inner must be given both"),
    ],
    "rbgc": [({"n_workers": 10, "load": 2.5}, "whole number for 'rbgc'.*take 'bgc'")],
    "sbc": [
        ({"n_workers": 10, "load": 3}, "load must divide k=10, got 3"),
        ({"n_workers": 10, "block": 5, "within": 0.2, "across": 0.5}, "across must be at most within=0.2.*take 'bgc'"),
    ],
    "soft-bibd": [({"n_workers": 8, "load": 9}, "load must be an integer in 1..8")],
    "ye-abbe": [
        ({"n_workers": 6, "stragglers": 5, "fold": 2}, r"stragglers \+ fold = 5 \+ 2 must not exceed n_workers=6")
    ],
}
"""Of gradient codes: the condition that does not hold, and what would."""

TABLE = [
    pytest.param(info.name, params, words, id=f"{info.name}-{params}")
    for info in available()
    if info.name in OWN or info.name in GRADIENT
    for params, words in WHOLE + (OWN | GRADIENT)[info.name]
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
