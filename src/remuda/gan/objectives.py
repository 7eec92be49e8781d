"""The adversarial losses, as pure functions of logits, and what keeps a critic Lipschitz.

Every loss is a mean over the batch and is to be minimised. Nothing here takes the logarithm of a
sigmoid: log D is -softplus(-logit) and log(1 - D) is -softplus(logit), finite at any logit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

OBJECTIVES: tuple[str, ...] = (
    "minimax",
    "heuristic",
    "least_squares",
    "wasserstein",
    "relativistic",
)

Network = Callable[[Tensor], Tensor]


def generator_loss(name: str, fake: Tensor, real: Tensor | None = None) -> Tensor:
    """What a generator minimises, given the logits of its items (and of real ones if needed)."""
    if name == "minimax":  # ½ E log(1 - D)
        return -0.5 * softplus(fake).mean()
    if name == "heuristic":  # -½ E log D
        return 0.5 * softplus(-fake).mean()
    if name == "least_squares":
        # E (D - 1)² with D a probability, as in Mustangs and E-GAN, not the raw output of LSGAN:
        # one discriminator judges learners that train with different losses.
        return torch.sigmoid(-fake).square().mean()
    if name == "wasserstein":
        return -fake.mean()
    if name == "relativistic":
        if real is None:
            raise ValueError("the relativistic generator loss needs the logits of real items")
        _check_paired(real, fake)
        return softplus(real - fake).mean()
    raise _unknown(name)


def discriminator_loss(name: str, real: Tensor, fake: Tensor) -> Tensor:
    """What a discriminator (or critic) minimises, given its logits of real and made items."""
    if name in ("minimax", "heuristic"):  # -½ E log D(x) - ½ E log(1 - D(G(z)))
        return 0.5 * (softplus(-real).mean() + softplus(fake).mean())
    if name == "least_squares":  # ½ E (D(x) - 1)² + ½ E D(G(z))²
        return 0.5 * (torch.sigmoid(-real).square().mean() + torch.sigmoid(fake).square().mean())
    if name == "wasserstein":
        return fake.mean() - real.mean()
    if name == "relativistic":
        _check_paired(real, fake)
        return softplus(fake - real).mean()
    raise _unknown(name)


def needs_real(name: str) -> bool:
    """Whether the generator's loss also needs the logits of real items."""
    if name not in OBJECTIVES:
        raise _unknown(name)
    return name == "relativistic"


def gradient_penalty(critic: Network, real: Tensor, fake: Tensor, rng: torch.Generator) -> Tensor:
    """WGAN-GP (Gulrajani et al., 2017): pulls the critic's slope between real and made to one.

    The penalty is per item, so it means nothing for a critic with batch norm, which mixes them.
    """
    _check_paired(real, fake)
    one_each = (len(real), *(1,) * (real.dim() - 1))
    share = torch.rand(one_each, generator=rng, dtype=real.dtype, device=rng.device)
    between = fake.detach().lerp(real.detach(), share.to(real.device))
    slope: Tensor = torch.linalg.vector_norm(_input_gradient(critic, between), dim=1)
    return (slope - 1).square().mean()


def r1_r2(discriminator: Network, real: Tensor, fake: Tensor) -> Tensor:
    """Zero-centred penalties on real and made items (Huang et al., 2024); the caller weighs them.

    ½ (E ‖∇D(x)‖² + E ‖∇D(G(z))‖²)
    """
    on_real = _input_gradient(discriminator, real).square().sum(dim=1).mean()
    on_fake = _input_gradient(discriminator, fake).square().sum(dim=1).mean()
    return 0.5 * (on_real + on_fake)


@torch.no_grad()
def clip_weights(network: nn.Module, bound: float) -> None:
    """The original WGAN's Lipschitz mechanism: every weight and bias back into [-bound, bound].

    But for batch norm's: scaled to a hundredth layer by layer, what a critic of several such layers
    says no longer reaches the generator.
    """
    for layer in network.modules():
        if not isinstance(layer, nn.modules.batchnorm._BatchNorm):
            for parameter in layer.parameters(recurse=False):
                parameter.clamp_(-bound, bound)


def _input_gradient(network: Network, items: Tensor) -> Tensor:
    """(n, size of an item): the gradient of each logit by its own item, itself differentiable."""
    items = items.detach().requires_grad_()  # so that no penalty trains the generator
    (gradient,) = torch.autograd.grad(network(items).sum(), items, create_graph=True)
    return gradient.flatten(1)


def _check_paired(real: Tensor, fake: Tensor) -> None:
    # Without this, (n,) against (n, 1) or (1,) would broadcast into a loss over wrong pairs.
    if real.shape != fake.shape:
        raise ValueError(
            f"real and fake come in pairs, not in shapes {tuple(real.shape)} and "
            f"{tuple(fake.shape)}"
        )


def _unknown(name: str) -> ValueError:
    return ValueError(f"unknown objective {name!r}; allowed: {', '.join(OBJECTIVES)}")
