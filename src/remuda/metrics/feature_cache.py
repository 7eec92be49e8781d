"""Features of real images on disk, for extractors that need minutes to see them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from remuda.errors import StoreError
from remuda.files import write_atomically
from remuda.metrics.extractors import AnyExtractor, Features

_log = logging.getLogger(__name__)


def cache_path(folder: Path, extractor: AnyExtractor, parts: Iterable[Tensor]) -> Path:
    """The file for these images, named by all the features depend on: images and weights."""
    digest = hashlib.blake2b(digest_size=16)
    shape: tuple[int, ...] = ()
    count = 0
    for part in parts:
        digest.update(part.contiguous().numpy().data)
        shape, count = tuple(part.shape[1:]), count + len(part)
    digest.update(f"{(count, *shape)}|{extractor.identity}|{extractor.scaling}".encode())
    # The first word: what comes after it is for people.
    return folder / f"{extractor.name.split()[0]}-{digest.hexdigest()}.safetensors"


def read_features(path: Path, count: int) -> Features | None:
    """The features of `count` images; None where there is no such file, or it is damaged."""
    try:
        tensors = load(path.read_bytes())
        found = Features(tensors["features"], tensors["logits"])
    except (OSError, KeyError, SafetensorError):
        return None
    fits = all(
        part.ndim == 2 and len(part) == count and part.dtype == torch.float32
        for part in (found.features, found.logits)
    )
    return found if fits and bool(found.features.isfinite().all()) else None


def write_features(path: Path, features: Features) -> None:
    tensors = {"features": features.features, "logits": features.logits}
    try:
        write_atomically(path, save({name: part.contiguous() for name, part in tensors.items()}))
    except StoreError as error:
        # The disk is full, or another process is writing the same file. That only costs time.
        _log.warning("the features of the real images are not cached: %s", error)
