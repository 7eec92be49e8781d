from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from remuda.config.training import Objective
from remuda.gan.objectives import (
    OBJECTIVES,
    clip_weights,
    discriminator_loss,
    generator_loss,
    gradient_penalty,
    needs_real,
    r1_r2,
)

unhurried = settings(deadline=None)  # a first call, or a busy machine, may take its time
logits = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.floats(-8, 8), min_size=n, max_size=n)] * 2)
)


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


# The papers' formulas, with probabilities and logarithms as they are printed.
GENERATOR: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "minimax": lambda real, fake: 0.5 * torch.log(1 - sigmoid(fake)).mean(),
    "heuristic": lambda real, fake: -0.5 * torch.log(sigmoid(fake)).mean(),
    "least_squares": lambda real, fake: ((sigmoid(fake) - 1) ** 2).mean(),
    "wasserstein": lambda real, fake: -fake.mean(),
    "relativistic": lambda real, fake: -torch.log(sigmoid(fake - real)).mean(),
}


def cross_entropy(real: Tensor, fake: Tensor) -> Tensor:
    return -0.5 * torch.log(sigmoid(real)).mean() - 0.5 * torch.log(1 - sigmoid(fake)).mean()


DISCRIMINATOR: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "minimax": cross_entropy,
    "heuristic": cross_entropy,
    "least_squares": lambda real, fake: (
        0.5 * ((sigmoid(real) - 1) ** 2).mean() + 0.5 * (sigmoid(fake) ** 2).mean()
    ),
    "wasserstein": lambda real, fake: -(real.mean() - fake.mean()),
    "relativistic": lambda real, fake: -torch.log(sigmoid(real - fake)).mean(),
}

every_objective = pytest.mark.parametrize("name", OBJECTIVES)


def double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_objectives_are_those_of_the_configuration() -> None:
    assert get_args(Objective) == OBJECTIVES


@every_objective
@unhurried
@given(pair=logits)
def test_losses_equal_the_formulas_of_the_papers(
    name: str, pair: tuple[list[float], list[float]]
) -> None:
    real, fake = map(double, pair)
    torch.testing.assert_close(generator_loss(name, fake, real), GENERATOR[name](real, fake))
    torch.testing.assert_close(
        discriminator_loss(name, real, fake), DISCRIMINATOR[name](real, fake)
    )


@every_objective
@unhurried
@given(pair=logits)
def test_a_generator_wants_higher_logits_for_its_items(
    name: str, pair: tuple[list[float], list[float]]
) -> None:
    real, fake = map(double, pair)
    fake.requires_grad_()
    generator_loss(name, fake, real).backward()  # type: ignore[no-untyped-call]
    assert fake.grad is not None
    assert (fake.grad < 0).all()


@every_objective
@unhurried
@given(pair=logits)
def test_a_discriminator_wants_real_logits_up_and_fake_logits_down(
    name: str, pair: tuple[list[float], list[float]]
) -> None:
    real, fake = (double(values).requires_grad_() for values in pair)
    discriminator_loss(name, real, fake).backward()  # type: ignore[no-untyped-call]
    assert real.grad is not None
    assert fake.grad is not None
    assert (real.grad < 0).all()
    assert (fake.grad > 0).all()


@every_objective
@pytest.mark.parametrize("real_at", [-1e4, 0.0, 1e4])
@pytest.mark.parametrize("fake_at", [-1e4, 0.0, 1e4])
def test_extreme_logits_keep_losses_and_gradients_finite(
    name: str, real_at: float, fake_at: float
) -> None:
    real = torch.full((4,), real_at, requires_grad=True)
    fake = torch.full((4,), fake_at, requires_grad=True)
    for loss in (generator_loss(name, fake, real), discriminator_loss(name, real, fake)):
        gradients = torch.autograd.grad(loss, (real, fake), allow_unused=True)
        assert loss.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)


def test_the_heuristic_loss_still_teaches_where_minimax_saturates() -> None:
    slopes = {}
    for name in ("minimax", "heuristic"):
        fake = torch.tensor([-20.0], requires_grad=True)
        (slopes[name],) = torch.autograd.grad(generator_loss(name, fake), fake)
    assert slopes["heuristic"].item() == pytest.approx(-0.5)
    assert abs(slopes["minimax"].item()) < 1e-8


@pytest.mark.parametrize("name", ["minimax", "heuristic", "least_squares"])
@unhurried
@given(p=st.floats(0.05, 0.95))
def test_the_best_discriminator_is_p_over_p_plus_q(name: str, p: float) -> None:
    """At a point where the data has density p and the generator q = 1 - p, D* is p / (p + q)."""
    logit = torch.logit(double([p])).requires_grad_()

    def loss_at(shift: float) -> Tensor:
        at = logit + shift
        # Twice the loss of one real and one made item, weighted by their densities.
        far = double([1e4])
        real_part = discriminator_loss(name, at, -far)
        fake_part = discriminator_loss(name, far, at)
        return p * real_part + (1 - p) * fake_part

    (slope,) = torch.autograd.grad(loss_at(0.0), logit)
    assert slope.item() == pytest.approx(0, abs=1e-12)
    assert loss_at(0.0).item() < min(loss_at(0.1).item(), loss_at(-0.1).item())


def test_the_best_discriminator_loss_tells_the_jensen_shannon_divergence() -> None:
    """For N(-1, 1) and N(1, 1), log(p/q) = -2x is optimal and the loss is log 2 - JS."""
    rng = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 20_000, generator=rng, dtype=torch.float64)
    real, fake = noise[0] - 1, noise[1] + 1
    losses = {k: discriminator_loss("minimax", -k * real, -k * fake).item() for k in (1.5, 2, 2.5)}
    assert losses[2] == min(losses.values())
    x = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    p, q = (torch.exp(-0.5 * (x - m) ** 2) / (2 * torch.pi) ** 0.5 for m in (-1, 1))
    middle = (p + q) / 2
    divergence = 0.5 * torch.trapezoid(p * (p / middle).log() + q * (q / middle).log(), x)
    expected = torch.log(torch.tensor(2.0)) - divergence
    assert losses[2] == pytest.approx(expected.item(), abs=0.01)


def test_the_wasserstein_critic_loss_is_minus_the_difference_of_means() -> None:
    real, fake = double([3.0, 5.0]), double([1.0, 0.0])
    assert discriminator_loss("wasserstein", real, fake).item() == -3.5
    assert generator_loss("wasserstein", fake).item() == -0.5


def test_only_the_relativistic_generator_needs_real_logits() -> None:
    assert [name for name in OBJECTIVES if needs_real(name)] == ["relativistic"]
    with pytest.raises(ValueError, match="real items"):
        generator_loss("relativistic", torch.zeros(3))


def test_unpaired_logits_are_refused_instead_of_broadcast() -> None:
    with pytest.raises(ValueError, match=r"\(4,\) and \(4, 1\)"):
        discriminator_loss("relativistic", torch.zeros(4), torch.zeros(4, 1))
    with pytest.raises(ValueError, match="pairs"):
        generator_loss("relativistic", torch.zeros(4), torch.zeros(1))


def test_an_unknown_objective_is_an_error_that_lists_the_known() -> None:
    for call in (
        lambda: generator_loss("hinge", torch.zeros(1)),
        lambda: discriminator_loss("hinge", torch.zeros(1), torch.zeros(1)),
        lambda: needs_real("hinge"),
    ):
        with pytest.raises(ValueError, match=r"'hinge'; allowed: minimax, .*relativistic"):
            call()


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


def test_the_gradient_penalty_looks_between_each_real_item_and_its_made_one() -> None:
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
    penalty = r1_r2(linear(1.5, shape, rng), real, fake)
    assert penalty.item() == pytest.approx(1.5**2)


def test_r1_r2_weighs_real_and_made_items_by_half_each() -> None:
    # The gradient of ½x² is x, so the squared slopes are 4 on real and 9 on made items.
    real, fake = torch.full((5, 1), 2.0), torch.full((3, 1), 3.0)
    assert r1_r2(lambda x: 0.5 * x.square().sum(1), real, fake).item() == pytest.approx(6.5)


def test_penalties_train_the_discriminator_and_never_the_generator() -> None:
    rng = torch.Generator().manual_seed(3)
    network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
    real, fake = torch.randn(2, 6, 2, generator=rng)
    fake.requires_grad_()
    loss = r1_r2(network, real, fake) + gradient_penalty(network, real, fake, rng)
    loss.backward()  # type: ignore[no-untyped-call]
    assert fake.grad is None
    slopes = [layer.weight.grad for layer in network if isinstance(layer, nn.Linear)]
    assert all(slope is not None and slope.abs().sum() > 0 for slope in slopes)


def test_clipping_bounds_weights_and_biases_but_not_those_of_batch_norm() -> None:
    first, second = nn.Linear(10, 10), nn.Linear(10, 1)
    norm = nn.BatchNorm1d(10)
    network = nn.Sequential(first, norm, second)
    nn.init.constant_(first.weight, 0.005)
    nn.init.constant_(first.bias, -3.0)
    nn.init.constant_(second.weight, 3.0)
    clip_weights(network, 0.01)
    assert first.weight.eq(0.005).all()
    assert first.bias.eq(-0.01).all()
    assert second.weight.eq(0.01).all()
    assert norm.weight.eq(1).all()  # clipped too, it would silence a deep critic
    assert all(parameter.requires_grad for parameter in network.parameters())
