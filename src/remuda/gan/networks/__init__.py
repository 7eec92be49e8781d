"""The networks a cell trains, by family. A new family is its settings, a file and a line here.

A generator maps (n, noise_size) to (n, *shape) in [-1, 1]; a discriminator maps (n, *shape) to n
logits, never probabilities. Image shapes are (channels, height, width).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from remuda.config.base import Settings
from remuda.config.networks import (
    ClassDcganSettings,
    DcganSettings,
    GranSettings,
    MlpSettings,
    NetworkSettings,
    ResnetSettings,
)
from remuda.errors import ConfigError, shape_text
from remuda.files import check_memory
from remuda.gan.networks.class_dcgan import CLASS_DCGAN
from remuda.gan.networks.conditional import (
    ConditionalGenerator,
    body_of,
    discriminate,
    generate,
    judge,
)
from remuda.gan.networks.dcgan import DCGAN
from remuda.gan.networks.dense import DensePass, Memory, dense_layers
from remuda.gan.networks.family import Family, Shape, fill, normalise, weight_layers
from remuda.gan.networks.gran import GRAN
from remuda.gan.networks.layers import deviation_groups, set_stream
from remuda.gan.networks.mlp import MLP
from remuda.gan.networks.resnet import RESNET
from remuda.gan.networks.sizes import sampling_bytes, training_bytes

FAMILIES: dict[type[Settings], Family[Any]] = {
    MlpSettings: MLP,
    DcganSettings: DCGAN,
    GranSettings: GRAN,
    ClassDcganSettings: CLASS_DCGAN,
    ResnetSettings: RESNET,
}

__all__ = [
    "ConditionalGenerator",
    "DensePass",
    "Memory",
    "body_of",
    "build_discriminator",
    "build_generator",
    "check_shape",
    "check_size",
    "dense_layers",
    "deviation_groups",
    "discriminate",
    "discriminator_skeleton",
    "draw_noise",
    "generate",
    "generator_skeleton",
    "judge",
    "sampling_bytes",
    "set_stream",
]


def build_generator(
    settings: NetworkSettings, shape: tuple[int, ...], rng: torch.Generator
) -> nn.Module:
    """The network that makes items of `shape` from noise, its weights drawn from `rng`."""
    return fill(generator_skeleton(settings, shape), FAMILIES[type(settings)].initialise, rng)


def generator_skeleton(settings: NetworkSettings, shape: tuple[int, ...]) -> nn.Module:
    """That network without memory for its weights: names, shapes and types, of whatever size."""
    return _skeleton(settings, shape, FAMILIES[type(settings)].generator)


def build_discriminator(
    settings: NetworkSettings, shape: tuple[int, ...], rng: torch.Generator
) -> nn.Module:
    """The network that tells real items from fakes, its weights drawn from `rng`."""
    skeleton = discriminator_skeleton(settings, shape)
    network = fill(skeleton, FAMILIES[type(settings)].initialise, rng)
    if settings.spectral_norm:
        for layer in weight_layers(network):
            normalise(layer, rng)
    return network


def discriminator_skeleton(settings: NetworkSettings, shape: tuple[int, ...]) -> nn.Module:
    """That network without memory for its weights, and without its spectral norm."""
    return _skeleton(settings, shape, FAMILIES[type(settings)].discriminator)


def _skeleton(
    settings: NetworkSettings, shape: Shape, build: Callable[[Any, Shape], nn.Module]
) -> nn.Module:
    check_shape(settings, shape)
    # Constructors draw weights from the global RNG; on the meta device they draw nothing at all,
    # which, unlike saving and restoring the RNG, also holds when other threads build networks.
    try:
        with torch.device("meta"):
            return build(settings, shape)
    # Of impossible sizes torch says so in many ways.
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        problem = str(error).partition("\n")[0]
        raise ConfigError(
            f"network.family={settings.family}: of impossible size for items of "
            f"{shape_text(shape)}: {problem}"
        ) from None


def check_size(settings: NetworkSettings, shape: Shape, batch: int = 1) -> None:
    """Refuse, before anything is built, networks that this machine has not the memory to train."""
    both = (generator_skeleton(settings, shape), discriminator_skeleton(settings, shape))
    check_memory(
        f"network.family={settings.family}",
        training_bytes(both, batch),
        f"networks of these settings and batches of {batch:,}",
        ConfigError,
    )


def check_shape(settings: NetworkSettings, shape: tuple[int, ...]) -> None:
    """Refuse, before anything is built, data that this family of networks cannot make."""
    FAMILIES[type(settings)].check_shape(settings, shape)


def draw_noise(settings: NetworkSettings, count: int, rng: torch.Generator) -> Tensor:
    """The input of a generator: (count, noise_size) from its prior."""
    noise = torch.empty(count, settings.noise_size)
    if settings.prior == "uniform":
        return noise.uniform_(-1, 1, generator=rng)
    return torch.randn(count, settings.noise_size, generator=rng)
