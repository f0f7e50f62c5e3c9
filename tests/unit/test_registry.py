"""Codes by name."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import serverless_gc.codes
from serverless_gc.codes import MDSCode, available, from_manifest, get, registry
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import InputError


def test_listing_imports_numpy_only():
    script = (
        "import sys, numpy; before = set(sys.modules); from serverless_gc.codes import available; available(); "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "print(sorted(new & {'scipy', 'numba', 'threadpoolctl', 'boto3'}), "
        "'serverless_gc.codes.mds.code' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[0] == "[] False"


def test_records():
    records = {r.name: r for r in available()}
    assert list(records) == sorted(records)
    assert {"mds", "polar", "replication", "uncoded"} <= set(records)
    assert not {"linear", "linear-gradient"} & set(records), "they need a matrix: what is listed works with defaults"
    for name in records:
        assert get(name).name == name
    assert (records["mds"].kind, records["mds"].exact) == ("data", True)
    assert all(r.summary.endswith(".") for r in records.values())
    with pytest.raises(dataclasses.FrozenInstanceError):
        records["mds"].name = "x"


@pytest.mark.parametrize(
    ("name", "given", "sizes"),
    [
        ("mds", {}, (16, 12)),
        ("mds", {"n_workers": 8}, (8, 6)),
        ("mds", {"n_workers": 1}, (1, 1)),
        ("mds", {"k": 10}, (14, 10)),
        ("mds", {"n_workers": 8, "k": 3}, (8, 3)),
        ("uncoded", {}, (16, 16)),
        ("uncoded", {"k": 5}, (5, 5)),
        ("uncoded", {"n_workers": 5}, (5, 5)),
        ("replication", {}, (16, 8)),
        ("replication", {"k": 5}, (10, 5)),
        ("replication", {"n_workers": 6}, (6, 3)),
        ("linear", {"generator": [[1.0], [2.0]]}, (2, 1)),
        ("linear", {"generator": [[1.0], [2.0]], "n_workers": 1, "k": 1}, (1, 1)),
    ],
)
def test_sizes(name, given, sizes):
    code = get(name, **given)
    assert (code.n_workers, code.k) == sizes
    assert code.name == name


def test_parameters_reach_the_code():
    assert np.array_equal(get("mds", n_workers=6, k=4, seed=7).generator, MDSCode(6, 4, seed=7).generator)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("mdss", {}, ["'mdss'", "did you mean 'mds'?"]),
        ("xyzzy", {}, ["'xyzzy'", "mds", "uncoded"]),
        ("mds", {"epsilon": 1}, ["'epsilon'", "parity", "seed"]),
        ("uncoded", {"seed": 1}, ["'seed'", "none"]),
        ("uncoded", {"n_workers": 4, "k": 3}, ["n_workers", "k=3"]),
        ("replication", {"n_workers": 5}, ["n_workers", "multiple"]),
        ("mds", {"n_workers": 2.5}, ["n_workers", "2.5"]),
        ("mds", {"k": 0}, ["k must", "0"]),
        ("linear", {}, ["linear", "generator"]),
        ("linear", {"generator": [[1.0]], "k": 2}, ["k follows", "2"]),
    ],
)
def test_refusals(name, given, words):
    with pytest.raises(InputError) as caught:
        get(name, **given)
    for word in words:
        assert word in str(caught.value)


def test_manifests():
    code = get("mds", n_workers=6)
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert np.array_equal(again.generator, code.generator)
    with pytest.raises(InputError, match="'code'"):
        from_manifest({"k": 3})
    with pytest.raises(InputError, match="no code is called"):
        from_manifest({**code.manifest(), "code": "other"})


def test_a_new_code_is_twenty_lines(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))

    class SingleParity(LinearCode):
        """All blocks and their sum."""

        name = "single-parity"

        def __init__(self, n_workers, k):
            super().__init__(np.vstack([np.eye(k), np.ones((n_workers - k, k))]), n_workers=n_workers)

        @classmethod
        def from_manifest(cls, manifest):
            return cls(manifest["n_workers"], manifest["k"])

    registry.register("single-parity", SingleParity, summary="The sum of all.", sizes=registry.rate(3, 4))
    code = get("single-parity", n_workers=4, k=3)
    coded = code.encode(np.eye(3))
    decoded, _ = code.decode({i: coded[i] for i in (0, 2, 3)})
    np.testing.assert_allclose(decoded, np.eye(3), atol=1e-14)
    assert isinstance(from_manifest(code.manifest()), SingleParity)
    assert "single-parity" in [r.name for r in available()]
    with pytest.raises(InputError, match="registered already"):
        registry.register("mds", SingleParity, summary="Again.")


def test_public_face():
    public = serverless_gc.codes.__all__
    assert public == sorted(public)
    for name in public:
        assert getattr(serverless_gc.codes, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = serverless_gc.codes.nothing
