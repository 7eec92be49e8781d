"""The digits that ship with remuda: 10,000 of MNIST's training images, 1,000 of each digit."""

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
EMBEDDED = "embedded/digits.idx.xz"
COUNT = 10_000
_IMAGE_BYTES = 16 + COUNT * 28 * 28


def load_digits(limit: int | None = None) -> Dataset:
    """The embedded digits, the only images that need neither a file nor a download."""
    with reading(Path(EMBEDDED)):
        data = lzma.decompress(files("remuda.data").joinpath(EMBEDDED).read_bytes())
    images = parse_idx(data[:_IMAGE_BYTES], EMBEDDED, dimensions=3)
    labels = parse_idx(data[_IMAGE_BYTES:], EMBEDDED, dimensions=1)
    check_labels(labels, len(images), EMBEDDED, classes=10)
    return dataset_from_bytes(images[:, None], labels, DIGIT_NAMES, "digits", limit)


DIGITS = NamedSet("digits", lambda settings: load_digits(settings.limit))
