"""MNIST (LeCun, Cortes, Burges), from the data folders or the cache, or else downloaded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from remuda.config import DataSettings
from remuda.data.dataset import Dataset, dataset_from_bytes
from remuda.data.fetch import fetch, md5_of
from remuda.data.formats.base import NamedSet
from remuda.data.formats.idx import read_images, read_labels
from remuda.data.labels import check_labels
from remuda.data.places import WHERE_TO_PUT, cache_dir, data_dirs
from remuda.data.reading import reading
from remuda.errors import DataError

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
DIGIT_NAMES = tuple("0123456789")
_log = logging.getLogger(__name__)


def load_mnist(settings: DataSettings, mirrors: Sequence[str] = MIRRORS) -> Dataset:
    """One split of MNIST."""
    part = "train" if settings.split == "train" else "t10k"
    names = (f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz")
    image_file, label_file = _local(settings, names) or _cached(names, mirrors)
    images, labels = read_images(image_file, settings.limit), read_labels(label_file, image_file)
    if images.shape[1:] != (28, 28):
        raise DataError(f"{image_file}: images of shape {images.shape[1:]}; MNIST's are (28, 28)")
    check_labels(labels, len(labels), label_file, classes=10)
    labels = labels[: len(images)]
    return dataset_from_bytes(images[:, None], labels, DIGIT_NAMES, "mnist", owned=True)


def _local(settings: DataSettings, names: tuple[str, str]) -> tuple[Path, Path] | None:
    """Images and labels from the first data folder that holds both, plain or compressed."""
    for base in data_dirs(settings):
        for folder in (base, base / "mnist"):
            images, labels = (_either(folder / name) for name in names)
            if images is not None and labels is not None:
                return images, labels
    return None


def _either(compressed: Path) -> Path | None:
    with reading(compressed):
        for path in (compressed.with_suffix(""), compressed):
            if path.is_file():
                return path
    return None


def _cached(names: tuple[str, str], mirrors: Sequence[str]) -> tuple[Path, Path]:
    images, labels = (_cached_file(name, names, mirrors) for name in names)
    return images, labels


def _cached_file(name: str, wanted: tuple[str, str], mirrors: Sequence[str]) -> Path:
    cache = cache_dir() / "mnist"
    path = cache / name
    note = ""
    with reading(path):
        if path.is_file():
            if md5_of(path) == MD5[name]:
                return path
            # Left in place, it would fail every later run as well.
            path.unlink()
            note = f"{path} was damaged (wrong checksum) and has been deleted. "
            _log.warning("%sDownloading it again.", note)
    try:
        return fetch(name, MD5[name], cache, mirrors)
    except DataError as error:
        raise DataError(
            f"mnist: {note}{error}. Put {' and '.join(wanted)} into {WHERE_TO_PUT} "
            "(or its sub-folder mnist), or use data.source=digits, which needs no files"
        ) from error


MNIST = NamedSet("mnist", load_mnist, has_test_split=True)
