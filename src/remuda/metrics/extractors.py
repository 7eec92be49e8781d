"""Feature extractors: images in, features and logits out, which every score is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from remuda.config import ScoreSettings
from remuda.errors import ConfigError, shape_text
from remuda.metrics.classifier import (
    SHAPES,
    Card,
    encoded,
    read_classifier,
    tensors_digest,
)
from remuda.metrics.inception import CLASSES, InceptionNetwork, read_inception

WEIGHTS = Path(__file__).parent / "weights"
# The data sources whose classes a classifier knows.
MEANT_FOR = {"digits": ("digits", "mnist"), "cifar": ("cifar10",)}
# Made for the data of a run: trained on their labels, or without training.
OWN = ("labels", "random")
INCEPTION = {"inception": 2048, "inception-64": 64}  # and the features they give
INCEPTION_FILES = ("inception_fid_fp16.npz", "inception.npz", "inception.safetensors")
# Small enough that the activations of a chunk stay in the CPU's cache.
CHUNK = 100
INCEPTION_CHUNK = 10


@dataclass(frozen=True, eq=False)
class Features:
    """What an extractor sees in a set of images."""

    features: torch.Tensor  # (n, d) float32
    logits: torch.Tensor  # (n, k) float32; k is 0 where the extractor knows no classes


class AnyExtractor(Protocol):
    """Images in, features out; `classes` is 0 where there are no logits."""

    name: str
    identity: str  # a digest of what its features depend on: other weights have another
    scaling: str
    classes: int

    def __call__(self, images: torch.Tensor) -> Features: ...


class Extractor:
    """A trained classifier, only for inference: no gradients, batch statistics or randomness."""

    def __init__(
        self, network: nn.Module, card: Card, identity: str, *, is_shipped: bool = True
    ) -> None:
        self._network = network.eval().requires_grad_(False)
        self._card = card
        # Others may have trained another one that has the same name.
        self.name = card.name if is_shipped else f"{card.name} ({_known_by(card, identity)})"
        self.is_shipped = is_shipped
        self.identity = identity
        self.scaling: str = card.scaling
        self.classes = card.classes
        self.shape = card.shape

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> Features:
        if tuple(images.shape[1:]) != self.shape or len(images) == 0:
            raise ConfigError(
                f"extractor {self.name} got images of shape {shape_text(images.shape)}; "
                f"allowed: Nx{shape_text(self.shape)}, N at least 1"
            )
        parts = [self._network(chunk.float()) for chunk in torch.split(images, CHUNK)]
        return Features(
            features=torch.cat([features for features, _ in parts]),
            logits=torch.cat([logits for _, logits in parts]),
        )

    def encoded(self) -> bytes:
        """The content of its file; equal extractors give equal files."""
        return encoded(self._network, self._card)


def _known_by(card: Card, identity: str) -> str:
    share = f"{card.accuracy:.1%}".replace("%", " %")
    return f"{share} of {card.tested:,} test images, weights {identity[:8]}"


class InceptionExtractor:
    """Inception-v3 as FID is defined on it: any images, thousands of features, slow.

    Images are rounded to 256 levels, because real ones were when they were saved.
    """

    scaling = "0 to 255"

    def __init__(
        self, network: InceptionNetwork, head: torch.Tensor | None, name: str, identity: str
    ) -> None:
        self._network = network
        # Without bias, as the usual programs compute the Inception Score.
        self._head = head if INCEPTION[name] == 2048 else None
        self.name = name
        self.identity = identity
        self.classes = 0 if self._head is None else CLASSES

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> Features:
        shape = tuple(images.shape[1:])
        if len(shape) != 3 or shape[0] not in (1, 3) or len(images) == 0:
            raise ConfigError(
                f"extractor {self.name} got images of shape {shape_text(images.shape)}; "
                "allowed: N images of 1 or 3 channels, N at least 1"
            )
        pixels = ((images.float() + 1) * 127.5).round().clamp(0, 255).expand(-1, 3, -1, -1)
        depth = INCEPTION[self.name]
        parts = [self._network(chunk, depth) for chunk in torch.split(pixels, INCEPTION_CHUNK)]
        features = torch.cat(parts)
        logits = torch.empty(len(images), 0) if self._head is None else features @ self._head.T
        return Features(features, logits)


@cache
def load_extractor(name: str) -> Extractor:
    """The classifier of that name, read and checked once per process."""
    if name not in SHAPES:
        raise ConfigError(f"score.extractor={name} is unknown; allowed: {', '.join(SHAPES)}")
    network, card = read_classifier(WEIGHTS / f"{name}.safetensors")
    return Extractor(network, card, tensors_digest(network.state_dict())[:32])


def read_extractor(path: Path) -> Extractor:
    """The classifier in a file that somebody has trained by one of the scripts."""
    network, card = read_classifier(path)
    identity = tensors_digest(network.state_dict())[:32]
    return Extractor(network, card, identity, is_shipped=False)


def load_inception(name: str, weights: Path | None, folders: Sequence[Path]) -> InceptionExtractor:
    """Inception-v3 with the given weights, or with those in a data folder."""
    places = (
        place / file
        for folder in folders
        for place in (folder / "inception", folder)
        for file in INCEPTION_FILES
    )
    found = weights or next((path for path in places if path.is_file()), None)
    if found is None:
        raise ConfigError(
            f"--extractor={name}: no weights; allowed: --weights FILE (.npz or .safetensors), or "
            f"inception/{INCEPTION_FILES[0]} in the folder given by --data-dir or REMUDA_DATA"
        )
    network, head, identity = read_inception(found)
    return InceptionExtractor(network, head, name, identity)


def extractor_for(settings: ScoreSettings, source: str, shape: tuple[int, ...]) -> Extractor | None:
    """The classifier that comes with remuda and is meant for these data, or None.

    `auto` goes by the name of the data: a digit classifier says nothing about other 28x28 images.
    """
    if settings.extractor in ("none", *OWN) or settings.extractor_file is not None:
        return None
    if settings.extractor == "auto":
        fitting = [
            name
            for name, sources in MEANT_FOR.items()
            if source in sources and tuple(shape) == SHAPES[name]
        ]
        return load_extractor(fitting[0]) if fitting else None
    needed = SHAPES[settings.extractor]
    if needed != tuple(shape):
        raise ConfigError(
            f"score.extractor={settings.extractor} looks at {shape_text(needed)} images and the "
            f"data are {shape_text(shape)}; allowed: auto, labels, random, none"
        )
    return load_extractor(settings.extractor)
