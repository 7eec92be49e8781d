"""Optimisers give torch's own bits, and training loads nothing of torch's that takes seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from remuda.gan.optimisers import Adam, Optimiser, RmsProp


@pytest.mark.parametrize(
    ("own", "of_torch"),
    [
        (
            partial(Adam, betas=(0.5, 0.999)),
            partial(torch.optim.Adam, betas=(0.5, 0.999), fused=True),
        ),
        (RmsProp, partial(torch.optim.RMSprop, foreach=True)),
    ],
    ids=["adam", "rmsprop"],
)
@pytest.mark.parametrize("restored", [False, True])
def test_steps_and_state_are_torchs_own(
    own: Callable[..., Optimiser], of_torch: Callable[..., torch.optim.Optimizer], restored: bool
) -> None:
    rng = torch.Generator().manual_seed(0)
    mine, torchs = nn.Linear(7, 5), nn.Linear(7, 5)
    torchs.load_state_dict(mine.state_dict())
    one, other = own(dict(mine.named_parameters())), of_torch(torchs.parameters(), lr=0.01)
    for number in range(4):
        items = torch.randn(4, 7, generator=rng)
        loss = mine(items).square().mean()
        one.step(torch.autograd.grad(loss, [*mine.parameters()]), 0.01)
        other.zero_grad()
        torchs(items).square().mean().backward()
        other.step()
        if restored and number == 1:
            state = {name: value.clone() for name, value in one.state().items()}
            one = own(dict(mine.named_parameters()))
            one.restore(state)
    assert all(map(torch.equal, mine.parameters(), torchs.parameters()))
    found = one.state()
    for name, parameter in torchs.named_parameters():
        for key, value in other.state[parameter].items():
            assert torch.equal(found[f"{key}.{name}"], value)


def test_step_counts_that_differ_are_refused() -> None:
    network = nn.Linear(2, 1)
    adam = Adam(dict(network.named_parameters()), (0.5, 0.999))
    adam.step([torch.ones_like(weight) for weight in network.parameters()], 0.1)
    state = {**adam.state(), "step.bias": torch.tensor(7.0)}
    with pytest.raises(ValueError, match=r"step counts differ: \[1.0, 7.0\]"):
        adam.restore(state)


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
def test_a_learner_loads_neither_torchs_compiler_nor_a_library_of_algebra(optimiser: str) -> None:
    """A second and half a second of every start."""
    code = f"""
import sys
import torch
from remuda.config import load_config
from remuda.gan.learner import Learner
from remuda.gan.networks import build_discriminator
config = load_config("cellular-digits", ["training.optimiser={optimiser}"])
network = build_discriminator(config.network, (1, 28, 28), torch.Generator().manual_seed(0))
learner = Learner(network, config.training)
loss = network(torch.zeros(2, 1, 28, 28)).sum()
learner.descend(torch.autograd.grad(loss, [*network.parameters()]))
print(*(name for name in ("torch._dynamo", "sympy") if name in sys.modules))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr) == ("\n", "")
