from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from remuda import config
from remuda.gan.objectives import OBJECTIVES, find_objective

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
    "hinge": lambda real, fake: -fake.mean(),
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
    "hinge": lambda real, fake: (
        -torch.minimum(torch.zeros_like(real), real - 1).mean()
        - torch.minimum(torch.zeros_like(fake), -fake - 1).mean()
    ),
}

every_objective = pytest.mark.parametrize("name", OBJECTIVES)


def double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_every_objective_goes_by_its_name_and_is_known_to_the_settings() -> None:
    assert [objective.name for objective in OBJECTIVES.values()] == list(OBJECTIVES)
    assert list(OBJECTIVES) == list(config.OBJECTIVES)


def test_every_loss_at_a_draw_is_that_of_equal_logits() -> None:
    for name, facts in config.OBJECTIVES.items():
        if facts.loss_at_a_draw is not None:
            zeros = torch.zeros(3)
            loss = OBJECTIVES[name].discriminator_loss(zeros, zeros)
            assert loss.item() == pytest.approx(facts.loss_at_a_draw)


@every_objective
@unhurried
@given(pair=logits)
def test_losses_equal_the_formulas_of_the_papers(
    name: str, pair: tuple[list[float], list[float]]
) -> None:
    real, fake = map(double, pair)
    torch.testing.assert_close(
        OBJECTIVES[name].generator_loss(fake, real), GENERATOR[name](real, fake)
    )
    torch.testing.assert_close(
        OBJECTIVES[name].discriminator_loss(real, fake), DISCRIMINATOR[name](real, fake)
    )


@every_objective
@unhurried
@given(pair=logits)
def test_a_generator_wants_higher_logits_for_its_items(
    name: str, pair: tuple[list[float], list[float]]
) -> None:
    real, fake = map(double, pair)
    fake.requires_grad_()
    OBJECTIVES[name].generator_loss(fake, real).backward()  # type: ignore[no-untyped-call]
    assert fake.grad is not None
    assert (fake.grad < 0).all()


@every_objective
@unhurried
@given(pair=logits)
def test_a_discriminator_wants_real_logits_up_and_fake_logits_down(
    name: str, pair: tuple[list[float], list[float]]
) -> None:
    real, fake = (double(values).requires_grad_() for values in pair)
    OBJECTIVES[name].discriminator_loss(real, fake).backward()  # type: ignore[no-untyped-call]
    assert real.grad is not None
    assert fake.grad is not None
    if name == "hinge":  # items beyond their margin are left alone
        assert torch.equal(real.grad < 0, real < 1)
        assert torch.equal(fake.grad > 0, fake > -1)
        assert (real.grad <= 0).all()
        assert (fake.grad >= 0).all()
    else:
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
    for loss in (
        OBJECTIVES[name].generator_loss(fake, real),
        OBJECTIVES[name].discriminator_loss(real, fake),
    ):
        gradients = torch.autograd.grad(loss, (real, fake), allow_unused=True)
        assert loss.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)


def test_the_heuristic_loss_still_teaches_where_minimax_saturates() -> None:
    slopes = {}
    for name in ("minimax", "heuristic"):
        fake = torch.tensor([-20.0], requires_grad=True)
        (slopes[name],) = torch.autograd.grad(OBJECTIVES[name].generator_loss(fake), fake)
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
        # Twice the loss of one real and one fake item, weighted by their densities.
        far = double([1e4])
        real_part = OBJECTIVES[name].discriminator_loss(at, -far)
        fake_part = OBJECTIVES[name].discriminator_loss(far, at)
        return p * real_part + (1 - p) * fake_part

    (slope,) = torch.autograd.grad(loss_at(0.0), logit)
    assert slope.item() == pytest.approx(0, abs=1e-12)
    assert loss_at(0.0).item() < min(loss_at(0.1).item(), loss_at(-0.1).item())


def test_the_best_discriminator_loss_tells_the_jensen_shannon_divergence() -> None:
    """For N(-1, 1) and N(1, 1), log(p/q) = -2x is optimal and the loss is log 2 - JS."""
    rng = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 20_000, generator=rng, dtype=torch.float64)
    real, fake = noise[0] - 1, noise[1] + 1
    losses = {
        k: OBJECTIVES["minimax"].discriminator_loss(-k * real, -k * fake).item()
        for k in (1.5, 2, 2.5)
    }
    assert losses[2] == min(losses.values())
    x = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    p, q = (torch.exp(-0.5 * (x - m) ** 2) / (2 * torch.pi) ** 0.5 for m in (-1, 1))
    middle = (p + q) / 2
    divergence = 0.5 * torch.trapezoid(p * (p / middle).log() + q * (q / middle).log(), x)
    expected = torch.log(torch.tensor(2.0)) - divergence
    assert losses[2] == pytest.approx(expected.item(), abs=0.01)


def test_the_wasserstein_critic_loss_is_minus_the_difference_of_means() -> None:
    real, fake = double([3.0, 5.0]), double([1.0, 0.0])
    assert OBJECTIVES["wasserstein"].discriminator_loss(real, fake).item() == -3.5
    assert OBJECTIVES["wasserstein"].generator_loss(fake).item() == -0.5


def test_only_the_relativistic_generator_needs_real_logits() -> None:
    assert [name for name in OBJECTIVES if OBJECTIVES[name].needs_real] == ["relativistic"]
    with pytest.raises(ValueError, match="real items"):
        OBJECTIVES["relativistic"].generator_loss(torch.zeros(3))


def test_unpaired_logits_are_refused_instead_of_broadcast() -> None:
    with pytest.raises(ValueError, match=r"\(4,\) and \(4, 1\)"):
        OBJECTIVES["relativistic"].discriminator_loss(torch.zeros(4), torch.zeros(4, 1))
    with pytest.raises(ValueError, match="pairs"):
        OBJECTIVES["relativistic"].generator_loss(torch.zeros(4), torch.zeros(1))


def test_an_unknown_objective_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"'energy'; allowed: minimax, .*hinge"):
        find_objective("energy")
