"""A data set held once per machine: written to shared memory, mapped by every process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from remuda.data.dataset import Dataset


def share_dataset(dataset: Dataset, folder: Path) -> None:
    """Lay a data set into a folder in shared memory."""
    dataset.items.numpy().tofile(folder / "items")
    if dataset.labels is not None:
        dataset.labels.numpy().tofile(folder / "labels")
    rest = {
        "shape": list(dataset.items.shape),
        "labelled": dataset.labels is not None,
        "label_names": list(dataset.label_names),
        "name": dataset.name,
        "scale": list(dataset.scale),
        "offset": list(dataset.offset),
    }
    (folder / "data.json").write_text(json.dumps(rest))


def open_shared_dataset(folder: Path) -> Dataset:
    """The same data set, its items mapped and not copied."""
    rest = json.loads((folder / "data.json").read_text())
    shape = tuple(rest["shape"])
    items = torch.from_file(
        str(folder / "items"), shared=True, size=int(np.prod(shape)), dtype=torch.float32
    ).reshape(shape)
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
    )
