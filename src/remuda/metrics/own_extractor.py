"""Extractors made for the data of one run, and the file that keeps one.

`labels` is a classifier trained on the data's own labels, `random` has features without training.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors.torch import save
from torch import Tensor

from remuda.errors import ConfigError, StoreError, shape_text
from remuda.files import digest, read_stored
from remuda.metrics.classifier import tensors_digest
from remuda.metrics.extractors import CHUNK, Features
from remuda.metrics.own_networks import OwnNetwork, build_network
from remuda.metrics.tensor_files import ROOM, NotTensorsError, decode_tensors, misfit

FORMAT = 1  # of the file, and of what the networks do with the weights in it
LEAST_LEARNT = 0.1  # of what knowing only the largest class leaves to learn
SIGMAS = 3.0


class OwnCard(BaseModel):
    """What must be known about an extractor besides its weights."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    kind: Literal["labels", "random"]
    shape: tuple[int, ...]
    classes: int = Field(0, ge=0, le=1_000_000)
    accuracy: float = Field(0.0, ge=0, le=1)  # on held-out items
    held_out: int = Field(0, ge=0)
    largest: float = Field(0.0, ge=0, le=1)  # share of the largest class among them

    @model_validator(mode="after")
    def _labels_are_classes(self) -> OwnCard:
        if (self.kind == "labels") != (self.classes > 0):
            raise ValueError(f"kind={self.kind} with {self.classes} classes")
        return self

    @property
    def has_learnt(self) -> bool:
        """Whether it beats naming the largest class, by more than chance and by enough to use."""
        chance = SIGMAS * math.sqrt(self.largest * (1 - self.largest) / max(1, self.held_out))
        least = max(chance, LEAST_LEARNT * (1 - self.largest))
        return self.accuracy > self.largest + least

    @property
    def title(self) -> str:
        """As every figure is named."""
        if self.kind == "labels":
            share = f"{self.accuracy:.1%}".replace("%", " %")
            return f"labels (a classifier of these data, {share} of {self.held_out:,} held out)"
        images = len(self.shape) == 3
        return f"random ({'an untrained network' if images else 'coordinates and random waves'})"


class OwnExtractor:
    """A network made for these data, only for inference."""

    scaling = "[-1, 1]"

    def __init__(self, network: OwnNetwork, card: OwnCard) -> None:
        self._network = network.eval().requires_grad_(False)
        self.card = card
        self.name = card.title
        self.classes = card.classes
        self._tensors = {key: value.contiguous() for key, value in network.state_dict().items()}
        # Features depend on the weights and on what the code does with them.
        described = f"{card.format}|{card.kind}|{card.shape}|{tensors_digest(self._tensors)}"
        self.identity = digest(described.encode())[:32]

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Features:
        if tuple(images.shape[1:]) != self.card.shape or len(images) == 0:
            raise ConfigError(
                f"extractor {self.card.kind} got items of shape {shape_text(images.shape)}; "
                f"allowed: Nx{shape_text(self.card.shape)}, N at least 1"
            )
        parts = [self._network(chunk.float()) for chunk in torch.split(images, CHUNK)]
        return Features(
            torch.cat([features for features, _ in parts]),
            torch.cat([logits for _, logits in parts]),
        )

    def encoded(self) -> bytes:
        """The content of its file; equal extractors give equal files."""
        about = {"card": self.card.model_dump(mode="json"), "sha256": tensors_digest(self._tensors)}
        return save(self._tensors, {"remuda": json.dumps(about)})


class _About(BaseModel):
    """The one entry of a file's metadata."""

    card: OwnCard
    sha256: str


def read_own_extractor(path: Path, shape: tuple[int, ...]) -> OwnExtractor:
    """The extractor in a file for items of this shape; anything else is a StoreError."""
    try:
        tensors, metadata = decode_tensors(read_stored(path, room=ROOM, follow=True))
    except NotTensorsError as error:
        raise StoreError(f"{path}: not a readable extractor ({error})") from None
    try:
        about = _About.model_validate_json(metadata.get("remuda", ""))
    except ValidationError:
        raise StoreError(f"{path}: damaged description of the extractor") from None
    card = about.card
    if card.format != FORMAT:
        raise StoreError(f"{path}: format {card.format}; this remuda reads format {FORMAT}")
    if card.shape != tuple(shape):
        raise StoreError(
            f"{path}: an extractor for {shape_text(card.shape)} items, and the data are "
            f"{shape_text(shape)}"
        )
    with torch.device("meta"):  # takes no memory, whatever the card says
        wrong = misfit(build_network(card.kind, card.shape, card.classes), tensors)
    if wrong is not None:
        raise StoreError(f"{path}: not the weights of this extractor ({wrong} does not fit)")
    if about.sha256 != tensors_digest(tensors):
        raise StoreError(f"{path}: the file is damaged: the weights do not match their checksum")
    if not all(bool(value.isfinite().all()) for value in tensors.values()):
        raise StoreError(f"{path}: the weights are not finite")
    network = build_network(card.kind, card.shape, card.classes)
    network.load_state_dict(tensors, strict=True)
    return OwnExtractor(network, card)
