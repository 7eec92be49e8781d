"""The networks of extractors made for the data of one run: classifiers, and random features.

Each gives at most FEATURES features and the logits of its classes, if it knows any. What they need
to know is the shape of an item; everything else is in their weights.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

FEATURES = 64
CHANNELS = (16, 32, 64)
# Larger images are pooled first: the time an image takes has a bound.
CLASSIFIER_SIDE = 32
RANDOM_SIDE = 64
PLACES = 3  # a random network's last layer is pooled to 3x3 places
MOST_AXES = 16  # principal axes of points beside the random waves


def _pooled(images: Tensor, most: int) -> Tensor:
    side = (min(images.shape[2], most), min(images.shape[3], most))
    return images if images.shape[2:] == side else functional.adaptive_avg_pool2d(images, side)


class OwnNetwork(nn.Module, ABC):
    """Items in [-1, 1] to features and logits."""

    @abstractmethod
    def forward(self, items: Tensor) -> tuple[Tensor, Tensor]: ...


class LabelClassifier(OwnNetwork):
    """Convolutional for images, fully connected for points; `scale` gives features a unit."""

    scale: Tensor

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        layers = _image_layers(shape) if len(shape) == 3 else _point_layers(shape)
        self.body = nn.Sequential(*layers, nn.LeakyReLU(0.1))
        self.head = nn.Linear(FEATURES, classes)
        self.register_buffer("scale", torch.ones(()))
        # Three times as fast on a CPU as the default layout.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stub lacks it

    def forward(self, items: Tensor) -> tuple[Tensor, Tensor]:
        if items.ndim == 4:
            items = _pooled(items, CLASSIFIER_SIDE)
        features = self.body(items)
        return features * self.scale, self.head(features)


def _image_layers(shape: tuple[int, ...]) -> list[nn.Module]:
    channels, *sides = shape
    height, width = (min(side, CLASSIFIER_SIDE) for side in sides)
    layers: list[nn.Module] = []
    for wider in CHANNELS:
        layers.append(nn.Conv2d(channels, wider, 3, padding=1, bias=False))
        if min(height, width) >= 4:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        layers += [nn.BatchNorm2d(wider), nn.ReLU()]
        channels = wider
    return [*layers, nn.Flatten(), nn.Linear(channels * height * width, FEATURES)]


def _point_layers(shape: tuple[int, ...]) -> list[nn.Module]:
    first, second = nn.Linear(shape[0], FEATURES), nn.Linear(FEATURES, FEATURES)
    return [first, nn.LeakyReLU(0.1), second, nn.LeakyReLU(0.1), nn.Linear(FEATURES, FEATURES)]


class RandomImageFeatures(OwnNetwork):
    """Random filters, ReLU and pooling in three layers, then fixed axes of what comes out."""

    centre: Tensor
    axes: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        widths = zip((shape[0], *CHANNELS), CHANNELS, strict=False)
        self.layers = nn.ModuleList(nn.Conv2d(few, many, 3, padding=1) for few, many in widths)
        size = sum(CHANNELS) + CHANNELS[-1] * PLACES**2
        self.register_buffer("centre", torch.zeros(size))
        self.register_buffer("axes", torch.zeros(size, FEATURES))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stub lacks it

    def raw(self, images: Tensor) -> Tensor:
        """The mean of every channel in every layer, and the last layer at a few places."""
        images = _pooled(images, RANDOM_SIDE)
        found = []
        for layer in self.layers:
            images = layer(images).relu()
            found.append(images.mean((2, 3)))
            if min(images.shape[2:]) >= 2:
                images = functional.avg_pool2d(images, 2)
        found.append(functional.adaptive_avg_pool2d(images, PLACES).flatten(1))
        return torch.cat(found, 1)

    def forward(self, items: Tensor) -> tuple[Tensor, Tensor]:
        return (self.raw(items) - self.centre) @ self.axes, items.new_empty(len(items), 0)


class RandomPointFeatures(OwnNetwork):
    """Coordinates (the principal ones of many), and waves of random directions and lengths."""

    centre: Tensor
    axes: Tensor
    waves: Tensor
    phases: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        (size,) = shape
        coordinates = min(size, MOST_AXES)
        self.register_buffer("centre", torch.zeros(size))
        self.register_buffer("axes", torch.zeros(size, coordinates))
        self.register_buffer("waves", torch.zeros(size, FEATURES - coordinates))
        self.register_buffer("phases", torch.zeros(FEATURES - coordinates))

    def forward(self, items: Tensor) -> tuple[Tensor, Tensor]:
        points = items - self.centre
        waves = math.sqrt(2) * (points @ self.waves + self.phases).cos()
        return torch.cat([points @ self.axes, waves], 1), items.new_empty(len(items), 0)


def build_network(kind: str, shape: tuple[int, ...], classes: int) -> OwnNetwork:
    """A network of a kind, `labels` or `random`, for items of a shape."""
    if kind == "labels":
        return LabelClassifier(shape, classes)
    return RandomImageFeatures(shape) if len(shape) == 3 else RandomPointFeatures(shape)
