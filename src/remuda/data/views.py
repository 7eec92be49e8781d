"""The part of the data that a cell sees: all, a share (data dieting), or one label."""

from __future__ import annotations

from functools import lru_cache

import torch

from remuda.config import DataSettings
from remuda.data.dataset import Dataset
from remuda.data.labels import find_label
from remuda.errors import ConfigError, DataError
from remuda.streams import choice_stream


def view_indices(
    settings: DataSettings, dataset: Dataset, *, seed: int, cell: int, cells: int
) -> torch.Tensor:
    """Indices of the items that `cell`, one of `cells`, trains on."""
    if settings.view == "share":
        return _share(settings, len(dataset), seed, cell, cells)
    if settings.view == "label":
        return _of_label(settings.label, dataset)
    return _everything(len(dataset))


@lru_cache(maxsize=4)
def _everything(items: int) -> torch.Tensor:
    """One tensor for all cells: a thousand copies would not fit beside the data."""
    return torch.arange(items)


def _share(settings: DataSettings, items: int, seed: int, cell: int, cells: int) -> torch.Tensor:
    count = max(1, int(settings.share * items))
    if settings.overlap:
        order = choice_stream(seed, cell, 0, "data-share").permutation(items)
        return torch.from_numpy(order[:count].copy())  # or the whole order would be kept
    if count * cells > items:
        raise ConfigError(
            f"data.share={settings.share} without overlap needs {count} items for each of "
            f"{cells} cells, but there are {items}; allowed: shares of at most "
            f"{items // cells} items, or data.overlap=true"
        )
    # Every process makes the same order and takes its cells' slices, without asking the others.
    return _partition(items, seed)[cell * count : (cell + 1) * count]


@lru_cache(maxsize=1)
def _partition(items: int, seed: int) -> torch.Tensor:
    """One order for all cells, as each would make the same and keep all of it."""
    return torch.from_numpy(choice_stream(seed, 0, 0, "data-partition").permutation(items))


def _of_label(label: int | str | None, dataset: Dataset) -> torch.Tensor:
    if dataset.labels is None:
        raise ConfigError(f"data.view=label: {dataset.name} has no labels; allowed: all, share")
    wanted = find_label(label, dataset.label_names, f"data.label={label}", dataset.name)
    indices = torch.nonzero(dataset.labels == wanted).flatten()
    if len(indices) == 0:
        raise DataError(f"{dataset.name}: no item has data.label={label}")
    return indices
