"""A PyTorch module trained through gradient codes has the weights of the uncoded run, to rounding.

Its parameters are one flat vector; a worker has autograd find their gradient on its rows. The plain run is
PyTorch's own, on all rows at once.
"""

import numpy as np
import pytest

import serverless_gc as sgc

torch = pytest.importorskip("torch", reason="needs torch, which is not installed: pip install torch")

STEPS, RATE = 12, 0.5
CODES = {
    "frc": {"n_workers": 6, "stragglers": 1},
    "cyclic": {"n_workers": 6, "stragglers": 2},
    "coded-reduce": {"n_workers": 6, "stragglers": 1},
}


def network():
    """Two layers, nine units, float64."""
    layers = torch.nn.Linear(3, 9), torch.nn.Tanh(), torch.nn.Linear(9, 1), torch.nn.Flatten(0)
    return torch.nn.Sequential(*layers).double()


def cross_entropy(X, y, w):
    """Return the summed loss of a part of the rows, and its gradient by the flat parameters."""
    torch.set_num_threads(1)  # a worker has about one core
    model = network()
    shapes = {name: p.shape for name, p in model.named_parameters()}
    parts = torch.tensor(w).split([shape.numel() for shape in shapes.values()])
    held = {n: part.view(shape) for (n, shape), part in zip(shapes.items(), parts, strict=True)}

    def loss(parameters):
        z = torch.func.functional_call(model, parameters, (torch.tensor(X),))
        return torch.nn.functional.binary_cross_entropy_with_logits(z, torch.tensor(y), reduction="sum")

    slopes, value = torch.func.grad_and_value(loss)(held)
    return value.item(), torch.cat([slopes[name].reshape(-1) for name in shapes]).numpy()


@pytest.fixture(scope="module")
def problem():
    """Rows, labels and the parameters to start from."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 3))
    y = (np.abs(X).sum(axis=1) > 2.2).astype(float)
    torch.manual_seed(0)
    return X, y, torch.nn.utils.parameters_to_vector(network().parameters()).detach().numpy()


@pytest.fixture(scope="module")
def plain(problem):
    """Train a module as PyTorch does, without anything of ours; return its flat parameters."""
    X, y, start = problem
    model = network()
    torch.nn.utils.vector_to_parameters(torch.tensor(start), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(torch.tensor(X)), torch.tensor(y)).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


@pytest.mark.parametrize(("backend", "code"), [*(("local", code) for code in CODES), ("processes", "frc")])
def test_weights_of_the_uncoded_run(backend, code, problem, plain):
    """Worker 0 never answers and others are slow now and then."""
    X, y, start = problem
    lost = sgc.inject.Faults(fail=[0], fail_times=9)
    slow = sgc.inject.Stragglers(fraction=0.2, slowdown=5, base=0.002, seed=1)
    with sgc.Session(backend, inject=[lost, slow], max_attempts=1) as s:
        data = s.encode(X, y, code=code, **CODES[code])
        value, gradient, report = data.value_and_gradient(start, loss=cross_entropy, with_report=True)
        fit = sgc.minimize(
            data, start, loss=cross_entropy, reduction="mean", method="gradient-descent", lr=RATE, max_rounds=STEPS
        )
        once = sgc.coded_gradient(X, y, start, code=code, loss=cross_entropy, session=s, **CODES[code])
    expected = cross_entropy(X, y, start)
    assert report.error <= 1e-12 * data.code.k
    assert 0 not in {span.slot for span in report.spans if span.fate == "used"}
    assert value == pytest.approx(expected[0], rel=1e-12)
    for found in (gradient, once):
        np.testing.assert_allclose(found, expected[1], rtol=0, atol=1e-11 * np.linalg.norm(expected[1]))
    assert fit.steps == STEPS
    assert np.abs(plain - start).max() > 0.1  # it went somewhere
    np.testing.assert_allclose(fit.w, plain, rtol=0, atol=1e-11)
