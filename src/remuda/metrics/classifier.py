"""The small classifiers whose features and logits are scored, and the files they live in.

One for digits, with 1.3 million multiplications per image, and one for CIFAR, with ten million:
scoring a thousand images must cost far less than training a generator for a round. Trained by
`scripts/train_digits_classifier.py` and `scripts/train_cifar_classifier.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, Field, ValidationError
from pydantic.dataclasses import dataclass
from safetensors.torch import save
from torch import nn

from remuda.errors import StoreError, shape_text
from remuda.files import read_stored, write_atomically
from remuda.metrics.tensor_files import ROOM, NotTensorsError, decode_tensors

FORMAT = 1
Tensors = Mapping[str, torch.Tensor]


class Classifier(nn.Module):
    """Images in [-1, 1] to 64 features and the logits of the classes."""

    def __init__(self, classes: int, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        self.head = nn.Linear(64, classes)
        # Three times as fast on a CPU as the default layout.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stub lacks it

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(images)
        return features, self.head(features)


class DigitsNetwork(Classifier):
    """For digits, 28x28."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__(
            classes,
            *(nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(16, 24, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(24, 48, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            # Leaky, because plain ones left a quarter of the features dead.
            *(nn.Flatten(), nn.Linear(48 * 3 * 3, 64), nn.LeakyReLU(0.1)),
        )


class CifarNetwork(Classifier):
    """For colour images, 32x32."""

    def __init__(self, classes: int = 10) -> None:
        # Trained with batch norm, which is folded into the weights before they are saved.
        super().__init__(
            classes,
            *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(96, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128 * 2 * 2, 64), nn.LeakyReLU(0.1)),
        )


# The classifiers whose weights are in `weights`, by file name, and the images they look at.
NETWORKS: dict[str, Callable[[int], Classifier]] = {"digits": DigitsNetwork, "cifar": CifarNetwork}
SHAPES: dict[str, tuple[int, ...]] = {"digits": (1, 28, 28), "cifar": (3, 32, 32)}


@dataclass(frozen=True)
class Card:
    """What must be known about a classifier to read a figure made with it."""

    # The start of file names in the cache: a file must not choose the folder.
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    scaling: Literal["[-1, 1]"]
    accuracy: Annotated[float, Field(ge=0, le=1)]
    classes: Annotated[int, Field(ge=2, le=100_000)]
    shape: tuple[int, ...]
    tested: Annotated[int, Field(ge=0)] = 0  # images behind the accuracy; 0: not recorded


class _Version(BaseModel):
    """Read first: another format may hold anything else."""

    format: int


class _About(_Version):
    """The one entry of a file's metadata."""

    card: Card
    sha256: str


def write_classifier(path: Path, network: nn.Module, card: Card) -> None:
    """Save the weights with their card; reading checks both."""
    # Not save_file: it makes files that only their owner may read, and these get installed.
    write_atomically(path, encoded(network, card))


def encoded(network: nn.Module, card: Card) -> bytes:
    """The content of a classifier's file; equal classifiers give equal files."""
    tensors = {key: value.detach().contiguous() for key, value in network.state_dict().items()}
    about = {"format": FORMAT, "card": asdict(card), "sha256": tensors_digest(tensors)}
    # One entry: safetensors writes several in a random order, and equal runs give equal files.
    return save(tensors, {"remuda": json.dumps(about)})


def read_classifier(path: Path) -> tuple[nn.Module, Card]:
    """The classifier in a file of `write_classifier`: the one of `NETWORKS` that its card names."""
    tensors, card = _read(path)
    found = [build for name, build in NETWORKS.items() if SHAPES[name] == card.shape]
    if not found:
        allowed = ", ".join(map(shape_text, SHAPES.values()))
        raise StoreError(
            f"{path}: a classifier of {shape_text(card.shape)} images; allowed: {allowed}"
        )
    network = found[0](card.classes)
    _fill(network, tensors, path)
    return network, card


def read_weights(path: Path, network: nn.Module) -> Card:
    """Load a file of `write_classifier` into a network; anything else is a StoreError."""
    tensors, card = _read(path)
    _fill(network, tensors, path)
    return card


def _read(path: Path) -> tuple[Tensors, Card]:
    """The weights in a file, which match their checksum, and what it says about them."""
    if not path.exists():
        raise StoreError(f"{path}: the classifier's weights are missing; reinstall")
    try:
        tensors, metadata = decode_tensors(read_stored(path, room=ROOM, follow=True))
    except NotTensorsError as error:
        raise StoreError(f"{path}: not a readable safetensors file ({error})") from None
    about = _read_about(path, metadata.get("remuda", ""))
    if any(tensor.dtype != torch.float32 for tensor in tensors.values()):
        raise StoreError(f"{path}: not the weights of a classifier (they are not all float32)")
    if about.sha256 != tensors_digest(tensors):
        raise StoreError(f"{path}: the file is damaged: the weights do not match their checksum")
    return tensors, about.card


def _fill(network: nn.Module, tensors: Tensors, path: Path) -> None:
    try:
        network.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise StoreError(f"{path}: not the weights of this classifier ({reason})") from None
    if not all(bool(value.isfinite().all()) for value in network.state_dict().values()):
        raise StoreError(f"{path}: the weights are not finite")
    network.eval().requires_grad_(False)


def _read_about(path: Path, text: str) -> _About:
    """The card and the checksum, from the one entry of the file's metadata."""
    try:
        version = _Version.model_validate_json(text).format
    except ValidationError:
        raise StoreError(f"{path}: not a remuda classifier (no format version)") from None
    if version != FORMAT:
        raise StoreError(f"{path}: format {version}; this remuda reads format {FORMAT}")
    try:
        return _About.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise StoreError(
            f"{path}: damaged description of the classifier ({key}: {first['msg']})"
        ) from None


def tensors_digest(tensors: Tensors) -> str:
    """A checksum: safetensors itself does not notice changed weights."""
    digest = hashlib.sha256()
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
