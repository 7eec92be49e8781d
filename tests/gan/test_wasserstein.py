"""The Wasserstein game with a known answer: two Gaussians that differ in their means only.

Their distance is that of the means; a critic of slope one finds it, and a generator that follows
the critic closes it.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from remuda.config import load_config
from remuda.data import load_dataset
from remuda.gan.objectives import OBJECTIVES
from remuda.gan.penalties import clip_weights, gradient_penalty
from remuda.methods import build_method, resolved

WASSERSTEIN = OBJECTIVES["wasserstein"]
SHIFT = torch.tensor([0.6, 0.8])  # one apart


class Game:
    """Real points around SHIFT, fake ones around a mean that the generator may move."""

    def __init__(self, critic: nn.Module, rate: float) -> None:
        self.rng = torch.Generator().manual_seed(0)
        self.critic = critic
        self.mean = torch.zeros(2, requires_grad=True)
        self.for_critic = torch.optim.Adam(critic.parameters(), lr=rate, betas=(0.5, 0.9))
        self.for_mean = torch.optim.SGD([self.mean], lr=0.03)

    def points(self, count: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.randn(2, count, 2, generator=self.rng) * 0.5
        return noise[0] + SHIFT, noise[1] + self.mean

    def train_critic(self, steps: int, *, penalty: float = 0.0, clip: float = 0.0) -> float:
        for _ in range(steps):
            real, fake = self.points()
            fake = fake.detach()
            loss = WASSERSTEIN.discriminator_loss(*self.both(real, fake))
            if penalty:
                loss = loss + penalty * gradient_penalty(self.logits, real, fake, self.rng)
            self.for_critic.zero_grad()
            torch.autograd.backward(loss)
            self.for_critic.step()
            if clip:
                clip_weights(self.critic, clip)
        with torch.no_grad():
            return -WASSERSTEIN.discriminator_loss(*self.both(*self.points(4000))).item()

    def train_mean(self) -> None:
        loss = WASSERSTEIN.generator_loss(self.logits(self.points()[1]))
        self.for_mean.zero_grad()
        torch.autograd.backward(loss)
        self.for_mean.step()

    def logits(self, points: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.critic(points)[:, 0]
        return logits

    def both(self, real: torch.Tensor, fake: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.logits(real), self.logits(fake)


def small_critic() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


@pytest.mark.slow
def test_with_the_gradient_penalty_the_critic_tells_the_distance_of_the_means() -> None:
    game = Game(small_critic(), 5e-3)
    before = -WASSERSTEIN.discriminator_loss(*game.both(*game.points())).item()
    # Between -slope · distance and λ (slope - 1)² the best slope is 1 + distance / 2λ = 1.05.
    assert abs(game.train_critic(150, penalty=10.0) - 1.05) < 0.1
    assert abs(before - 1.05) > 0.3


@pytest.mark.slow
def test_with_clipping_a_linear_critic_finds_its_known_best() -> None:
    # Every weight at the bound, in the direction of the means: clip · (0.6 + 0.8).
    game = Game(nn.Linear(2, 1), 1e-2)
    assert abs(game.train_critic(100, clip=0.05) - 0.05 * 1.4) < 0.002


@pytest.mark.slow
def test_a_generator_that_follows_the_critic_halves_the_distance() -> None:
    game = Game(small_critic(), 5e-3)
    game.train_critic(30, penalty=10.0)
    for _ in range(40):
        game.train_critic(5, penalty=10.0)
        game.train_mean()
    assert float((game.mean.detach() - SHIFT).norm()) < 0.5  # of one at the start


@pytest.mark.slow
def test_with_clipping_the_generator_sets_out_towards_the_real_points() -> None:
    game = Game(nn.Linear(2, 1), 1e-2)
    game.train_critic(100, clip=0.05)
    game.train_mean()
    assert bool((game.mean > 0).all())


@pytest.mark.slow
@pytest.mark.parametrize("data", ["mnist", "cifar10", "cifar100"])
def test_the_critics_of_the_presets_reach_their_generators(data: str) -> None:
    """Clipped weights and batch norm in turn once left gradients of 1e-12 after a few batches."""
    overrides = ["data=digits", "data.limit=200", "network.width=16", "training.batch_size=10"]
    config = load_config(f"wclass-{data}", [*overrides, "training.batches_per_round=40"])
    dataset = load_dataset(config.data)
    assert dataset.labels is not None
    cell = build_method(resolved(config, dataset)).cell(
        0, dataset, torch.nonzero(dataset.labels == 3).flatten(), None
    )
    cell.round = 1
    weights = cell.gan.generator.network.parameters()
    before = [weight.detach().clone() for weight in weights]
    losses = cell.train(cell.gan)
    after = cell.gan.generator.network.parameters()
    pairs = zip(after, before, strict=True)
    moved = max(float((new.detach() - old).abs().max()) for new, old in pairs)
    assert moved > 1e-3
    assert losses.discriminator < -0.01  # it tells real from fake
