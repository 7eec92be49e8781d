"""How much memory networks take, found without giving them any: settings of others may lie."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import nn

from remuda.gan.networks.convolutions import EnlargingConv
from remuda.gan.networks.family import Shape
from remuda.gan.networks.layers import SelfAttention

_FLOAT = 4  # bytes
_LEARNT = 4  # numbers for each weight in training: itself, its gradient, Adam's two moments
_LAYERS = 2  # that are there at once: what goes in and what comes out
_COPIES = 2  # of samples: as networks see them, and in the data's own units


def largest_layer(generator: nn.Module) -> int:
    """How many numbers the largest layer of a generator makes of one item, without running it."""
    largest, places = 1, 1
    for layer in generator.modules():
        if isinstance(layer, nn.Unflatten):
            places = math.prod(layer.unflattened_size[1:])
        elif isinstance(layer, nn.ConvTranspose2d | EnlargingConv):
            places *= 4  # either side doubles
        elif isinstance(layer, nn.Conv2d):
            places = max(1, places // math.prod(layer.stride))
        made = 0
        if isinstance(layer, nn.Linear):
            made = layer.out_features
        elif isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            made = layer.out_channels * places
        elif isinstance(layer, SelfAttention):
            made = places**2
        largest = max(largest, made)
    return largest


def sampling_bytes(
    generators: Iterable[nn.Module], shape: Shape, count: int, at_once: int, noise: int
) -> int:
    """The memory for drawing `count` items, `at_once` in a pass, of `noise` numbers each."""
    kept = count * (_COPIES * math.prod(shape) + noise)
    passing = max((largest_layer(one) for one in generators), default=0)
    return _FLOAT * (kept + _LAYERS * min(count, at_once) * passing)


def training_bytes(networks: Iterable[nn.Module], batch: int) -> int:
    """The least memory for training these networks on batches of that size."""
    found = [*networks]
    weights: int = sum(value.numel() for one in found for value in one.state_dict().values())
    layers = sum(map(largest_layer, found))
    return _FLOAT * (_LEARNT * weights + batch * layers)
