"""The idx format of MNIST and its relatives (http://yann.lecun.com/exdb/mnist), plain or gzip."""

from __future__ import annotations

import gzip
import io
import math
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remuda.data.dataset import Dataset, dataset_from_bytes
from remuda.data.formats.base import Format
from remuda.data.labels import class_labels
from remuda.data.reading import Stream, fill, reading
from remuda.errors import DataError
from remuda.files import check_memory, open_regular

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08
_MOST_INFLATION = 1032  # of what deflate packs: no file inflates to more times its size
_KINDS = {1: "labels (idx1)", 3: "images (idx3)"}


@dataclass(frozen=True)
class _Source:
    """Where an idx file is read from, and the most that it can hold."""

    stream: Stream
    size: int
    where: str | Path


def read_images(path: Path, limit: int | None = None) -> npt.NDArray[np.uint8]:
    """Images of an idx3 file: (N, H, W), and no more of the file than the limit asks for."""
    with _opened(path) as source:
        return _items(source, _shape(source, 3), limit)


def read_labels(path: Path, images: Path | None = None) -> npt.NDArray[np.uint8]:
    """Labels of an idx1 file: (N,), as many as there are images in the file beside it."""
    with _opened(path) as source:
        (count,) = _shape(source, 1)
        if images is not None:
            items = _count(images)
            if count != items:
                raise DataError(f"{path}: {count} labels for {items} items")
        return _items(source, (count,))


def load_idx(path: Path, limit: int | None = None) -> Dataset:
    """An idx image file, with the label file of the usual name beside it if there is one."""
    images = read_images(path, limit)[:, None]
    beside = labels_beside(path)
    if beside is None:
        return dataset_from_bytes(images, None, (), path.name, owned=True)
    labels = read_labels(beside, path)
    indices, names = class_labels(labels, len(labels), beside)
    return dataset_from_bytes(images, indices[: len(images)], names, path.name, owned=True)


def labels_beside(images: Path) -> Path | None:
    """…-labels-idx1-ubyte(.gz) for …-images-idx3-ubyte(.gz), if it exists."""
    if "-images-idx3-ubyte" not in images.name:
        return None
    name = images.name.replace("-images-idx3-ubyte", "-labels-idx1-ubyte")
    plain = name.removesuffix(".gz")
    for candidate in (name, plain, plain + ".gz"):
        if images.with_name(candidate).exists():
            return images.with_name(candidate)
    return None


def parse_idx(data: bytes, where: str | Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """The array of unsigned bytes in an idx file, its header checked against its size."""
    source = _Source(io.BytesIO(data), len(data), where)
    return _items(source, _shape(source, dimensions))


def _shape(source: _Source, dimensions: int) -> tuple[int, ...]:
    """What the header declares."""
    where, stream = source.where, source.stream
    head = stream.read(4)
    if not head:
        raise DataError(f"{where}: is empty")
    if head[:2] != b"\0\0" or len(head) < 4:
        raise DataError(f"{where}: not an idx file (starts with 0x{head.hex()})")
    if head[2] != _UNSIGNED_BYTE:
        raise DataError(f"{where}: idx values of type 0x{head[2]:02x}; allowed: bytes (0x08)")
    if head[3] != dimensions:
        found = _KINDS.get(head[3], f"{head[3]}-dimensional data")
        raise DataError(f"{where}: holds {found}; expected {_KINDS[dimensions]}")
    sides = stream.read(4 * dimensions)
    if len(sides) < 4 * dimensions:
        raise DataError(f"{where}: truncated within the header ({4 + len(sides)} bytes)")
    shape = struct.unpack(f">{dimensions}I", sides)
    if math.prod(shape) == 0:
        raise DataError(f"{where}: holds no items (shape {shape})")
    needed, header = math.prod(shape), 4 + 4 * dimensions
    if header + needed > source.size:
        raise DataError(
            f"{where}: truncated: shape {shape} needs {needed} bytes, "
            f"found at most {source.size - header}"
        )
    return shape


def _items(
    source: _Source, shape: tuple[int, ...], limit: int | None = None
) -> npt.NDArray[np.uint8]:
    """All items, or the first ones: what lies behind them is not even inflated."""
    where = source.where
    count = shape[0] if limit is None else min(limit, shape[0])
    wanted = count * math.prod(shape[1:])
    check_memory(where, wanted, f"items of shape {(count, *shape[1:])}")
    items = np.empty(wanted, np.uint8)
    found = fill(items, source.stream)
    if found < wanted:
        raise DataError(
            f"{where}: truncated: shape {shape} needs {math.prod(shape)} bytes, found {found}"
        )
    if count == shape[0] and source.stream.read(1):
        raise DataError(f"{where}: too long: shape {shape} needs {wanted} bytes, found more")
    return items.reshape(count, *shape[1:])


def _count(path: Path) -> int:
    """The number of images in an idx3 file."""
    with _opened(path) as source:
        return _shape(source, 3)[0]


@contextmanager
def _opened(path: Path) -> Iterator[_Source]:
    """The content of a file, inflated as it is read."""
    with reading(path), open_regular(path) as file:
        head = file.read(4)
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if not head:
            raise DataError(f"{path}: is empty (0 bytes)")
        if head.startswith(_GZIP_MAGIC):
            with gzip.GzipFile(fileobj=file) as inflated:
                yield _Source(inflated, size * _MOST_INFLATION, path)
        elif path.suffix == ".gz":
            raise DataError(f"{path}: named .gz but not a gzip file (starts with 0x{head.hex()})")
        else:
            yield _Source(file, size, path)


IDX = Format(
    "idx (also .gz)",
    lambda path, settings: load_idx(path, settings.limit),
    first_bytes=(b"\0\0", _GZIP_MAGIC),
    file_names=("*.gz", "*idx*"),
)
