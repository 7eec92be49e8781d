"""A data set held once per machine: written to shared memory, mapped by every process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from remuda.data.dataset import Dataset, Modes


def share_dataset(dataset: Dataset, folder: Path) -> None:
    """Lay a data set into a folder in shared memory."""
    dataset.items.numpy().tofile(folder / "items")
    if dataset.labels is not None:
        dataset.labels.numpy().tofile(folder / "labels")
    if dataset.validation is not None:
        dataset.validation.numpy().tofile(folder / "validation")
    modes = dataset.modes
    rest = {
        "shape": list(dataset.items.shape),
        "labelled": dataset.labels is not None,
        "label_names": list(dataset.label_names),
        "name": dataset.name,
        "scale": list(dataset.scale),
        "offset": list(dataset.offset),
        "modes": None if modes is None else [modes.centres.tolist(), modes.spread],
        "validation": 0 if dataset.validation is None else len(dataset.validation),
    }
    (folder / "data.json").write_text(json.dumps(rest))


def open_shared_dataset(folder: Path) -> Dataset:
    """The same data set, its items mapped and not copied."""
    rest = json.loads((folder / "data.json").read_text())
    items = _mapped(folder / "items", rest["shape"])
    validation = None
    if rest["validation"]:
        validation = _mapped(folder / "validation", [rest["validation"], *rest["shape"][1:]])
    modes = None
    if rest["modes"] is not None:
        modes = Modes(torch.tensor(rest["modes"][0]), rest["modes"][1])
    labels = None
    if rest["labelled"]:
        labels = torch.from_numpy(np.fromfile(folder / "labels", dtype=np.int64))
    return Dataset(
        items,
        labels,
        tuple(rest["label_names"]),
        rest["name"],
        tuple(rest["scale"]),
        tuple(rest["offset"]),
        modes,
        validation,
    )


def _mapped(path: Path, shape: Sequence[int]) -> torch.Tensor:
    size = int(np.prod(shape))
    return torch.from_file(str(path), shared=True, size=size, dtype=torch.float32).reshape(*shape)
