"""Penalties on a discriminator's gradients, and the weight clipping of the first WGAN.

When a penalty applies, and with which weight, is in `config/objectives.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from remuda.gan.objectives import check_paired

Discriminate = Callable[[Tensor], Tensor]
Penalty = Callable[[Discriminate, Tensor, Tensor, torch.Generator], Tensor]


def gradient_penalty(
    critic: Discriminate, real: Tensor, fake: Tensor, rng: torch.Generator
) -> Tensor:
    """WGAN-GP (Gulrajani et al., 2017): pulls the critic's slope between real and fake to one.

    The penalty is per item, so it means nothing for a critic with batch norm, which mixes them.
    """
    check_paired(real, fake)
    one_each = (len(real), *(1,) * (real.dim() - 1))
    share = torch.rand(one_each, generator=rng, dtype=real.dtype, device=rng.device)
    between = fake.detach().lerp(real.detach(), share.to(real.device))
    slope: Tensor = torch.linalg.vector_norm(_input_gradient(critic, between), dim=1)
    return (slope - 1).square().mean()


def r1_r2(
    discriminate: Discriminate,
    real: Tensor,
    fake: Tensor,
    rng: torch.Generator,  # noqa: ARG001 - nothing is drawn
) -> Tensor:
    """Zero-centred penalties on real and fake items (Huang et al., 2024).

    ½ (E ‖∇D(x)‖² + E ‖∇D(G(z))‖²)
    """
    on_real = _input_gradient(discriminate, real).square().sum(dim=1).mean()
    on_fake = _input_gradient(discriminate, fake).square().sum(dim=1).mean()
    return 0.5 * (on_real + on_fake)


def r1(
    discriminate: Discriminate,
    real: Tensor,
    fake: Tensor,  # noqa: ARG001 - of real items alone
    rng: torch.Generator,  # noqa: ARG001 - nothing is drawn
) -> Tensor:
    """Keeps the discriminator flat where the data are (Mescheder et al., 2018).

    ½ E ‖∇D(x)‖²
    """
    return 0.5 * _input_gradient(discriminate, real).square().sum(dim=1).mean()


PENALTIES: dict[str, Penalty] = {
    "gradient_penalty": gradient_penalty,
    "r1_r2": r1_r2,
    "r1": r1,
}


@contextmanager
def without_statistics(network: nn.Module) -> Iterator[None]:
    """Batch norm normalises by the batch as ever, but does not count it a second time."""
    norms = [layer for layer in batch_norms(network) if layer.track_running_stats]
    for layer in norms:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in norms:
            layer.track_running_stats = True


def batch_norms(network: nn.Module) -> list[_BatchNorm]:
    return [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]


@torch.no_grad()
def clip_weights(network: nn.Module, bound: float) -> None:
    """The original WGAN's Lipschitz mechanism: every weight and bias back into [-bound, bound].

    Norms are spared: with their scales at a hundredth in every layer, hardly any of the critic's
    gradient would reach the generator.
    """
    for layer in network.modules():
        if not isinstance(layer, _BatchNorm | nn.LayerNorm | nn.GroupNorm):
            for parameter in layer.parameters(recurse=False):
                parameter.clamp_(-bound, bound)


def _input_gradient(discriminate: Discriminate, items: Tensor) -> Tensor:
    """(n, size of an item): the gradient of each logit by its own item, itself differentiable."""
    items = items.detach().requires_grad_()  # so that no penalty trains the generator
    (gradient,) = torch.autograd.grad(discriminate(items).sum(), items, create_graph=True)
    return gradient.flatten(1)
