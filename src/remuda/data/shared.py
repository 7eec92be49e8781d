"""A data set held once per machine: written to shared memory, mapped by every process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from remuda.config.records import Record, read_record
from remuda.data.dataset import Dataset, Modes
from remuda.data.items import StoredItems
from remuda.data.scaling import Scaling
from remuda.errors import DataError

_DESCRIPTION = "dataset.json"  # `data.json` was that of floats, which a killed job may have left


class _Description(Record):
    """All of a data set except its tensors."""

    shape: tuple[int, ...]
    stored: Literal["uint8", "float32"]
    fingerprint: str  # known to who shares it: nobody else needs to read all the data for it
    labelled: bool
    label_names: tuple[str, ...]
    name: str
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    modes: tuple[list[list[float]], float] | None  # centres and spread
    validation: int  # number of held-out items


def share_dataset(dataset: Dataset, folder: Path) -> None:
    """Write a data set to a folder in shared memory."""
    dataset.items.stored.numpy().tofile(folder / "items")
    if dataset.labels is not None:
        dataset.labels.numpy().tofile(folder / "labels")
    if dataset.validation is not None:
        dataset.validation.stored.numpy().tofile(folder / "validation")
    if dataset.validation_labels is not None:
        dataset.validation_labels.numpy().tofile(folder / "validation-labels")
    modes = dataset.modes
    description = _Description(
        shape=tuple(dataset.items.shape),
        stored="uint8" if dataset.items.stored.dtype == torch.uint8 else "float32",
        fingerprint=dataset.fingerprint,
        labelled=dataset.labels is not None,
        label_names=dataset.label_names,
        name=dataset.name,
        scale=dataset.scaling.scale,
        offset=dataset.scaling.offset,
        modes=None if modes is None else (modes.centres.tolist(), modes.spread),
        validation=0 if dataset.validation is None else len(dataset.validation),
    )
    (folder / _DESCRIPTION).write_text(description.model_dump_json())


def open_shared_dataset(folder: Path) -> Dataset:
    """The same data set, its items mapped and not copied."""
    found = read_record(folder / _DESCRIPTION, _Description, "description of shared data")
    validation = validation_labels = labels = modes = None
    if found.validation:
        shape = (found.validation, *found.shape[1:])
        validation = StoredItems(_mapped(folder / "validation", shape, found.stored))
    if found.modes is not None:
        centres, spread = found.modes
        modes = Modes(torch.tensor(centres), spread)
    if found.labelled:
        labels = _mapped(folder / "labels", found.shape[:1], "int64")
    if found.labelled and found.validation:
        path = folder / "validation-labels"
        validation_labels = _mapped(path, (found.validation,), "int64")
    dataset = Dataset(
        StoredItems(_mapped(folder / "items", found.shape, found.stored)),
        labels,
        found.label_names,
        found.name,
        Scaling(found.scale, found.offset),
        modes,
        validation,
        validation_labels,
    )
    vars(dataset)["fingerprint"] = found.fingerprint  # where the cached property would put it
    return dataset


def _mapped(path: Path, shape: Sequence[int], kind: str) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, kind)
    wanted, there = math.prod(shape) * dtype.itemsize, path.stat().st_size
    if there != wanted:  # which torch would fill up with zeros
        raise DataError(f"{path}: {there:,} bytes where {wanted:,} were shared")
    flat = torch.from_file(str(path), shared=True, size=math.prod(shape), dtype=dtype)
    return flat.reshape(*shape)
