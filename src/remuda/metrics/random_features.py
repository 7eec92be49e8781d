"""Features that need no labels and no training: what is left where nothing else fits the data.

Random convolutional features say little about meaning, but their distances grow with noise, blur,
missing kinds of images and copies (docs/scores.md has the figures).
"""

from __future__ import annotations

import torch
from torch import Tensor

from remuda.metrics.extractors import CHUNK
from remuda.metrics.items import RealItems
from remuda.metrics.own_extractor import OwnCard, OwnExtractor
from remuda.metrics.own_networks import FEATURES, RandomImageFeatures, RandomPointFeatures
from remuda.metrics.reference import some_of
from remuda.streams import tensor_stream

MOST_ITEMS = 5000  # that the axes are fitted to
NEIGHBOURS = 10  # whose distance is the shortest wave of points
MOST_POINTS = 1000  # whose distances are measured
# Each axis is divided by its standard deviation to this power: 0 leaves all to the few largest axes
# (brightness), and 1 makes the noise in the smallest as loud as the rest.
WHITENING = 0.25


def random_features(items: RealItems) -> OwnExtractor:
    """The extractor `random` for some items; the same for the same items, whatever the run."""
    chosen = some_of(len(items), MOST_ITEMS)
    shape = tuple(items.shape[1:])
    network = _of_images(items, chosen) if len(shape) == 3 else _of_points(items[chosen].float())
    return OwnExtractor(network, OwnCard(kind="random", shape=shape))


@torch.no_grad()
def _of_images(images: RealItems, chosen: Tensor) -> RandomImageFeatures:
    network = RandomImageFeatures(tuple(images.shape[1:])).requires_grad_(False)
    rng = tensor_stream(0, 0, 0, "extractor-random")
    for layer in network.layers:
        assert isinstance(layer, torch.nn.Conv2d)
        assert layer.bias is not None
        filters = torch.randn(layer.weight.shape, generator=rng)
        # Blind to brightness: edges and textures, which PCA of the pixels does not see.
        filters -= filters.mean((1, 2, 3), keepdim=True)
        norms = filters.flatten(1).norm(dim=1).clamp_min(1e-12)
        layer.weight.copy_(filters / norms.reshape(-1, 1, 1, 1) * 2**0.5)
        layer.bias.copy_(0.1 * torch.randn(layer.bias.shape, generator=rng))
    # Never a copy of all the chosen images: they may be large.
    raw = torch.cat([network.raw(images[part].float()) for part in torch.split(chosen, CHUNK)])
    network.centre.copy_(raw.mean(0))
    values, axes = _principal(raw, FEATURES)
    network.axes.copy_(axes * _loudness(values, WHITENING))
    return network


@torch.no_grad()
def _of_points(points: Tensor) -> RandomPointFeatures:
    network = RandomPointFeatures(tuple(points.shape[1:]))
    rng = tensor_stream(0, 0, 0, "extractor-random")
    network.centre.copy_(points.mean(0))
    values, axes = _principal(points, network.axes.shape[1])
    # As many coordinates as there are, each with a variance of one on average.
    network.axes.copy_(axes * (network.axes.shape[1] / values.sum().clamp_min(1e-12)).sqrt())
    some = points[some_of(len(points), MOST_POINTS)].double()
    distances = torch.cdist(some, some).sort(1).values
    far = distances.median().clamp_min(1e-6)
    near = distances[:, min(NEIGHBOURS, len(some) - 1)].median().clamp(min=far / 100, max=far)
    count = len(network.phases)
    # From the grain of the data to all of it, evenly on a logarithmic scale.
    lengths = near * (far / near) ** torch.linspace(0, 1, count, dtype=torch.float64)
    directions = torch.randn(points.shape[1], count, generator=rng, dtype=torch.float64)
    network.waves.copy_(directions / lengths)
    network.phases.copy_(2 * torch.pi * torch.rand(count, generator=rng, dtype=torch.float64))
    return network


def _principal(raw: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest principal variances, and their axes as columns; zeros where there are fewer."""
    centred = raw.double() - raw.double().mean(0)
    values, axes = torch.linalg.eigh(centred.T @ centred / max(1, len(raw) - 1))
    values, axes = values.flip(0)[:count].clamp_min(0), axes.flip(1)[:, :count]
    # The sign of an axis is arbitrary and differs between machines.
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    missing = count - len(values)
    return torch.nn.functional.pad(values, (0, missing)), torch.nn.functional.pad(
        axes * signs, (0, missing)
    )


def _loudness(values: Tensor, power: float) -> Tensor:
    """What each axis is multiplied by, so that features have a variance of one on average."""
    total = values.sum().clamp_min(1e-12)
    softened = (values / total).clamp_min(1e-9) ** (-power / 2)
    kept: Tensor = (values * softened.square()).sum().clamp_min(1e-12)
    return softened * (len(values) / kept).sqrt()
