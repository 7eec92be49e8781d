"""Arrays as data: from memory, from npy and npz files, and points from text."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from remuda.data.dataset import Dataset, dataset_from_bytes
from remuda.data.formats.base import Format
from remuda.data.items import StoredItems
from remuda.data.labels import class_labels
from remuda.data.reading import read_bytes, reading
from remuda.data.scaling import PIXELS, Scaling
from remuda.errors import DataError

Array = npt.NDArray[Any]

_NPY_MAGIC = b"\x93NUMPY"
_ZIP_MAGIC = b"PK"
_ITEM_KEYS = ("x", "X", "images", "data", "arr_0")
_LABEL_KEYS = ("y", "labels")
_MOST_COORDINATES = 64  # more columns are probably flattened images
_log = logging.getLogger(__name__)


def dataset_from_array(array: Array, labels: Array | None = None, name: str = "array") -> Dataset:
    """A data set from an array: images (N, H, W[, C]) or (N, C, H, W), or points (N, D)."""
    return _from_array(np.asarray(array), None if labels is None else np.asarray(labels), name)


def load_npy(path: Path) -> Dataset:
    """One array in numpy's own format."""
    data = read_bytes(path)
    if not data.startswith(_NPY_MAGIC):
        raise DataError(f"{path}: not an npy file (starts with 0x{data[:4].hex()})")
    with reading(path):
        array = np.load(io.BytesIO(data), allow_pickle=False)
    return _from_array(array, None, path.name, where=path)


def load_npz(path: Path) -> Dataset:
    """Arrays in an npz file: items under a usual key, and labels if there are any."""
    data = read_bytes(path)
    if not data.startswith(_ZIP_MAGIC):
        raise DataError(f"{path}: not an npz file (starts with 0x{data[:4].hex()})")
    with reading(path), np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        key = next((key for key in _ITEM_KEYS if key in arrays), None)
        if key is None:
            raise DataError(
                f"{path}: holds {', '.join(arrays.files) or 'nothing'}; "
                f"expected the items under one of {', '.join(_ITEM_KEYS)}"
            )
        items = arrays[key]
        label_key = next((key for key in _LABEL_KEYS if key in arrays), None)
        labels = None if label_key is None else arrays[label_key]
    return _from_array(items, labels, path.name, where=path)


def load_points(path: Path) -> Dataset:
    """Points from text: one per line, columns separated by commas or blanks.

    The third of three columns is a label if it holds only integers, as in R15.
    """
    with reading(path):
        text = read_bytes(path).decode("utf-8-sig")
    rows: list[list[str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.partition("#")[0].replace(",", " ").split()
        if not fields or (not rows and not any(map(_is_number, fields))):
            continue  # blank, a comment, or the heading
        if rows and len(fields) != len(rows[0]):
            raise DataError(
                f"{path}: line {number} has {len(fields)} columns; expected {len(rows[0])}"
            )
        wrong = next((field for field in fields if not _is_number(field)), None)
        if wrong is not None:
            raise DataError(f"{path}: line {number} holds {wrong!r}; expected a number")
        rows.append(fields)
    if not rows:
        raise DataError(f"{path}: holds no points")
    labels = None
    if len(rows[0]) == 3 and all(row[2].lstrip("+-").isdecimal() for row in rows):
        with reading(path):
            labels = np.array([int(row.pop()) for row in rows], dtype=np.int64)
    points = np.array([[float(field) for field in row] for row in rows])
    return _from_array(points, labels, path.name, where=path)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_array(
    array: Array, labels: Array | None, name: str, where: str | Path | None = None
) -> Dataset:
    where = name if where is None else where
    if array.ndim == 0 or 0 in array.shape:
        raise DataError(f"{where}: holds no items (shape {array.shape})")
    if array.dtype.kind not in "iuf":
        raise DataError(f"{where}: holds values of type {array.dtype}; expected numbers")
    if not np.isfinite(array).all():
        first = np.argwhere(~np.isfinite(array))[0].tolist()
        raise DataError(f"{where}: holds NaN or infinity, first at index {first}")
    indices, names = (None, ()) if labels is None else class_labels(labels, array.shape[0], where)
    if array.ndim == 2:
        return _points(array, indices, names, name, where)
    images = _channels_first(array, where)
    if images.dtype == np.uint8:
        return dataset_from_bytes(images, indices, names, name)
    items = StoredItems(torch.from_numpy(_in_range(images, where)))
    tensor = None if indices is None else torch.from_numpy(indices)
    return Dataset(items, tensor, names, name, PIXELS)


def _channels_first(array: Array, where: str | Path) -> Array:
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 4 and array.shape[1] in (1, 3):
        return array
    if array.ndim == 4 and array.shape[3] in (1, 3):
        return array.transpose(0, 3, 1, 2)
    raise DataError(
        f"{where}: shape {array.shape}; allowed: (N, D) points, (N, H, W) grey images, "
        "(N, C, H, W) or (N, H, W, C) images with 1 or 3 channels"
    )


def _in_range(images: Array, where: str | Path) -> npt.NDArray[np.float32]:
    low, high = images.min(), images.max()
    if images.dtype.kind != "f" or low < -1 or high > 1:
        raise DataError(
            f"{where}: {images.dtype} pixels from {low} to {high}; "
            "allowed: uint8, or floats in [0, 1] or [-1, 1]"
        )
    floats = images.astype(np.float32, order="C")
    if low < 0:
        _log.info("%s: pixels from %g to %g, taken to be in [-1, 1]", where, low, high)
        return floats
    _log.info("%s: pixels from %g to %g, taken to be in [0, 1]", where, low, high)
    return floats * np.float32(2) - np.float32(1)


def _points(
    array: Array,
    labels: npt.NDArray[np.int64] | None,
    names: tuple[str, ...],
    name: str,
    where: str | Path,
) -> Dataset:
    if array.shape[1] > _MOST_COORDINATES:
        raise DataError(
            f"{where}: points with {array.shape[1]} coordinates; allowed: at most "
            f"{_MOST_COORDINATES} (images need the shape (N, H, W))"
        )
    raw = array.astype(np.float64)
    low, high = raw.min(axis=0), raw.max(axis=0)
    offset, scale = low / 2 + high / 2, high / 2 - low / 2
    scale[scale == 0] = 1.0  # a constant coordinate becomes 0; the offset restores it
    # Rounding must not take points out of the range that a generator's tanh can reach.
    items = np.clip((raw - offset) / scale, -1, 1).astype(np.float32)
    return Dataset(
        items=StoredItems(torch.from_numpy(items)),
        labels=None if labels is None else torch.from_numpy(labels),
        label_names=names,
        name=name,
        scaling=Scaling(tuple(scale.tolist()), tuple(offset.tolist())),
    )


NPY = Format(".npy", lambda path, _: load_npy(path), (_NPY_MAGIC,), ("*.npy",))
NPZ = Format(".npz", lambda path, _: load_npz(path), (_ZIP_MAGIC,), ("*.npz",))
TEXT = Format(".csv, .txt", lambda path, _: load_points(path), file_names=("*.csv", "*.txt"))
