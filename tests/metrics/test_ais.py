"""AIS against a density in closed form: the linear-Gaussian decoder, N(b, WWᵀ + s²I)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from remuda.errors import ConfigError
from remuda.metrics.ais import (
    AisSettings,
    bidirectional_bounds,
    log_likelihood,
    temperatures,
    with_prior,
)


class Linear:
    """G(z) = Wz + b, whose likelihood is known."""

    def __init__(self, size: int, latent: int, variance: float, strength: float = 1.0) -> None:
        rng = torch.Generator().manual_seed(1)
        self.size, self.latent, self.variance = size, latent, variance
        self.weight = strength * torch.randn(size, latent, generator=rng)
        self.bias = torch.randn(size, generator=rng)

    def __call__(self, noise: Tensor) -> Tensor:
        return noise @ self.weight.T + self.bias

    def sample(self, count: int) -> Tensor:
        rng = torch.Generator().manual_seed(2)
        made = self(torch.randn(count, self.latent, generator=rng))
        return made + math.sqrt(self.variance) * torch.randn(made.shape, generator=rng)

    def truth(self, items: Tensor) -> Tensor:
        weight = self.weight.double()
        covariance = weight @ weight.T + self.variance * torch.eye(self.size, dtype=torch.float64)
        law = torch.distributions.MultivariateNormal(self.bias.double(), covariance)
        found: Tensor = law.log_prob(items.double())  # type: ignore[no-untyped-call]
        return found


def stream(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def errors(decoder: Linear, count: int, steps: int) -> Tensor:
    items = decoder.sample(count)
    settings = AisSettings(variance=decoder.variance, steps=steps)
    return log_likelihood(decoder, decoder.latent, items, settings, stream()) - decoder.truth(items)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_an_easy_density_is_found_and_more_steps_come_nearer() -> None:
    decoder = Linear(size=6, latent=2, variance=0.025)
    short, long = (errors(decoder, count=32, steps=steps) for steps in (40, 200))
    assert long.abs().mean() < 0.5 * short.abs().mean()
    assert long.mean().abs() < 0.1
    assert short.mean() < 0  # an estimate that is off is off to below


@pytest.mark.slow
def test_the_accuracy_asked_for() -> None:
    """d=20, k=5, s²=0.025, T=1000: mean error below 0.2 nat, and smaller than at T=100."""
    decoder = Linear(size=20, latent=5, variance=0.025)
    found = {steps: errors(decoder, count=64, steps=steps) for steps in (100, 1000)}
    means = {steps: error.mean().abs().item() for steps, error in found.items()}
    assert means[1000] < 0.2
    assert means[1000] < means[100]
    sizes = {steps: error.abs().mean().item() for steps, error in found.items()}
    assert sizes[1000] < sizes[100]


@pytest.mark.slow
def test_bounds_bracket_the_truth_and_close_with_more_steps() -> None:
    decoder = Linear(size=6, latent=2, variance=0.025)
    gaps = []
    for steps in (25, 100, 200):
        settings = AisSettings(variance=decoder.variance, steps=steps)
        rng, same = stream(), stream()
        bounds = bidirectional_bounds(decoder, decoder.latent, 64, settings, rng)
        secret = torch.randn(64, decoder.latent, generator=same)
        made = decoder(secret)
        items = made + math.sqrt(decoder.variance) * torch.randn(made.shape, generator=same)
        truth = decoder.truth(items).mean()
        # In expectation: at 200 steps both may be off by the noise of 64 examples.
        slack = 0.1
        assert bounds.lower.mean() - slack < truth < bounds.upper.mean() + slack
        assert bounds.gap == pytest.approx((bounds.upper - bounds.lower).mean().item())
        gaps.append(bounds.gap)
    assert gaps[0] > 2 * gaps[1] > 0
    assert gaps[1] > gaps[2]
    assert gaps[2] < 0.2


@pytest.mark.slow
def test_a_uniform_prior_is_that_of_a_box() -> None:
    """One latent and one output: the density is a box blurred by the noise, known by erf."""
    variance, width = 0.04, 1.5
    items = torch.tensor([[0.0], [1.0], [1.4], [1.9]])
    decoder = with_prior(lambda noise: width * noise, "uniform")
    settings = AisSettings(variance=variance, steps=300, chains=64)
    found = log_likelihood(decoder, 1, items, settings, stream())
    scale = math.sqrt(2 * variance)
    wanted = [
        math.log((math.erf((width - x) / scale) + math.erf((width + x) / scale)) / (4 * width))
        for x in (0.0, 1.0, 1.4, 1.9)
    ]
    assert found.tolist() == pytest.approx(wanted, abs=0.15)


def test_a_uniform_prior_stays_in_its_box() -> None:
    decoder = with_prior(lambda noise: noise, "uniform")
    made = decoder(torch.randn(20_000, 1, generator=stream()))
    assert made.abs().max() <= 1
    assert torch.histc(made, 4, -1, 1).sub(5000).abs().max() < 250


@pytest.mark.slow
def test_estimates_of_a_batch_are_those_of_its_items_within_noise() -> None:
    """Batching over examples mixes nothing: each item keeps its own chains."""
    decoder = Linear(size=6, latent=2, variance=0.1)
    items = decoder.sample(2)
    items[1] += 3.0  # far from the first, and unlikely
    settings = AisSettings(variance=0.1, steps=300)
    both = log_likelihood(decoder, 2, items, settings, stream())
    truth = decoder.truth(items)
    assert truth[0] - truth[1] > 50
    assert both.tolist() == pytest.approx(truth.tolist(), abs=0.6)


def test_images_keep_their_shape_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    settings = AisSettings(steps=5, chains=2)
    found = log_likelihood(
        lambda noise: noise[:, :4].reshape(-1, 1, 2, 2),
        4,
        torch.zeros(3, 1, 2, 2),
        settings,
        stream(),
        lambda done, total: told.append((done, total)),
    )
    assert found.shape == (3,)
    assert told == [(step, 5) for step in range(1, 6)]
    told.clear()
    bidirectional_bounds(
        lambda noise: noise,
        2,
        3,
        settings,
        stream(),
        lambda done, total: told.append((done, total)),
    )
    assert told == [(step, 10) for step in range(1, 11)]


def test_the_same_stream_gives_the_same_estimate() -> None:
    decoder = Linear(size=6, latent=2, variance=0.025)
    items, settings = decoder.sample(3), AisSettings(steps=10)
    first, second = (log_likelihood(decoder, 2, items, settings, stream()) for _ in range(2))
    assert torch.equal(first, second)


def test_temperatures_rise_from_prior_to_posterior() -> None:
    betas = temperatures(50)
    assert betas[[0, -1]].tolist() == [0, 1]
    assert len(betas) == 51
    assert bool((betas.diff() > 0).all())
    assert torch.allclose(betas + betas.flip(0), torch.ones_like(betas))
    assert betas.diff()[0] < 0.2 * betas.diff()[25]
    assert temperatures(1).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["variance", "chains", "steps", "leapfrog"])
def test_settings_without_sense_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=0: not allowed"):
        AisSettings(**{name: 0})
