"""Small files in the formats the loaders read, written by the tests themselves."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.config import DataSettings
from remuda.data import Dataset, load_dataset

Bytes = npt.NDArray[np.uint8]
CIFAR_PIXELS = 3 * 32 * 32


def load(source: Path | str, **settings: Any) -> Dataset:
    return load_dataset(DataSettings(source=str(source), **settings))


def random_bytes(*shape: int) -> Bytes:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def idx_bytes(array: Bytes) -> bytes:
    header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def write_mnist(folder: Path, part: str = "train", count: int = 12, compress: bool = True) -> Bytes:
    """A split of MNIST with few images; labels count 0 to 9 and again."""
    folder.mkdir(parents=True, exist_ok=True)
    images = random_bytes(count, 28, 28)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        data = idx_bytes(array)
        path = folder / f"{part}-{name}{'.gz' if compress else ''}"
        path.write_bytes(gzip.compress(data, mtime=0) if compress else data)
    return images


def cifar_record(labels: tuple[int, ...], pixels: Bytes) -> bytes:
    return bytes(labels) + pixels.tobytes()


def write_pickle(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))
