"""Arrays as data: from memory, from npy and npz files, and points from text."""

from __future__ import annotations

import array as arrays
import io
import itertools
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from remuda.data.dataset import Dataset, dataset_from_bytes
from remuda.data.formats.base import Format
from remuda.data.formats.npy import MAGIC, Archive, read_npy
from remuda.data.items import StoredItems
from remuda.data.labels import class_labels
from remuda.data.reading import brief, reading
from remuda.data.scaling import PIXELS, Scaling
from remuda.errors import DataError
from remuda.files import check_memory, open_regular

Array = npt.NDArray[Any]

_ZIP_MAGIC = b"PK"
_ITEM_KEYS = ("x", "X", "images", "data", "arr_0")
_LABEL_KEYS = ("y", "labels")
_MOST_COORDINATES = 64  # more columns are probably flattened images
_POINTS_AT_ONCE = 2**16  # converted, so that their float64 take little memory
_LINES_BETWEEN_CHECKS = 2**14
_VALUE_BYTES = 16  # of a number of a text: float64, room to grow, and float32
_LONGEST_LINE = 2**20
_LARGEST_LABEL = 2**53  # above, float64 would confuse labels
_log = logging.getLogger(__name__)


def dataset_from_array(array: Array, labels: Array | None = None, name: str = "array") -> Dataset:
    """A data set from an array: images (N, H, W[, C]) or (N, C, H, W), or points (N, D)."""
    kept = None if labels is None else np.asarray(labels)
    return _from_array(np.asarray(array), kept, name, name, owned=False)


def load_npy(path: Path) -> Dataset:
    """One array in numpy's own format."""
    with reading(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise DataError(f"{path}: is empty (0 bytes)")
        array = read_npy(file, size, str(path))
    return _from_array(array, None, path.name, path, owned=True)


def load_npz(path: Path) -> Dataset:
    """Arrays in an npz file: items under a usual key, and labels if there are any."""
    with reading(path), open_regular(path) as file:
        head = file.read(4)
        if not head:
            raise DataError(f"{path}: is empty (0 bytes)")
        if not head.startswith(_ZIP_MAGIC):
            raise DataError(f"{path}: not an npz file (starts with 0x{head.hex()})")
        archive = Archive(file, path)
        key = archive.first(_ITEM_KEYS)
        if key is None:
            raise DataError(
                f"{path}: holds {archive.names}; "
                f"expected the items under one of {', '.join(_ITEM_KEYS)}"
            )
        items = archive.read(key)
        label_key = archive.first(_LABEL_KEYS)
        labels = None if label_key is None else archive.read(label_key)
    return _from_array(items, labels, path.name, path, owned=True)


def load_points(path: Path) -> Dataset:
    """Points from text: one per line, columns separated by commas or blanks.

    The third of three columns is a label if it holds only integers, as in R15.
    """
    with reading(path), io.TextIOWrapper(open_regular(path), "utf-8-sig") as lines:
        points, is_labelled = _read_lines(lines, path)
    if not is_labelled:
        return _from_array(points, None, path.name, path, owned=True)
    if np.abs(points[:, 2]).max() > _LARGEST_LABEL:
        raise DataError(f"{path}: a label is too large; allowed: at most 2 ** 53")
    return _from_array(points[:, :2], points[:, 2].astype(np.int64), path.name, path, owned=True)


def _read_lines(lines: io.TextIOWrapper, path: Path) -> tuple[npt.NDArray[np.float64], bool]:
    """The numbers in a text, and whether the last of three columns holds only integers."""
    values = arrays.array("d")
    columns, may_be_labels = 0, True
    for number in itertools.count(1):
        line = lines.readline(_LONGEST_LINE)
        if not line:
            break
        if len(line) == _LONGEST_LINE:
            raise DataError(f"{path}: line {number} has over {_LONGEST_LINE - 1} letters")
        fields = line.partition("#")[0].replace(",", " ").split()
        if not fields or (not values and not any(map(_is_number, fields))):
            continue  # blank, a comment, or the heading
        if len(fields) != (columns or len(fields)):
            raise DataError(f"{path}: line {number} has {len(fields)} columns; expected {columns}")
        columns = len(fields)
        _check_columns(columns - (columns == 3), path)
        try:
            values.extend(map(float, fields))
        except ValueError:
            wrong = next(field for field in fields if not _is_number(field))
            raise DataError(
                f"{path}: line {number} holds {brief(wrong)!r}; expected a number"
            ) from None
        may_be_labels = may_be_labels and columns == 3 and fields[2].lstrip("+-").isdecimal()
        if number % _LINES_BETWEEN_CHECKS == 0:
            check_memory(path, _VALUE_BYTES * len(values), f"{len(values) // columns} points")
    if not values:
        raise DataError(f"{path}: holds no points")
    return np.frombuffer(values, np.float64).reshape(-1, columns), may_be_labels


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_array(
    array: Array, labels: Array | None, name: str, where: str | Path, *, owned: bool
) -> Dataset:
    if array.ndim == 0 or 0 in array.shape:
        raise DataError(f"{where}: holds no items (shape {array.shape})")
    if array.dtype.kind not in "iuf":
        raise DataError(f"{where}: holds values of type {array.dtype}; expected numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = int(np.argmin(np.isfinite(array)))
        first = [int(index) for index in np.unravel_index(place, array.shape)]
        raise DataError(f"{where}: holds NaN or infinity, first at index {first}")
    indices: npt.NDArray[np.int64] | None = None
    names: tuple[str, ...] = ()
    if labels is not None:
        with reading(Path(where)):  # words may hold what is no letter
            indices, names = class_labels(labels, array.shape[0], where)
    if array.ndim == 2:
        return _points(array, indices, names, name, where)
    images = _channels_first(array, where)
    if images.dtype == np.uint8:
        return dataset_from_bytes(images, indices, names, name, owned=owned)
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
    floats *= np.float32(2)  # in place: another copy would take as much memory again
    floats -= np.float32(1)
    return floats


def _points(
    array: Array,
    labels: npt.NDArray[np.int64] | None,
    names: tuple[str, ...],
    name: str,
    where: str | Path,
) -> Dataset:
    _check_columns(array.shape[1], where)
    low, high = array.min(axis=0).astype(np.float64), array.max(axis=0).astype(np.float64)
    offset, scale = low / 2 + high / 2, high / 2 - low / 2
    scale[scale == 0] = 1.0  # a constant coordinate becomes 0; the offset restores it
    items = np.empty(array.shape, np.float32)
    for start in range(0, len(array), _POINTS_AT_ONCE):
        part = slice(start, start + _POINTS_AT_ONCE)
        # Rounding must not take points out of the range that a generator's tanh can reach.
        items[part] = np.clip((array[part].astype(np.float64) - offset) / scale, -1, 1)
    return Dataset(
        items=StoredItems(torch.from_numpy(items)),
        labels=None if labels is None else torch.from_numpy(labels),
        label_names=names,
        name=name,
        scaling=Scaling(tuple(scale.tolist()), tuple(offset.tolist())),
    )


def _check_columns(columns: int, where: str | Path) -> None:
    if columns > _MOST_COORDINATES:
        raise DataError(
            f"{where}: points with {columns} coordinates; allowed: at most "
            f"{_MOST_COORDINATES} (images need the shape (N, H, W))"
        )


NPY = Format(".npy", lambda path, _: load_npy(path), (MAGIC,), ("*.npy",))
NPZ = Format(".npz", lambda path, _: load_npz(path), (_ZIP_MAGIC,), ("*.npz",))
TEXT = Format(".csv, .txt", lambda path, _: load_points(path), file_names=("*.csv", "*.txt"))
