"""Optimisers give torch's own bits, and training loads nothing of torch's that takes seconds."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from remuda.gan import optimisers


@pytest.mark.parametrize(
    ("own", "of_torch", "settings"),
    [
        (optimisers.Adam, torch.optim.Adam, {"betas": (0.5, 0.999), "fused": True}),
        (optimisers.RMSprop, torch.optim.RMSprop, {"foreach": True}),
    ],
)
def test_steps_and_state_are_torchs_own(own: Any, of_torch: Any, settings: dict[str, Any]) -> None:
    networks = []
    for kind in (own, of_torch):
        rng = torch.Generator().manual_seed(0)
        network = nn.Linear(7, 5)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(generator=rng)
        optimiser = kind(network.parameters(), lr=0.01, **settings)
        for _ in range(3):
            optimiser.zero_grad()
            network(torch.randn(4, 7, generator=rng)).square().mean().backward()
            optimiser.step()
        networks.append((network, optimiser.state_dict()["state"]))
    (mine, my_state), (torchs, its_state) = networks
    for one, other in zip(mine.parameters(), torchs.parameters(), strict=True):
        assert torch.equal(one, other)
    assert my_state.keys() == its_state.keys()
    for number, values in my_state.items():
        assert values.keys() == its_state[number].keys()
        assert all(torch.equal(value, its_state[number][name]) for name, value in values.items())


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
learner.step(network(torch.zeros(2, 1, 28, 28)).sum())
print(*(name for name in ("torch._dynamo", "sympy") if name in sys.modules))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr) == ("\n", "")
