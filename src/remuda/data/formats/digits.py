"""The digits that ship with remuda: 1,000 training and 200 test images of MNIST of each digit."""

from __future__ import annotations

import lzma
from importlib.resources import files
from pathlib import Path

from remuda.data.dataset import Dataset, dataset_from_bytes
from remuda.data.formats.base import NamedSet
from remuda.data.formats.idx import parse_idx
from remuda.data.formats.mnist import DIGIT_NAMES
from remuda.data.labels import check_labels
from remuda.data.reading import reading

# Made by scripts/make_embedded_digits.py: an idx3 and an idx1 file, concatenated, then xz.
EMBEDDED = {"train": "embedded/digits.idx.xz", "test": "embedded/digits-test.idx.xz"}
COUNTS = {"train": 10_000, "test": 2_000}


def load_digits(split: str = "train", limit: int | None = None) -> Dataset:
    """The embedded digits, the only images that need neither a file nor a download."""
    name = EMBEDDED[split]
    with reading(Path(name)):
        data = lzma.decompress(files("remuda.data").joinpath(name).read_bytes())
    image_bytes = 16 + COUNTS[split] * 28 * 28
    images = parse_idx(data[:image_bytes], name, dimensions=3)
    labels = parse_idx(data[image_bytes:], name, dimensions=1)
    check_labels(labels, len(images), name, classes=10)
    return dataset_from_bytes(images[:, None], labels, DIGIT_NAMES, "digits", limit)


DIGITS = NamedSet(
    "digits", lambda settings: load_digits(settings.split, settings.limit), has_test_split=True
)
