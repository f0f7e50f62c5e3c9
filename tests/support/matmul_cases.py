"""Matrix-matrix codes: blocks of both operands, what workers send, and the answer by plain NumPy."""

import numpy as np

MATMUL = {
    "entangled": {"n_workers": 12, "p": 2, "q": 2, "inner": 2},
    "khatri-rao": {"n_workers": 9, "p": 2, "q": 3},
    "matdot": {"n_workers": 8, "k": 3},
    "ortho-matdot": {"n_workers": 8, "k": 3},
    "polar-matmul": {"n_workers": 8, "p": 3, "q": 1, "n_right": 2},
    "polynomial": {"n_workers": 9, "p": 2, "q": 3},
    "polynomial-complex": {"n_workers": 9, "p": 2, "q": 3},
    "product-matmul": {"n_workers": 9, "p": 2, "q": 2},
}
"""Small instances, by name."""


def operands(code, seed=0, shape=(4, 3, 2), dtype=float):
    """Blocks of both operands: left ones (inner, rows), right ones (inner, columns)."""
    rng = np.random.default_rng(seed)
    inner, rows, columns = shape
    split = code.split
    A = rng.normal(size=(split.inner * split.p, inner, rows))
    B = rng.normal(size=(split.inner * split.q, inner, columns))
    if np.dtype(dtype).kind == "c":
        A, B = A + 1j * rng.normal(size=A.shape), B - 1j * rng.normal(size=B.shape)
    return (A * 4).astype(dtype), (B * 4).astype(dtype)


def multiplied(code, A, B):
    """What every worker returns."""
    At, Bt = code.encode_left(A), code.encode_right(B)
    pairs = [code.operands(worker) for worker in range(code.n_workers)]
    return np.array([At[i].T @ Bt[j] for i, j in pairs])


def wanted(code, A, B):
    """What a decode should give."""
    p, q, inner = code.split.p, code.split.q, code.split.inner
    wide = np.result_type(A, B, float)
    A, B = (x.astype(wide).reshape(inner, -1, *x.shape[1:]) for x in (A, B))
    blocks = np.array([sum(A[s, a].T @ B[s, b] for s in range(inner)) for a in range(p) for b in range(q)])
    return blocks[0] if code.target == "sum" else blocks


def relative_error(answer, exact):
    return float(np.linalg.norm(answer - exact) / np.linalg.norm(exact))
