"""The idx format of MNIST and its relatives (http://yann.lecun.com/exdb/mnist), plain or gzip."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remuda.data.dataset import Dataset, dataset_from_bytes
from remuda.data.formats.base import Format
from remuda.data.labels import class_labels
from remuda.data.reading import read_bytes, reading
from remuda.errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08
_KINDS = {1: "labels (idx1)", 3: "images (idx3)"}


def read_images(path: Path) -> npt.NDArray[np.uint8]:
    """Images of an idx3 file: (N, H, W)."""
    return parse_idx(_contents(path), path, dimensions=3)


def read_labels(path: Path) -> npt.NDArray[np.uint8]:
    """Labels of an idx1 file: (N,)."""
    return parse_idx(_contents(path), path, dimensions=1)


def load_idx(path: Path, limit: int | None = None) -> Dataset:
    """An idx image file, with the label file of the usual name beside it if there is one."""
    images = read_images(path)[:, None]
    beside = labels_beside(path)
    if beside is None:
        return dataset_from_bytes(images, None, (), path.name, limit)
    labels, names = class_labels(read_labels(beside), len(images), beside)
    return dataset_from_bytes(images, labels, names, path.name, limit)


def labels_beside(images: Path) -> Path | None:
    """…-labels-idx1-ubyte(.gz) for …-images-idx3-ubyte(.gz), if it exists."""
    if "-images-idx3-ubyte" not in images.name:
        return None
    name = images.name.replace("-images-idx3-ubyte", "-labels-idx1-ubyte")
    plain = name.removesuffix(".gz")
    for candidate in (name, plain, plain + ".gz"):
        if images.with_name(candidate).is_file():
            return images.with_name(candidate)
    return None


def parse_idx(data: bytes, where: str | Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """The array of unsigned bytes in an idx file, its header checked against its size."""
    if not data:
        raise DataError(f"{where}: is empty")
    if data[:2] != b"\0\0" or len(data) < 4:
        raise DataError(f"{where}: not an idx file (starts with 0x{data[:4].hex()})")
    if data[2] != _UNSIGNED_BYTE:
        raise DataError(f"{where}: idx values of type 0x{data[2]:02x}; allowed: bytes (0x08)")
    if data[3] != dimensions:
        found = _KINDS.get(data[3], f"{data[3]}-dimensional data")
        raise DataError(f"{where}: holds {found}; expected {_KINDS[dimensions]}")
    header = 4 + 4 * dimensions
    if len(data) < header:
        raise DataError(f"{where}: truncated within the header ({len(data)} bytes)")
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    promised, found_bytes = math.prod(shape), len(data) - header
    if promised == 0:
        raise DataError(f"{where}: holds no items (shape {shape})")
    if found_bytes != promised:
        wrong = "truncated" if found_bytes < promised else "too long"
        raise DataError(
            f"{where}: {wrong}: shape {shape} needs {promised} bytes, found {found_bytes}"
        )
    return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape)


def _contents(path: Path) -> bytes:
    data = read_bytes(path)
    if data.startswith(_GZIP_MAGIC):
        with reading(path):
            return gzip.decompress(data)
    if path.suffix == ".gz":
        raise DataError(f"{path}: named .gz but not a gzip file (starts with 0x{data[:4].hex()})")
    return data


IDX = Format(
    "idx (also .gz)",
    lambda path, settings: load_idx(path, settings.limit),
    first_bytes=(b"\0\0", _GZIP_MAGIC),
    file_names=("*.gz", "*idx*"),
)
