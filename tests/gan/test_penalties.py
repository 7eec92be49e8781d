"""Penalties and clipping: closed forms, and whom they train."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from remuda import config
from remuda.gan.penalties import PENALTIES, clip_weights, gradient_penalty, r1_r2


def test_every_penalty_is_known_to_the_settings() -> None:
    assert list(PENALTIES) == list(config.PENALTIES)


def linear(norm: float, shape: tuple[int, ...], rng: torch.Generator) -> Callable[[Tensor], Tensor]:
    weight = torch.randn(shape, generator=rng, dtype=torch.float64)
    weight *= norm / weight.norm()
    return lambda items: (items * weight).flatten(1).sum(1)


@pytest.mark.parametrize("shape", [(2,), (1, 5, 5)])
@pytest.mark.parametrize("norm", [0.0, 1.0, 3.0])
def test_the_gradient_penalty_of_a_linear_critic_is_its_distance_from_norm_one_squared(
    shape: tuple[int, ...], norm: float
) -> None:
    rng = torch.Generator().manual_seed(1)
    real, fake = torch.randn(2, 6, *shape, generator=rng, dtype=torch.float64)
    penalty = gradient_penalty(linear(norm, shape, rng), real, fake, rng)
    assert penalty.item() == pytest.approx((norm - 1) ** 2, abs=1e-12)


def test_the_gradient_penalty_looks_between_each_real_item_and_its_fake() -> None:
    seen: list[Tensor] = []

    def critic(items: Tensor) -> Tensor:
        seen.append(items.detach())
        return items.square().sum(1)

    real, fake = torch.zeros(500, 2), torch.tensor([1.0, 2.0]).expand(500, 2)
    gradient_penalty(critic, real, fake, torch.Generator().manual_seed(0))
    shares = seen[0][:, 0]
    torch.testing.assert_close(seen[0][:, 1], 2 * shares)  # one share for all parts of an item
    assert 0 <= shares.min() < 0.02
    assert 0.98 < shares.max() <= 1
    assert shares.mean().item() == pytest.approx(0.5, abs=0.05)


def test_the_gradient_penalty_draws_only_from_its_stream() -> None:
    def penalty(seed: int) -> float:
        real, fake = torch.zeros(5, 2), torch.ones(5, 2)
        rng = torch.Generator().manual_seed(seed)
        return gradient_penalty(lambda x: x.pow(3).sum(1), real, fake, rng).item()

    before = torch.get_rng_state()
    assert penalty(1) == penalty(1) != penalty(2)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_gradient_penalty_of_a_flat_critic_trains_it_without_nan() -> None:
    critic = nn.Linear(3, 1)
    nn.init.zeros_(critic.weight)
    rng = torch.Generator().manual_seed(0)
    loss = gradient_penalty(critic, torch.ones(4, 3), torch.zeros(4, 3), rng)
    loss.backward()  # type: ignore[no-untyped-call]
    assert critic.weight.grad is not None
    assert critic.weight.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(2,), (3, 4, 4)])
def test_r1_r2_of_a_linear_discriminator_is_its_squared_norm(shape: tuple[int, ...]) -> None:
    rng = torch.Generator().manual_seed(2)
    real = torch.randn(6, *shape, generator=rng, dtype=torch.float64)
    fake = torch.randn(4, *shape, generator=rng, dtype=torch.float64)
    penalty = r1_r2(linear(1.5, shape, rng), real, fake, rng)
    assert penalty.item() == pytest.approx(1.5**2)


def test_r1_r2_weighs_real_and_fake_items_by_half_each() -> None:
    # The gradient of ½x² is x, so the squared slopes are 4 on real and 9 on fake items.
    real, fake = torch.full((5, 1), 2.0), torch.full((3, 1), 3.0)
    assert r1_r2(
        lambda x: 0.5 * x.square().sum(1), real, fake, torch.Generator()
    ).item() == pytest.approx(6.5)


def test_penalties_train_the_discriminator_and_never_the_generator() -> None:
    rng = torch.Generator().manual_seed(3)
    network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
    real, fake = torch.randn(2, 6, 2, generator=rng)
    fake.requires_grad_()
    loss = r1_r2(network, real, fake, rng) + gradient_penalty(network, real, fake, rng)
    loss.backward()  # type: ignore[no-untyped-call]
    assert fake.grad is None
    slopes = [layer.weight.grad for layer in network if isinstance(layer, nn.Linear)]
    assert all(slope is not None and slope.abs().sum() > 0 for slope in slopes)


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm1d(10), nn.LayerNorm(10), nn.GroupNorm(1, 10)], ids=str
)
def test_clipping_bounds_weights_and_biases_but_not_those_of_norms(norm: nn.Module) -> None:
    first, second = nn.Linear(10, 10), nn.Linear(10, 1)
    network = nn.Sequential(first, norm, second)
    nn.init.constant_(first.weight, 0.005)
    nn.init.constant_(first.bias, -3.0)
    nn.init.constant_(second.weight, 3.0)
    clip_weights(network, 0.01)
    assert first.weight.eq(0.005).all()
    assert first.bias.eq(-0.01).all()
    assert second.weight.eq(0.01).all()
    assert norm.get_parameter("weight").eq(1).all()  # clipped too, it would silence a deep critic
    assert all(parameter.requires_grad for parameter in network.parameters())
