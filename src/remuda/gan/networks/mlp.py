"""Fully connected networks: the article's (Table I), and the toy networks of GAP.

Im et al. (2016) train on points with four fully connected batch-norm ReLU layers in both networks.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from itertools import pairwise

from torch import nn

from remuda.config.networks import MlpSettings
from remuda.errors import ConfigError
from remuda.gan.networks.conditional import discriminator_of, generator_of
from remuda.gan.networks.family import Family, Shape, leaky, uniform_weights
from remuda.gan.networks.layers import MinibatchDeviation


def _check_shape(_: MlpSettings, shape: Shape) -> None:
    if not shape or min(shape) < 1:
        raise ConfigError(
            f"network.family=mlp cannot make items of shape {shape}; allowed: sizes from 1"
        )


def _generator(settings: MlpSettings, shape: Shape) -> nn.Module:
    sizes = (settings.latent + settings.num_classes, *settings.hidden, math.prod(shape))
    norm = _Norm.of(settings.batch_norm, settings.generator_has_layer_norm)
    layers = _layers(sizes, settings.activation, norm)
    if settings.output == "tanh":
        layers.append(nn.Tanh())
    if len(shape) > 1:
        layers.append(nn.Unflatten(1, shape))
    return generator_of(nn.Sequential(*layers), settings.num_classes)


def _discriminator(settings: MlpSettings, shape: Shape) -> nn.Module:
    sizes = (math.prod(shape), *reversed(settings.hidden), 1)
    norm = _Norm.of(settings.discriminator_has_batch_norm, settings.discriminator_has_layer_norm)
    # None on the first layer, as in Radford's: real and fake items pass in batches of their own,
    # and with normalised inputs a discriminator could not see that all items are too large.
    first = _layers(sizes[:2], settings.activation, _Norm.NONE)
    rest = _layers(sizes[1:], settings.activation, norm)
    start = [*first, _activation(settings.activation)]
    layers = [*start, *rest]
    if settings.minibatch_stddev:
        layers = _with_deviation(layers, settings.minibatch_stddev)
    if not settings.num_classes:
        return nn.Sequential(nn.Flatten(), *layers, nn.Flatten(0))
    body = nn.Sequential(nn.Flatten(), *layers[:-1])
    return discriminator_of(body, sizes[-2], settings.condition, settings.num_classes)


def _with_deviation(layers: list[nn.Module], group: int) -> list[nn.Module]:
    """The deviation within a group as one more input of the last hidden layer."""
    linear = {place: layer for place, layer in enumerate(layers) if isinstance(layer, nn.Linear)}
    place = sorted(linear)[-2]
    hidden = linear[place]
    sizes = hidden.in_features + 1, hidden.out_features
    wider = nn.Linear(*sizes, bias=hidden.bias is not None)
    return [*layers[:place], MinibatchDeviation(group), wider, *layers[place + 1 :]]


class _Norm(Enum):
    """What normalises a hidden layer."""

    NONE = auto()
    BATCH = auto()
    LAYER = auto()

    @classmethod
    def of(cls, batch: bool, layer: bool) -> _Norm:
        """Layer norm takes the place of batch norm."""
        return cls.LAYER if layer else cls.BATCH if batch else cls.NONE


def _layers(sizes: tuple[int, ...], activation: str, norm: _Norm) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes[:-1]):
        # No bias before a batch norm, which would subtract it again.
        layers.append(nn.Linear(before, after, bias=norm is not _Norm.BATCH))
        if norm is _Norm.BATCH:
            layers.append(nn.BatchNorm1d(after))
        elif norm is _Norm.LAYER:
            layers.append(nn.LayerNorm(after))
        layers.append(_activation(activation))
    return [*layers, nn.Linear(sizes[-2], sizes[-1])]


def _activation(name: str) -> nn.Module:
    if name == "leaky_relu":
        return leaky()
    return nn.Tanh() if name == "tanh" else nn.ReLU(inplace=True)


MLP = Family(_check_shape, _generator, _discriminator, uniform_weights)
