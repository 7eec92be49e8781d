"""The convolutional networks of Radford et al. (2016)."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from remuda.config.networks import ConvolutionalSettings, DcganSettings
from remuda.errors import ConfigError
from remuda.gan.networks.conditional import discriminator_of, generator_of
from remuda.gan.networks.convolutions import (
    Conv,
    Doubling,
    DoublingToImage,
    FromImage,
    ToFeatures,
    ToPlaces,
)
from remuda.gan.networks.family import Family, Shape, layer_norm, leaky, normal_weights
from remuda.gan.networks.layers import MinibatchDeviation


def check_square(family: str, shape: Shape) -> None:
    """Refuse what halving and doubling sides cannot make."""
    square = len(shape) == 3 and shape[1] == shape[2]
    # 8 px is the smallest side with a stride-2 stage that does not start below 4 px.
    if not square or shape[0] not in (1, 3) or shape[1] < 8 or shape[1] % 2 ** stages(shape[1]):
        raise ConfigError(
            f"network.family={family} cannot make items of shape {shape}; allowed: square images "
            "of 1 or 3 channels whose side is 4, 5, 6 or 7 times a power of two (28, 32, 64, "
            "...), or network.family=mlp"
        )


def _generator(settings: DcganSettings, shape: Shape) -> nn.Module:
    channels, size = shape[0], shape[1]
    start = size >> stages(size)
    widths = [settings.width << depth for depth in reversed(range(stages(size)))]
    # No bias before a batch norm, which would subtract it again.
    layers: list[nn.Module] = [
        nn.Linear(settings.latent + settings.num_classes, widths[0] * start * start, bias=False),
        ToPlaces(widths[0], start),
    ]
    for before, after in pairwise(widths):
        layers += [nn.BatchNorm2d(before), nn.ReLU(inplace=True)]
        layers.append(Doubling(before, after, bias=False))
    layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU(inplace=True)]
    body = nn.Sequential(*layers, DoublingToImage(widths[-1], channels, bias=True), nn.Tanh())
    return generator_of(body, settings.num_classes, label_norm=settings.label_norm)


def discriminator(settings: ConvolutionalSettings, width: int, shape: Shape) -> nn.Module:
    """Radford's discriminator, `width` channels after its first layer.

    A minibatch deviation is one more channel before the head.
    """
    channels, size = shape[0], shape[1]
    widths = [width << depth for depth in range(stages(size))]
    # Spectral norm replaces batch norm, as in Miyato et al. (2018): batch norm divides by the
    # batch's own deviation, so with it the bound on the weights would bound nothing.
    batch_norm = settings.discriminator_has_batch_norm
    layers: list[nn.Module] = [FromImage(channels, widths[0], bias=True), leaky()]
    for before, after in pairwise(widths):
        layers.append(halving(before, after, bias=not batch_norm))
        if batch_norm:
            layers.append(nn.BatchNorm2d(after))
        elif settings.discriminator_has_layer_norm:
            layers.append(layer_norm(after))
        layers.append(leaky())
    start = size >> stages(size)
    last = widths[-1]
    if settings.minibatch_stddev:
        layers.append(MinibatchDeviation(settings.minibatch_stddev))
        last += 1
    features = last * start * start
    if not settings.num_classes:
        return nn.Sequential(*layers, ToFeatures(), nn.Linear(features, 1), nn.Flatten(0))
    body = nn.Sequential(*layers, ToFeatures())
    return discriminator_of(body, features, settings.condition, settings.num_classes)


def stages(size: int) -> int:
    """How many times to halve a side until 4 to 7 pixels are left: 28 is 7·2², 64 is 4·2⁴."""
    return max(size.bit_length() - 3, 0)


def halving(before: int, after: int, *, bias: bool) -> nn.Module:
    """Radford's 5×5 kernel, padded so that a side exactly halves."""
    return Conv(before, after, 5, stride=2, padding=2, bias=bias)


DCGAN = Family[DcganSettings](
    lambda _, shape: check_square("dcgan", shape),
    _generator,
    lambda settings, shape: discriminator(settings, settings.width, shape),
    normal_weights,
)
