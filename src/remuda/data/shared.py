"""A data set held once per machine: written to shared memory, mapped by every process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from remuda.config.records import Record, read_record
from remuda.data.dataset import Dataset, Modes
from remuda.data.scaling import Scaling

_DESCRIPTION = "data.json"


class _Description(Record):
    """All of a data set except its tensors."""

    shape: tuple[int, ...]
    labelled: bool
    label_names: tuple[str, ...]
    name: str
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    modes: tuple[list[list[float]], float] | None  # centres and spread
    validation: int  # number of held-out items


def share_dataset(dataset: Dataset, folder: Path) -> None:
    """Write a data set to a folder in shared memory."""
    dataset.items.numpy().tofile(folder / "items")
    if dataset.labels is not None:
        dataset.labels.numpy().tofile(folder / "labels")
    if dataset.validation is not None:
        dataset.validation.numpy().tofile(folder / "validation")
    if dataset.validation_labels is not None:
        dataset.validation_labels.numpy().tofile(folder / "validation-labels")
    modes = dataset.modes
    description = _Description(
        shape=tuple(dataset.items.shape),
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
        validation = _mapped(folder / "validation", (found.validation, *found.shape[1:]))
    if found.modes is not None:
        centres, spread = found.modes
        modes = Modes(torch.tensor(centres), spread)
    if found.labelled:
        labels = _labels(folder / "labels")
        validation_labels = _labels(folder / "validation-labels") if found.validation else None
    return Dataset(
        _mapped(folder / "items", found.shape),
        labels,
        found.label_names,
        found.name,
        Scaling(found.scale, found.offset),
        modes,
        validation,
        validation_labels,
    )


def _labels(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.fromfile(path, dtype=np.int64))


def _mapped(path: Path, shape: Sequence[int]) -> torch.Tensor:
    size = int(np.prod(shape))
    return torch.from_file(str(path), shared=True, size=size, dtype=torch.float32).reshape(*shape)
