"""The form in which training data reach the rest of remuda."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from remuda.data.items import StoredItems
from remuda.data.scaling import PIXELS, Scaling
from remuda.streams import choice_stream


@dataclass(frozen=True, eq=False)
class Modes:
    """Where the points of a synthetic data set lie, in the data's own units."""

    centres: torch.Tensor  # float32 (modes, D)
    spread: float  # standard deviation of every mode in every coordinate


@dataclass(frozen=True, eq=False)
class Dataset:
    """All items of a data set in memory. `items[indices]` are floats in [-1, 1], as networks see
    them; `scaling` gives the raw values back.
    """

    items: StoredItems
    labels: torch.Tensor | None  # int64 (N,), each an index into label_names
    label_names: tuple[str, ...]  # () without labels
    name: str
    scaling: Scaling
    modes: Modes | None = None  # where they are known
    validation: StoredItems | None = None  # items held out: no cell trains on them
    validation_labels: torch.Tensor | None = None  # theirs, where there are labels

    def __len__(self) -> int:
        return len(self.items)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one item."""
        return tuple(self.items.shape[1:])

    @property
    def is_images(self) -> bool:
        return len(self.items.shape) == 4

    @cached_property
    def fingerprint(self) -> str:
        """A hash of items and labels: equal for two runs exactly when they saw the same data."""
        digest = hashlib.blake2b(digest_size=16)
        self.items.add_to(digest)
        if self.labels is not None:
            digest.update(self.labels.numpy().data)
        if self.validation is not None:
            self.validation.add_to(digest)
        return digest.hexdigest()

    def first(self, limit: int | None) -> Dataset:
        """The first `limit` items, copied so that the rest can be freed."""
        if limit is None or limit >= len(self):
            return self
        return self.take(torch.arange(limit))

    def some(self, limit: int | None, seed: int) -> Dataset:
        """`limit` items at random, in their old order: points may come sorted by mode."""
        if limit is None or limit >= len(self):
            return self
        return self.take(_random_indices(len(self), limit, seed, "data-limit"))

    def hold_out(self, count: int, seed: int) -> Dataset:
        """Set `count` random items aside for validation; the seed alone decides which."""
        held = _random_indices(len(self), count, seed, "data-validation")
        kept = torch.ones(len(self), dtype=torch.bool)
        kept[held] = False
        rest = self.take(torch.nonzero(kept).flatten())
        labels = None if self.labels is None else self.labels[held]
        return rest.replace(validation=self.items.take(held), validation_labels=labels)

    def take(self, indices: torch.Tensor) -> Dataset:
        """Copies of the items at these indices; modes and held-out items stay."""
        labels = None if self.labels is None else self.labels[indices]
        return self.replace(items=self.items.take(indices), labels=labels)

    def replace(self, **changes: Any) -> Dataset:
        return dataclasses.replace(self, **changes)


def _random_indices(items: int, count: int, seed: int, purpose: str) -> torch.Tensor:
    chosen = choice_stream(seed, 0, 0, purpose).permutation(items)[:count]
    return torch.from_numpy(np.sort(chosen))


def dataset_from_bytes(
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[Any] | None,
    label_names: tuple[str, ...],
    name: str,
    limit: int | None = None,
    *,
    owned: bool = False,
) -> Dataset:
    """A data set from images as files hold them: bytes of shape (N, C, H, W).

    They are copied unless they are `owned`, by nobody else and as a whole: an array of the caller's
    may change, and what is only a part of an array would keep all of it.
    """
    if not owned or len(images[:limit]) < len(images):
        images = np.array(images[:limit], order="C")
    items = StoredItems(torch.from_numpy(np.ascontiguousarray(images)))
    kept = None if labels is None else torch.from_numpy(labels[:limit].astype(np.int64))
    return Dataset(items, kept, label_names if kept is not None else (), name, PIXELS)
