"""Checks that make a file's labels indices into a tuple of names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.errors import DataError


def check_labels(
    labels: npt.NDArray[Any], items: int, where: str | Path, classes: int | None = None
) -> None:
    """Refuse labels that do not fit: another count than the items, no integers, out of range."""
    if labels.ndim != 1:
        raise DataError(f"{where}: labels have shape {labels.shape}; expected one per item")
    if len(labels) != items:
        raise DataError(f"{where}: {len(labels)} labels for {items} items")
    if labels.dtype.kind not in "iu":
        raise DataError(f"{where}: labels are {labels.dtype}; expected integers")
    wrong = labels < 0 if classes is None else (labels < 0) | (labels >= classes)
    if wrong.any():
        first = int(np.argmax(wrong))
        allowed = "0 or more" if classes is None else f"0 to {classes - 1}"
        raise DataError(f"{where}: label {labels[first]} of item {first}; allowed: {allowed}")


def class_labels(
    labels: npt.NDArray[Any], items: int, where: str | Path
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Labels of a file without names: indices, and the file's own numbers as the names.

    Numbers that do not occur get no class, so labels 1 to 15 are 15 classes and not 16.
    """
    check_labels(labels, items, where)
    numbers, indices = np.unique(labels, return_inverse=True)
    return indices.astype(np.int64), tuple(str(number) for number in numbers)
