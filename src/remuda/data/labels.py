"""Labels: from what a file holds, checked, to indices into a tuple of names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.config import suggest
from remuda.data.reading import brief
from remuda.errors import ConfigError, DataError
from remuda.files import check_memory

_NAME_BYTES = 64  # of a short text in memory


def check_labels(
    labels: npt.NDArray[Any], items: int, where: str | Path, classes: int | None = None
) -> None:
    """Refuse labels of the wrong number, type or range."""
    if labels.ndim != 1:
        raise DataError(f"{where}: labels have shape {labels.shape}; expected one per item")
    if len(labels) != items:
        raise DataError(f"{where}: {len(labels)} labels for {items} items")
    if labels.dtype.kind not in "iu":
        raise DataError(f"{where}: labels are {labels.dtype}; expected integers or words")
    wrong = labels < 0 if classes is None else (labels < 0) | (labels >= classes)
    if wrong.any():
        first = int(np.argmax(wrong))
        allowed = "0 or more" if classes is None else f"0 to {classes - 1}"
        raise DataError(f"{where}: label {labels[first]} of item {first}; allowed: {allowed}")


def find_label(label: int | str | None, names: Sequence[str], key: str, owner: str) -> int:
    """The index of a label given by name or, unless names are numbers (R15: 1 to 15), by index."""
    text = str(label)
    if text in names:
        return list(names).index(text)
    named_by_number = all(name.isdecimal() for name in names)
    if text.isdecimal() and int(text) < len(names) and not named_by_number:
        return int(text)
    hint = suggest(text, names) or ";"
    raise ConfigError(f"{key} is not a label of {owner}{hint} allowed: {', '.join(names)}")


def class_labels(
    labels: npt.NDArray[Any], items: int, where: str | Path
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The labels in a file, numbers or words, as indices and the names these refer to.

    Only numbers that occur become classes, so labels 1 to 15 are 15 classes, not 16.
    """
    named = labels.dtype.kind == "U"
    check_labels(np.zeros(labels.shape, np.int64) if named else labels, items, where)
    check_memory(where, 2 * labels.nbytes + 24 * items, f"{items} labels")  # to sort them
    found, indices = np.unique(labels, return_inverse=True)
    check_memory(
        where, found.nbytes + _NAME_BYTES * len(found), f"the names of {len(found)} labels"
    )
    return indices.astype(np.int64, copy=False), check_names((str(name) for name in found), where)


def check_names(names: Iterable[str], where: str | Path) -> tuple[str, ...]:
    """The names of classes, all of which can be written into a run's files."""
    checked = tuple(names)
    for name in checked:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise DataError(f"{where}: class name {brief(ascii(name))} is not text") from None
    return checked
