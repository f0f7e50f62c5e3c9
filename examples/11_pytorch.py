"""A PyTorch network trained by a PyTorch optimizer, its gradients computed through a gradient code.

Needs ``pip install torch``. Workers run `cross_entropy` on their partitions of the rows: autograd there, the optimizer
here, and between them one flat vector of all parameters. The weights are those of the uncoded run, to rounding.
"""

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import serverless_gc as sgc


def network():
    return torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1), torch.nn.Flatten(0))


def cross_entropy(X, y, w):
    """Return the summed loss of a part of the rows, and its gradient by the flat parameters."""
    torch.set_num_threads(1)  # a worker has about one core, and here several share them
    model = network().double()
    vector_to_parameters(torch.tensor(w), model.parameters())
    loss = binary_cross_entropy_with_logits(model(torch.tensor(X)), torch.tensor(y), reduction="sum")
    slopes = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), parameters_to_vector(slopes).numpy()


def train(value_and_gradient, steps=60):
    """Feed gradients from wherever to Adam; return the flat parameters and the losses on the way."""
    torch.manual_seed(0)
    model = network().double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        value, gradient = value_and_gradient(parameters_to_vector(model.parameters()).detach().numpy())
        vector = torch.from_numpy(gradient)
        for p, slope in zip(model.parameters(), vector.split([p.numel() for p in model.parameters()]), strict=True):
            p.grad = slope.view_as(p)
        optimizer.step()
        losses.append(value)
    return parameters_to_vector(model.parameters()).detach().numpy(), losses


rng = np.random.default_rng(0)
radius, angle = rng.random(1200), rng.random(1200) * 2 * np.pi
y = (rng.random(1200) < 0.5).astype(float)
X = (1 + y + 0.4 * radius)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)  # two rings

slow = sgc.inject.Stragglers(fraction=0.2, slowdown=10, base=0.001, seed=0)
with sgc.Session(inject=slow) as s:
    data = s.encode(X, y, code="frc", n_workers=8, stragglers=1)
    w, losses = train(lambda w: data.value_and_gradient(w, loss=cross_entropy, reduction="mean"))

plain, _ = train(lambda w: tuple(part / len(X) for part in cross_entropy(X, y, w)))

print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {len(losses)} steps of Adam")
print(f"largest difference from the weights of the uncoded run: {np.abs(w - plain).max():.1e}")

assert losses[-1] < 0.1
assert np.abs(w - plain).max() < 1e-9
