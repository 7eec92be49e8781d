"""The networks a cell trains: the article's MLP (Table I) and the DCGAN of Radford et al. (2016).

A generator maps (n, latent) to (n, *shape) in [-1, 1]; a discriminator maps (n, *shape) to n
logits, never probabilities. Image shapes are (channels, height, width).
"""

from __future__ import annotations

import math
from itertools import pairwise
from threading import Lock

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from remuda.config.schema import DcganSettings, MlpSettings
from remuda.errors import ConfigError

_SLOPE = 0.2  # of every LeakyReLU
_DCGAN_STD = 0.02
_POWER_ITERATIONS = 15  # before the first step, as many as PyTorch itself takes
_GLOBAL_RNG = Lock()  # two threads that save and restore it by turns would change it


def build_generator(
    settings: MlpSettings | DcganSettings, shape: tuple[int, ...], rng: torch.Generator
) -> nn.Module:
    """The network that makes items of `shape` from noise, its weights drawn from `rng`."""
    return _fill(generator_skeleton(settings, shape), settings, rng)


def generator_skeleton(settings: MlpSettings | DcganSettings, shape: tuple[int, ...]) -> nn.Module:
    """That network without memory for its weights: names, shapes and types, of whatever size."""
    check_shape(settings, shape)
    # Constructors draw weights from the global RNG; on the meta device they draw nothing at all,
    # which, unlike saving and restoring the RNG, also holds when other threads build networks.
    with torch.device("meta"):
        if isinstance(settings, MlpSettings):
            return _mlp_generator(settings, shape)
        return _dcgan_generator(settings, shape)


def build_discriminator(
    settings: MlpSettings | DcganSettings, shape: tuple[int, ...], rng: torch.Generator
) -> nn.Module:
    """The network that tells real items from made ones, its weights drawn from `rng`."""
    check_shape(settings, shape)
    with torch.device("meta"):
        if isinstance(settings, MlpSettings):
            network = _mlp_discriminator(settings, shape)
        else:
            network = _dcgan_discriminator(settings, shape)
    _fill(network, settings, rng)
    if settings.spectral_norm:
        for layer in _weight_layers(network):
            _normalise(layer, rng)
    return network


def check_shape(settings: MlpSettings | DcganSettings, shape: tuple[int, ...]) -> None:
    """Refuse, before anything is built, data that this family of networks cannot make."""
    if isinstance(settings, MlpSettings):
        if not shape or min(shape) < 1:
            raise ConfigError(
                f"network.family=mlp cannot make items of shape {shape}; allowed: sizes from 1"
            )
        return
    square = len(shape) == 3 and shape[1] == shape[2]
    # 8 px is the smallest side with a stride-2 stage that does not start below 4 px.
    if not square or shape[0] not in (1, 3) or shape[1] < 8 or shape[1] % 2 ** _stages(shape[1]):
        raise ConfigError(
            f"network.family=dcgan cannot make items of shape {shape}; allowed: square images of "
            "1 or 3 channels whose side is 4, 5, 6 or 7 times a power of two (28, 32, 64, ...), "
            "or network.family=mlp"
        )


def _mlp_generator(settings: MlpSettings, shape: tuple[int, ...]) -> nn.Sequential:
    sizes = (settings.latent, *settings.hidden, math.prod(shape))
    layers = [*_mlp_layers(sizes, settings.activation), nn.Tanh()]
    if len(shape) > 1:
        layers.append(nn.Unflatten(1, shape))
    return nn.Sequential(*layers)


def _mlp_discriminator(settings: MlpSettings, shape: tuple[int, ...]) -> nn.Sequential:
    sizes = (math.prod(shape), *reversed(settings.hidden), 1)
    layers = _mlp_layers(sizes, settings.activation)
    return nn.Sequential(nn.Flatten(), *layers, nn.Flatten(0))


def _mlp_layers(sizes: tuple[int, ...], activation: str) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers.append(nn.Linear(before, after))
        layers.append(nn.Tanh() if activation == "tanh" else _leaky())
    return layers[:-1]


def _dcgan_generator(settings: DcganSettings, shape: tuple[int, ...]) -> nn.Sequential:
    channels, size = shape[0], shape[1]
    stages = _stages(size)
    start = size >> stages
    widths = [settings.width << depth for depth in reversed(range(stages))]
    # No bias before a batch norm, which would subtract it again.
    layers: list[nn.Module] = [
        nn.Linear(settings.latent, widths[0] * start * start, bias=False),
        nn.Unflatten(1, (widths[0], start, start)),
    ]
    for before, after in pairwise(widths):
        layers += [nn.BatchNorm2d(before), nn.ReLU(inplace=True)]
        layers.append(_doubling(before, after, bias=False))
    layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, _doubling(widths[-1], channels, bias=True), nn.Tanh())


def _dcgan_discriminator(settings: DcganSettings, shape: tuple[int, ...]) -> nn.Sequential:
    channels, size = shape[0], shape[1]
    stages = _stages(size)
    widths = [settings.width << depth for depth in range(stages)]
    # Spectral norm replaces batch norm, as in Miyato et al. (2018): batch norm divides by the
    # batch's own deviation, so with it the bound on the weights would bound nothing.
    batch_norm = not settings.spectral_norm
    layers: list[nn.Module] = [_halving(channels, widths[0], bias=True), _leaky()]
    for before, after in pairwise(widths):
        layers.append(_halving(before, after, bias=not batch_norm))
        if batch_norm:
            layers.append(nn.BatchNorm2d(after))
        layers.append(_leaky())
    start = size >> stages
    head = nn.Linear(widths[-1] * start * start, 1)
    return nn.Sequential(*layers, nn.Flatten(), head, nn.Flatten(0))


def _stages(size: int) -> int:
    """How many times to halve a side until 4 to 7 pixels are left: 28 is 7·2², 64 is 4·2⁴."""
    return max(size.bit_length() - 3, 0)


def _doubling(before: int, after: int, *, bias: bool) -> nn.Module:
    """Radford's 5×5 kernel, padded so that a side exactly doubles."""
    return nn.ConvTranspose2d(before, after, 5, stride=2, padding=2, output_padding=1, bias=bias)


def _halving(before: int, after: int, *, bias: bool) -> nn.Module:
    return nn.Conv2d(before, after, 5, stride=2, padding=2, bias=bias)


def _leaky() -> nn.Module:
    return nn.LeakyReLU(_SLOPE, inplace=True)


def _weight_layers(network: nn.Module) -> list[nn.Linear | nn.Conv2d | nn.ConvTranspose2d]:
    kinds = nn.Linear | nn.Conv2d | nn.ConvTranspose2d
    return [layer for layer in network.modules() if isinstance(layer, kinds)]


@torch.no_grad()
def _fill(
    network: nn.Module, settings: MlpSettings | DcganSettings, rng: torch.Generator
) -> nn.Module:
    """Give a network built on the meta device memory, and every tensor of it a value."""
    network.to_empty(device=rng.device)
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.reset_running_stats()
            norm.weight.normal_(1.0, _DCGAN_STD, generator=rng)
            norm.bias.zero_()
    for layer in _weight_layers(network):
        if isinstance(settings, MlpSettings):  # PyTorch's own law for nn.Linear
            bound = 1 / math.sqrt(layer.weight.shape[1])
            for parameter in layer.parameters():
                parameter.uniform_(-bound, bound, generator=rng)
        else:
            layer.weight.normal_(0.0, _DCGAN_STD, generator=rng)
            if layer.bias is not None:
                layer.bias.zero_()
    return network


@torch.no_grad()
def _normalise(layer: nn.Module, rng: torch.Generator) -> None:
    """Add spectral norm, the singular vectors it tracks drawn from `rng` and near the true ones."""
    with _GLOBAL_RNG, torch.random.fork_rng(devices=[]):
        spectral_norm(layer)  # draws from the global RNG; what it drew is replaced below
    for vector in layer.buffers():
        vector.normal_(generator=rng)
        vector /= torch.linalg.vector_norm(vector)
    for _ in range(_POWER_ITERATIONS):
        _ = layer.weight  # reading the weight in training mode takes one power iteration
