"""Image folders: one sub-folder per class, as most public image sets are laid out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from remuda.data.dataset import Dataset, dataset_from_bytes
from remuda.data.formats.base import Format
from remuda.data.reading import reading
from remuda.errors import DataError

_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
)
_GREY = frozenset({"1", "L", "LA"})
_COLOUR = frozenset({"P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})


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
    taken = sorted(sorted(found)[:limit], key=lambda entry: (entry[1], entry[0]))
    files = [path for _, _, path in taken]
    first = _pixels(files[0], size, colour)
    batch = np.empty((len(files), *first.shape), dtype=np.uint8)
    for number, path in enumerate(files):
        pixels = _pixels(path, size, colour)
        if pixels.shape != first.shape:
            raise DataError(
                f"{path}: {_described(pixels)}, but {files[0]} is {_described(first)}; "
                "make them agree, or set data.size and data.colour"
            )
        batch[number] = pixels
    labels = np.array([number for _, number, _ in taken])
    return dataset_from_bytes(batch, labels, tuple(folder.name for folder in classes), root.name)


def _visible(folder: Path, folders: bool = False) -> list[Path]:
    with reading(folder):
        found = [path for path in folder.iterdir() if not path.name.startswith(".")]
        return sorted(path for path in found if path.is_dir() == folders)


def _pixels(path: Path, size: int | None, colour: bool | None) -> npt.NDArray[np.uint8]:
    """One image as (C, H, W); resizing crops it to its central square, which distorts nothing."""
    with reading(path), Image.open(path) as image:
        if image.mode not in _GREY | _COLOUR:
            raise DataError(f"{path}: pixels of mode {image.mode}; allowed: 8 bits per channel")
        to_colour = image.mode in _COLOUR if colour is None else colour
        # Via RGBA, because Pillow warns when a palette image loses its transparency directly.
        opened = image.convert("RGBA") if image.mode in ("P", "PA") else image
        picture = opened.convert("RGB" if to_colour else "L")
        if size is not None:
            picture = ImageOps.fit(picture, (size, size), Image.Resampling.LANCZOS)
        pixels = np.asarray(picture, dtype=np.uint8)
    return pixels.transpose(2, 0, 1) if to_colour else pixels[None]


def _described(pixels: npt.NDArray[np.uint8]) -> str:
    channels, height, width = pixels.shape
    return f"{width}x{height} {'colour' if channels == 3 else 'grey'}"


IMAGE_FOLDER = Format(
    "a folder with one sub-folder of images per class",
    lambda path, settings: load_folder(path, settings.size, settings.colour, settings.limit),
    is_folder=lambda _: True,  # the reader says what is missing
    resizes=True,
)
