"""What a family of networks is, and the layers and first weights that families share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from remuda.config.base import Settings

Shape = tuple[int, ...]
S = TypeVar("S", bound=Settings)

_SLOPE = 0.2  # of every LeakyReLU
_DCGAN_STD = 0.02
_POWER_ITERATIONS = 15  # before the first step, as many as PyTorch itself takes
_GLOBAL_RNG = Lock()  # two threads that save and restore it by turns would change it

Norm = nn.modules.batchnorm._BatchNorm
ItemNorm = nn.LayerNorm | nn.GroupNorm  # which look at one item at a time
Weighted = nn.Linear | nn.Conv2d | nn.ConvTranspose2d


@dataclass(frozen=True)
class Family(Generic[S]):
    """How one family checks an item's shape, builds its two networks and gives them weights.

    The builders run on the meta device, where constructors draw nothing; `initialise` then fills
    every weight from the stream it is given (norm layers are already filled).
    """

    check_shape: Callable[[S, Shape], None]
    generator: Callable[[S, Shape], nn.Module]
    discriminator: Callable[[S, Shape], nn.Module]
    initialise: Callable[[Weighted, torch.Generator], None]


def leaky() -> nn.Module:
    return nn.LeakyReLU(_SLOPE, inplace=True)


def layer_norm(channels: int) -> nn.Module:
    """Layer norm of images: over channels and places alike, a scale and a shift per channel."""
    return nn.GroupNorm(1, channels)


def uniform_weights(layer: Weighted, rng: torch.Generator) -> None:
    """PyTorch's own law for nn.Linear."""
    bound = 1 / math.sqrt(layer.weight.shape[1])
    for parameter in layer.parameters():
        parameter.uniform_(-bound, bound, generator=rng)


def normal_weights(layer: Weighted, rng: torch.Generator) -> None:
    """Radford's N(0, 0.02), biases zero."""
    layer.weight.normal_(0.0, _DCGAN_STD, generator=rng)
    if layer.bias is not None:
        layer.bias.zero_()


def orthogonal_weights(layer: Weighted, rng: torch.Generator) -> None:
    """Orthogonal rows (Saxe et al. 2014), which deep residual networks start well with."""
    matrix = torch.randn(layer.weight.shape[0], layer.weight[0].numel(), generator=rng)
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    factor, triangle = torch.linalg.qr(tall)
    factor = factor * triangle.diagonal().sign()  # else not uniformly distributed
    rows = factor if matrix.shape[0] >= matrix.shape[1] else factor.T
    layer.weight.copy_(rows.reshape(layer.weight.shape))
    if layer.bias is not None:
        layer.bias.zero_()


class OwnWeights(nn.Module, ABC):
    """A layer with parameters of its own beside those of the layers it is made of."""

    @abstractmethod
    def fill_own(self, rng: torch.Generator) -> None:
        """Give them their first values."""


@torch.no_grad()
def fill(
    network: nn.Module,
    initialise: Callable[[Weighted, torch.Generator], None],
    rng: torch.Generator,
) -> nn.Module:
    """Give a network built on the meta device memory, and every tensor of it a value."""
    # Not `to_empty`: for tensors on the meta device it imports a library of algebra, half a second.
    network._apply(  # type: ignore[no-untyped-call]
        lambda meta: torch.empty_strided(
            meta.shape, meta.stride(), dtype=meta.dtype, device=rng.device
        )
    )
    for norm in network.modules():
        if isinstance(norm, Norm):
            norm.reset_running_stats()
            norm.weight.normal_(1.0, _DCGAN_STD, generator=rng)
            norm.bias.zero_()
        elif isinstance(norm, ItemNorm):
            norm.weight.fill_(1.0)
            norm.bias.zero_()
    for layer in weight_layers(network):
        initialise(layer, rng)
    for own in network.modules():
        if isinstance(own, OwnWeights):
            own.fill_own(rng)
    return network


def weight_layers(network: nn.Module) -> list[Weighted]:
    return [layer for layer in network.modules() if isinstance(layer, Weighted)]


@torch.no_grad()
def normalise(layer: nn.Module, rng: torch.Generator) -> None:
    """Add spectral norm, the singular vectors it tracks drawn from `rng` and near the true ones."""
    with _GLOBAL_RNG, torch.random.fork_rng(devices=[]):
        spectral_norm(layer)  # draws from the global RNG; what it drew is replaced below
    for vector in layer.buffers():
        vector.normal_(generator=rng)
        vector /= torch.linalg.vector_norm(vector)
    for _ in range(_POWER_ITERATIONS):
        _ = layer.weight  # reading the weight in training mode takes one power iteration
