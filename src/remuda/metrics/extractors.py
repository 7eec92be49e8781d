"""Feature extractors: images in, the features and logits that every score is made of out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from remuda.errors import ConfigError
from remuda.metrics.classifier import Card, DigitsNetwork, read_classifier

if TYPE_CHECKING:
    from remuda.config.schema import ScoreSettings

WEIGHTS = Path(__file__).parent / "weights"
SHAPES: dict[str, tuple[int, ...]] = {"digits": (1, 28, 28)}
DIGITS = ("digits", "mnist")  # the sources whose images are digits
# Small enough that the activations of a chunk stay in the processor's cache.
CHUNK = 100


@dataclass(frozen=True, eq=False)
class Features:
    """What an extractor sees in a set of images."""

    features: torch.Tensor  # (n, d) float32
    logits: torch.Tensor  # (n, k) float32


class Extractor:
    """A trained classifier that only looks: no gradients, no batch statistics, no randomness."""

    def __init__(self, network: DigitsNetwork, card: Card) -> None:
        self._network = network.eval().requires_grad_(False)
        self.name = card.name
        self.scaling = card.scaling
        self.classes = card.classes
        self.shape = card.shape

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> Features:
        if tuple(images.shape[1:]) != self.shape or len(images) == 0:
            raise ConfigError(
                f"extractor {self.name} got images of shape {_times(images.shape)}; "
                f"allowed: Nx{_times(self.shape)}, N at least 1"
            )
        parts = [self._network(chunk.float()) for chunk in torch.split(images, CHUNK)]
        return Features(
            features=torch.cat([features for features, _ in parts]),
            logits=torch.cat([logits for _, logits in parts]),
        )


@cache
def load_extractor(name: str) -> Extractor:
    """The extractor of that name, read and checked once per process."""
    if name not in SHAPES:
        raise ConfigError(f"score.extractor={name} is unknown; allowed: {', '.join(SHAPES)}")
    return Extractor(*read_classifier(WEIGHTS / f"{name}.safetensors"))


def extractor_for(settings: ScoreSettings, source: str, shape: tuple[int, ...]) -> Extractor | None:
    """The extractor a run scores with, or None where none is meant for its data.

    `auto` goes by the data's name: a digit classifier has no opinion on other 28x28 images.
    """
    if settings.extractor == "none":
        return None
    if settings.extractor == "auto":
        fits = source in DIGITS and tuple(shape) == SHAPES["digits"]
        return load_extractor("digits") if fits else None
    needed = SHAPES[settings.extractor]
    if needed != tuple(shape):
        raise ConfigError(
            f"score.extractor={settings.extractor} looks at {_times(needed)} images and the data "
            f"are {_times(shape)}; allowed: auto, none"
        )
    return load_extractor(settings.extractor)


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape)
