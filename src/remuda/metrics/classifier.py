"""The small classifiers whose features and logits are scored, and the files they live in.

One for digits, with 1.3 million multiplications per image, and one for CIFAR-10, with ten million:
scoring a thousand images must cost far less than training a generator for a round. Trained by
`scripts/train_digits_classifier.py` and `scripts/train_cifar_classifier.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from pydantic import BaseModel, ValidationError
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from remuda.errors import StoreError

FORMAT = 1


class Classifier(nn.Module):
    """Images in [-1, 1] to 64 features and 10 logits."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        self.head = nn.Linear(64, 10)
        # Three times as fast on a CPU as the default layout.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stub lacks it

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(images)
        return features, self.head(features)


class DigitsNetwork(Classifier):
    """For digits, 28x28."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(16, 24, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(24, 48, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            # Leaky, because plain ones left a quarter of the features dead.
            *(nn.Flatten(), nn.Linear(48 * 3 * 3, 64), nn.LeakyReLU(0.1)),
        )


class CifarNetwork(Classifier):
    """For colour images, 32x32."""

    def __init__(self) -> None:
        # Trained with batch norm, which is folded into the weights before they are saved.
        super().__init__(
            *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(96, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128 * 2 * 2, 64), nn.LeakyReLU(0.1)),
        )


# The classifiers whose weights are in `weights`, by file name.
NETWORKS: dict[str, Callable[[], Classifier]] = {"digits": DigitsNetwork, "cifar": CifarNetwork}


@dataclass(frozen=True)
class Card:
    """What must be known about a classifier to read a figure made with it."""

    name: str
    scaling: str
    accuracy: float
    classes: int
    shape: tuple[int, ...]


class _Version(BaseModel):
    """Read first: another format may hold anything else."""

    format: int


class _About(_Version):
    """The one entry of a file's metadata."""

    card: Card
    sha256: str


def write_classifier(path: Path, network: nn.Module, card: Card) -> None:
    """Save the weights with their card; reading checks both."""
    tensors = {key: value.detach().contiguous() for key, value in network.state_dict().items()}
    about = {"format": FORMAT, "card": asdict(card), "sha256": tensors_digest(tensors)}
    # One entry: safetensors writes several in a random order, and equal runs give equal files.
    metadata = {"remuda": json.dumps(about)}
    unfinished = path.with_name(path.name + ".part")
    # Not save_file: it makes files that only their owner may read, and these get installed.
    unfinished.write_bytes(save(tensors, metadata))
    unfinished.replace(path)


def read_classifier(path: Path, name: str = "digits") -> tuple[nn.Module, Card]:
    """A classifier of `NETWORKS` with the weights of a file, and its card."""
    network = NETWORKS[name]()
    return network, read_weights(path, network)


def read_weights(path: Path, network: nn.Module) -> Card:
    """Load a file of `write_classifier`; anything but exactly such a file is a StoreError."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise StoreError(f"{path}: the classifier's weights are missing; reinstall") from None
    except (SafetensorError, OSError) as error:
        raise StoreError(f"{path}: not a readable safetensors file ({error})") from None
    about = _read_about(path, metadata.get("remuda", ""))
    if about.sha256 != tensors_digest(tensors):
        raise StoreError(f"{path}: the file is damaged: the weights do not match their checksum")
    try:
        network.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        raise StoreError(f"{path}: not the weights of this classifier ({error})") from None
    network.eval().requires_grad_(False)
    return about.card


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


def tensors_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """A checksum: safetensors itself does not notice changed weights."""
    digest = hashlib.sha256()
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
