"""The way from `data.source` to a data set: by name, or by what lies at a path."""

from __future__ import annotations

from pathlib import Path

from remuda.config import DataSettings, suggest
from remuda.data.dataset import Dataset
from remuda.data.formats.arrays import NPY_MAGIC, ZIP_MAGIC, load_npy, load_npz, load_points
from remuda.data.formats.cifar import is_cifar_folder, load_cifar, load_cifar_folder
from remuda.data.formats.digits import load_digits
from remuda.data.formats.folder import load_folder
from remuda.data.formats.idx import GZIP_MAGIC, load_idx
from remuda.data.formats.mnist import load_mnist
from remuda.data.formats.points import load_known_points
from remuda.data.places import data_dirs
from remuda.data.reading import reading
from remuda.errors import ConfigError, DataError

POINTS = ("r15", "mog25", "ring8")
NAMED = ("digits", "mnist", "cifar10", "cifar100", *POINTS)


def load_dataset(settings: DataSettings) -> Dataset:
    """The data that the settings describe, checked and in memory."""
    if settings.validation == 0:
        return selected(_load(settings), settings)
    return selected(_load(settings.model_copy(update={"limit": None})), settings)


def selected(dataset: Dataset, settings: DataSettings) -> Dataset:
    """What the settings ask for of a whole data set: items held out, and not too many others."""
    if settings.validation >= len(dataset):
        raise ConfigError(
            f"data.validation={settings.validation}: {dataset.name} has {len(dataset)} items; "
            f"allowed: 0 to {len(dataset) - 1}"
        )
    if settings.validation:
        # Before the limit: what is held out is the same with any limit.
        dataset = dataset.hold_out(settings.validation, settings.seed)
    if dataset.is_images:
        return dataset.first(settings.limit)
    return dataset.some(settings.limit, settings.seed)


def _load(settings: DataSettings) -> Dataset:
    """The first so many images, or all points."""
    if settings.source in NAMED:
        _refuse_resizing(settings)
        return _load_named(settings)
    path = _find(settings)
    if settings.split == "test":
        raise DataError(
            f"{path}: data.split=test is only for mnist, cifar10, cifar100; "
            "give the test data's own path instead"
        )
    with reading(path):
        is_folder = path.is_dir()
    if is_folder and not is_cifar_folder(path):
        return load_folder(path, settings.size, settings.colour, settings.limit)
    _refuse_resizing(settings)
    if is_folder:
        return load_cifar_folder(path, settings.limit)
    return _load_file(path, settings.limit)


def _load_named(settings: DataSettings) -> Dataset:
    if settings.source == "mnist":
        return load_mnist(settings)
    if settings.source in ("cifar10", "cifar100"):
        return load_cifar(settings)
    if settings.source in POINTS:
        return load_known_points(settings)
    if settings.split == "test":
        raise DataError("digits: the embedded data have only the split train; mnist has both")
    return load_digits(settings.limit)


def _load_file(path: Path, limit: int | None) -> Dataset:
    # Content before name: a renamed file is still what it is.
    with reading(path), path.open("rb") as file:
        head = file.read(8)
    if head.startswith((b"\0\0", GZIP_MAGIC)):
        return load_idx(path, limit)
    if head.startswith(NPY_MAGIC) or path.suffix == ".npy":
        return load_npy(path)
    if head.startswith(ZIP_MAGIC) or path.suffix == ".npz":
        return load_npz(path)
    if path.suffix in (".csv", ".txt"):
        return load_points(path)
    if not head or path.suffix == ".gz" or "idx" in path.name:
        return load_idx(path, limit)
    raise DataError(
        f"{path}: of no known kind; allowed: idx (also .gz), .npz, .npy, .csv, .txt, "
        "a CIFAR folder, or a folder with one sub-folder of images per class"
    )


def _find(settings: DataSettings) -> Path:
    """The source as a path: as it stands, or else within a data folder."""
    source = Path(settings.source)
    with reading(source):
        places = [source.expanduser(), *(base / source for base in data_dirs(settings))]
        found = next((path for path in places if path.is_file() or path.is_dir()), None)
    if found is not None and settings.source.strip():
        return found
    hint = suggest(settings.source, NAMED) or ";"
    raise ConfigError(
        f"data.source={settings.source!r} is no data set and no existing path{hint} "
        f"allowed: {', '.join(NAMED)}, or a path"
    )


def _refuse_resizing(settings: DataSettings) -> None:
    for key in ("size", "colour"):
        if getattr(settings, key) is not None:
            raise ConfigError(
                f"data.{key}={getattr(settings, key)} is only for image folders, "
                f"and {settings.source} is none; allowed: null"
            )
