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


def write_cifar100(folder: Path, train: int = 4, test: int = 2) -> Path:
    """CIFAR-100 as it is published, each label with so many images of a colour of its own."""
    levels = [np.linspace(10, 245, count) for count in (5, 5, 4)]
    colours = np.stack(np.meshgrid(*levels, indexing="ij"), -1).reshape(100, 3)
    noise = np.random.default_rng(0)
    for name, count in (("train", train), ("test", test)):
        labels = np.tile(np.arange(100), count)
        pixels = colours[labels].repeat(32 * 32, 1) + noise.normal(0, 8, (len(labels), 3072))
        images = pixels.clip(0, 255).astype(np.uint8)
        coarse = (labels // 5).tolist()
        content = {"data": images, "fine_labels": labels.tolist(), "coarse_labels": coarse}
        write_pickle(folder / "cifar-100-python" / name, content)
    names = [f"colour{label}" for label in range(100)]
    write_pickle(folder / "cifar-100-python" / "meta", {"fine_label_names": names})
    return folder
