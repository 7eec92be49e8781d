"""Image folders: one sub-folder per class, as most public image sets are laid out."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remuda.data.dataset import Dataset, dataset_from_bytes
from remuda.data.formats.base import Format
from remuda.data.formats.image import Look, opened_image
from remuda.data.labels import check_names
from remuda.data.reading import reading
from remuda.errors import DataError
from remuda.files import check_memory

_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
)
_ENTRY_BYTES = 1000  # that a file's path and its places in lists take
_ENTRIES_BETWEEN_CHECKS = 1000


def load_folder(
    root: Path, size: int | None = None, colour: bool | None = None, limit: int | None = None
) -> Dataset:
    """Images below `root`, ordered by the names of their class folders and files.

    A `limit` takes images from each class in turn, so that the classes stay balanced: the first
    images of the folder as a whole would all belong to its first class.
    """
    classes = _visible(root, folders=True)
    if not classes:
        raise DataError(f"{root}: no sub-folders; expected one sub-folder of images per class")
    found: list[tuple[int, int, Path]] = []  # index within the class, class, file
    for number, folder in enumerate(classes):
        images = [path for path in _visible(folder) if path.suffix.lower() in _SUFFIXES]
        if not images:
            raise DataError(f"{folder}: holds no images; expected {', '.join(sorted(_SUFFIXES))}")
        found += [(place, number, path) for place, path in enumerate(images)]
        check_memory(root, _ENTRY_BYTES * len(found), f"the names of {len(found)} files")
    taken = sorted(sorted(found)[:limit], key=lambda entry: (entry[1], entry[0]))
    batch = _batch([path for _, _, path in taken], root, Look(size, colour))
    labels = np.array([number for _, number, _ in taken])
    names = check_names((folder.name for folder in classes), root)
    return dataset_from_bytes(batch, labels, names, root.name, owned=True)


def _batch(files: list[Path], root: Path, look: Look) -> npt.NDArray[np.uint8]:
    """The pixels of all images: (N, C, H, W), of the first one's shape."""
    batch: npt.NDArray[np.uint8] | None = None
    for number, path in enumerate(files):
        with opened_image(path, look) as image:
            if batch is None:
                shape = (len(files), *image.shape)
                check_memory(root, math.prod(shape), f"{len(files)} images")
                batch = np.empty(shape, np.uint8)
            if image.shape != batch.shape[1:]:
                raise DataError(
                    f"{path}: {_described(image.shape)}, but {files[0]} is "
                    f"{_described(batch.shape[1:])}; make them agree, or set data.size and "
                    "data.colour"
                )
            batch[number] = image.pixels()
    assert batch is not None
    return batch


def _visible(folder: Path, folders: bool = False) -> list[Path]:
    found: list[Path] = []
    with reading(folder), os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            if not entry.name.startswith(".") and path.is_dir() == folders:
                found.append(path)
                if len(found) % _ENTRIES_BETWEEN_CHECKS == 0:
                    check_memory(folder, _ENTRY_BYTES * len(found), f"over {len(found)} names")
    return sorted(found)


def _described(shape: tuple[int, ...]) -> str:
    channels, height, width = shape
    return f"{width}x{height} {'colour' if channels == 3 else 'grey'}"


IMAGE_FOLDER = Format(
    "a folder with one sub-folder of images per class",
    lambda path, settings: load_folder(path, settings.size, settings.colour, settings.limit),
    is_folder=lambda _: True,  # the reader says what is missing
    resizes=True,
)
