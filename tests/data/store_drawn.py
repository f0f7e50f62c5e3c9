"""Writes ``drawn.json``: codes with random or irrational coefficients as the package made them, numbers in binary.

Run ``python tests/data/store_drawn.py`` with the package at hand when a code is added, then ``make_drawn_vectors.py``.
Streams of random numbers differ between versions of NumPy: what was drawn is stored, as a manifest does.
"""

import json
import re
from pathlib import Path

import numpy as np

from serverless_gc.codes import get
from serverless_gc.codes.manifests import manifest_to_bytes

CODES = [
    ("mds", {"n_workers": 7, "k": 4}),
    ("mds", {"n_workers": 8, "k": 5, "parity": "gaussian", "seed": 3}),
    ("mds", {"n_workers": 8, "k": 4, "seed": 11}),
    ("mds-nonsystematic", {"n_workers": 7, "k": 4, "construction": "gaussian", "seed": 1}),
    ("mds-nonsystematic", {"n_workers": 8, "k": 5, "construction": "chebyshev"}),
    ("roots-of-unity", {"n_workers": 6, "k": 4}),
    ("roots-of-unity", {"n_workers": 7, "k": 4}),
    ("rotation", {"n_workers": 4, "k": 4}),
    ("rotation", {"n_workers": 4, "k": 6}),
    ("lagrange", {"n_workers": 7, "k": 4}),
    ("lagrange", {"n_workers": 7, "k": 5}),
    ("pcr", {"n_workers": 7, "k": 3}),
    ("berrut", {"n_workers": 8, "k": 3}),
    ("berrut", {"n_workers": 9, "k": 2}),
    ("short-dot", {"n_workers": 6, "k": 2, "threshold": 4}),
    ("lwpd", {"n_workers": 6, "k": 4}),
    ("lt", {"n_workers": 3, "k": 5, "alpha": 2.0, "seed": 2}),
    ("lt", {"n_workers": 2, "k": 4, "alpha": 2.0, "seed": 1, "inactivation": 0}),
    ("ldpc", {"n_workers": 10, "k": 7}),
    ("ldpc", {"n_workers": 10, "k": 5, "ensemble": "regular", "column_weight": 3, "seed": 1}),
    ("khatri-rao", {"n_workers": 7, "p": 2, "q": 2}),
    ("polynomial", {"n_workers": 6, "p": 2, "q": 2}),
    ("polynomial-complex", {"n_workers": 7, "p": 2, "q": 2}),
    ("product-matmul", {"p": 2, "q": 2, "n_left": 3, "n_right": 3}),
    ("product-matmul", {"p": 2, "q": 1, "n_left": 4, "n_right": 2, "seed": 1}),
    ("polar-matmul", {"p": 2, "q": 2, "n_left": 3, "n_right": 4}),
    ("matdot", {"n_workers": 5, "k": 2}),
    ("matdot", {"n_workers": 8, "k": 3}),
    ("ortho-matdot", {"n_workers": 5, "k": 2}),
    ("ortho-matdot", {"n_workers": 8, "k": 3}),
    ("entangled", {"n_workers": 8, "p": 2, "q": 1, "inner": 2}),
    ("lcc-mmc", {"n_workers": 4, "k": 3, "r": 2}),
    ("cyclic", {"n_workers": 6, "k": 6, "stragglers": 2, "seed": 1}),
    ("cyclic", {"n_workers": 7, "k": 7, "stragglers": 3}),
    ("cyclic-mds", {"n_workers": 7, "k": 7, "stragglers": 2}),
    ("cyclic-mds", {"n_workers": 6, "k": 6, "stragglers": 1}),
    ("cyclic-mds", {"n_workers": 6, "k": 6, "stragglers": 2, "variant": "complex"}),
    ("cyclic-mds", {"n_workers": 5, "k": 5, "stragglers": 2, "variant": "complex", "first_exponent": 1}),
    ("ye-abbe", {"n_workers": 5, "k": 5, "stragglers": 1, "fold": 2}),
    ("ye-abbe", {"n_workers": 6, "k": 6, "stragglers": 2, "fold": 1}),
    ("nested", {"n_workers": 5, "k": 5, "stragglers": 2}),
    ("clustered", {"n_workers": 6, "k": 6, "clusters": 2, "stragglers": 1}),
    ("gc-mmc", {"n_workers": 6, "k": 6, "clusters": 2, "r": 2}),
    ("bgc", {"n_workers": 8, "k": 8, "load": 2.5, "seed": 4}),
    ("rbgc", {"n_workers": 8, "k": 8, "load": 2.0, "seed": 2}),
    ("sbc", {"n_workers": 8, "k": 8, "load": 2, "within": 0.7, "seed": 3}),
    ("soft-bibd", {"n_workers": 8, "k": 8, "load": 3, "proposals": 200}),
    ("heterogeneous", {"n_workers": 5, "k": 6, "p": [0.1, 0.4, 0.2, 0.05, 0.3]}),
    ("expander", {"n_workers": 8, "k": 8, "seed": 1}),
    ("graph", {"n_workers": 9, "k": 6, "seed": 2}),
    ("encoded", {"n_workers": 6, "k": 6}),
]


def in_binary(x):
    """Write a number as hexadecimal floats: two of them if it is complex."""
    if isinstance(x, np.ndarray):
        return [in_binary(y) for y in x]
    parts = [x.real, x.imag] if np.iscomplexobj(x) else [x]
    return " ".join(re.sub(r"\.?0*p", "p", float(part).hex()) for part in parts)


def stored(name, arguments):
    """Return what the script that makes the vectors may know of a code, and a test rebuilds it from."""
    code = get(name, **arguments)
    made = {"code": name, "arguments": arguments, "target": code.target}
    if hasattr(code, "operands"):
        pairs = [code.operands(worker) for worker in range(code.n_workers)]
        made["left"] = in_binary(code.left.generator[[i for i, _ in pairs]])
        made["right"] = in_binary(code.right.generator[[j for _, j in pairs]])
    else:
        made["rows"] = in_binary(code.generator)
    if name == "short-dot":
        made["matrix"] = in_binary(code.matrix)
    return {**made, "manifest": json.loads(manifest_to_bytes(code.manifest()))}


if __name__ == "__main__":
    lines = [json.dumps(stored(*code), separators=(",", ":")) for code in CODES]
    Path(__file__).with_name("drawn.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
