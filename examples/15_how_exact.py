"""How far an answer can be trusted: certificates, tolerances, warnings, wrong results."""

import numpy as np

import serverless_gc as sgc
from serverless_gc.codes import get
from serverless_gc.codes.threshold import predicted_errors

rng = np.random.default_rng(0)
A, x = rng.standard_normal((1280, 20)), rng.standard_normal(20)
exact = A @ x

# Every answer comes with a prediction of its error, made from which results arrived, not from what they say.
z, report = sgc.coded_matvec(A, x, code="mds", n_workers=40, k=32, with_report=True)
error = np.linalg.norm(z - exact) / np.linalg.norm(exact)
print(f"mds: predicted {report.certificate.predicted_error:.0e}, found {error:.0e}")
assert error <= 10 * report.certificate.predicted_error <= 1e-9

# How much a code amplifies rounding depends on the code, its size and who answers. Ask before you use it.
for name in ("mds", "mds-nonsystematic", "lagrange"):
    predicted = predicted_errors(get(name, n_workers=64, k=8), trials=20)
    print(f"{name:<18} at worst {predicted.max():.0e} in 20 random orders of arrival")

# A tolerance makes a round wait for more results while it is exceeded, and an error if it still is.
with sgc.Session("simulated", tolerance=1e-30, inject=sgc.inject.Faults(drop=[0, 1])) as s:
    data = s.encode(A, code="mds", n_workers=40, k=32)
    try:
        data.matvec(x)
    except sgc.DecodeError as refused:
        print(refused)

# Without one there is a warning above 1e-6, and no answer above 1e-3: interpolation from neighbours loses all digits.
with sgc.Session("simulated", inject=sgc.inject.Faults(drop=range(15, 60))) as s:
    data = s.encode(A, code="lagrange", n_workers=60, k=10)
    try:
        data.matvec(x)
    except sgc.DecodeError as refused:
        print(refused)

# Results beyond the threshold check the others: a wrong one is named and left out.
with sgc.Session(inject=sgc.inject.Faults(wrong=[3]), policy=lambda code: sgc.UntilDecodable(code, margin=2)) as s:
    data = s.encode(A, code="mds", n_workers=40, k=32)
    z, report = data.matvec(x, with_report=True)
    print(report.notes)
    assert np.allclose(z, exact)
