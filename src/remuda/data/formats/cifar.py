"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) in both published forms, binary and Python pickles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.config import DataSettings
from remuda.data.dataset import Dataset, dataset_from_bytes
from remuda.data.formats.base import Format, NamedSet
from remuda.data.formats.cifar_pickle import read_pickle
from remuda.data.labels import check_labels, check_names
from remuda.data.places import WHERE_TO_PUT, data_dirs
from remuda.data.reading import listed, read_bytes, reading
from remuda.errors import DataError
from remuda.files import check_memory, open_regular

_PIXELS = 3 * 32 * 32
_MOST_NAMES = 2**16  # bytes of a file of class names


@dataclass(frozen=True)
class _Form:
    """One published form of one of the two sets: its files, and how they store labels."""

    name: str
    folder: str  # that the published archive unpacks to
    train: tuple[str, ...]
    test: tuple[str, ...]
    names_file: str
    label_key: str  # in the pickles; "" for binary files
    label_bytes: int  # before the pixels of a binary record; the label we want comes last

    @property
    def classes(self) -> int:
        return 10 if self.name == "cifar10" else 100

    def files(self, split: str) -> tuple[str, ...]:
        return self.train if split == "train" else self.test


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_FORMS = (
    _Form("cifar10", "cifar-10-batches-py", _BATCHES, ("test_batch",), "batches.meta", "labels", 0),
    _Form(
        "cifar10",
        "cifar-10-batches-bin",
        tuple(f"{batch}.bin" for batch in _BATCHES),
        ("test_batch.bin",),
        "batches.meta.txt",
        "",
        1,
    ),
    _Form("cifar100", "cifar-100-python", ("train",), ("test",), "meta", "fine_labels", 0),
    _Form(
        "cifar100",
        "cifar-100-binary",
        ("train.bin",),
        ("test.bin",),
        "fine_label_names.txt",
        "",
        2,
    ),
)


def is_cifar_folder(folder: Path) -> bool:
    """Whether the folder holds training files under CIFAR's own names."""
    return _form_of(folder) is not None


def load_cifar_folder(folder: Path, limit: int | None = None) -> Dataset:
    """The training files in a folder, whether all batches or only some."""
    form = _form_of(folder)
    if form is None:
        raise DataError(f"{folder}: no CIFAR files such as data_batch_1 or train.bin")
    present = [folder / name for name in form.train if _is_there(folder / name)]
    return _load(form, present, limit)


def load_cifar(settings: DataSettings) -> Dataset:
    """A complete split of the set named by `settings.source`, from the data folders."""
    forms = [form for form in _FORMS if form.name == settings.source]
    parent = "cifar-10" if settings.source == "cifar10" else "cifar-100"
    for base in data_dirs(settings):
        for form in forms:
            names = form.files(settings.split)
            for folder in (base, base / form.folder, base / parent, base / parent / form.folder):
                with reading(folder):
                    missing = [name for name in names if not _is_there(folder / name)]
                if not missing:
                    return _load(form, [folder / name for name in names], settings.limit)
                if len(missing) < len(names):
                    raise DataError(f"{folder}: incomplete; missing: {', '.join(missing)}")
    wanted = " or ".join(
        f"{form.folder}/ with {', '.join(form.files(settings.split))}" for form in forms
    )
    raise DataError(f"{settings.source}: not found. Put {wanted} into {WHERE_TO_PUT}")


def _form_of(folder: Path) -> _Form | None:
    with reading(folder):
        for form in _FORMS:
            if any(_is_there(folder / name) for name in form.train):
                return form
    return None


def _is_there(path: Path) -> bool:
    """Whether a file has this name; a pipe has too, and is refused when it is opened."""
    return path.exists() and not path.is_dir()


def _load(form: _Form, paths: list[Path], limit: int | None) -> Dataset:
    folder, images, labels = paths[0].parent, [], []
    with reading(folder):
        sizes = [path.stat().st_size for path in paths]
    check_memory(folder, 2 * sum(sizes), "images, once in files and once together")
    for path in paths:
        read = _read_pickled if form.label_key else _read_binary
        pixels, numbers = read(path, form)
        check_labels(numbers, len(pixels), path, classes=form.classes)
        images.append(pixels.reshape(-1, 3, 32, 32))
        labels.append(numbers)
    names = _label_names(form, folder / form.names_file)
    together = np.concatenate(images)
    return dataset_from_bytes(together, np.concatenate(labels), names, form.name, limit, owned=True)


def _read_binary(path: Path, form: _Form) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    data = read_bytes(path)
    record = form.label_bytes + _PIXELS
    if len(data) % record:
        raise DataError(
            f"{path}: {len(data)} bytes are not a whole number of {record}-byte records"
        )
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, record)
    return records[:, form.label_bytes :], records[:, form.label_bytes - 1]


def _read_pickled(path: Path, form: _Form) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    batch = read_pickle(path)
    for key in ("data", form.label_key):
        if key not in batch:
            raise DataError(f"{path}: no entry {key!r}; found: {listed(batch)}")
    pixels = batch["data"]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        raise DataError(f"{path}: entry 'data' is not an array of bytes")
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS or len(pixels) == 0:
        raise DataError(f"{path}: images of shape {pixels.shape}; expected (N, {_PIXELS})")
    labels = batch[form.label_key]
    if isinstance(labels, list | tuple):
        # One by one: lists within lists could be far larger than the file that holds them.
        wrong = next((label for label in labels if type(label) is not int), None)
        if wrong is not None:
            raise DataError(f"{path}: a label is a {type(wrong).__name__}; expected integers")
        with reading(path):
            labels = np.array(labels, np.int64)
    if not isinstance(labels, np.ndarray):
        raise DataError(f"{path}: labels are a {type(labels).__name__}; expected a list")
    return pixels, labels


def _label_names(form: _Form, path: Path) -> tuple[str, ...]:
    if not _is_there(path):
        return tuple(str(number) for number in range(form.classes))
    if form.label_key:
        key = "label_names" if form.name == "cifar10" else "fine_label_names"
        names = read_pickle(path).get(key, ())
    else:
        with reading(path), open_regular(path) as file:
            names = file.read(_MOST_NAMES).decode().split()
    if not isinstance(names, list | tuple) or len(names) != form.classes:
        raise DataError(f"{path}: expected the names of {form.classes} classes")
    if not all(isinstance(name, str | bytes) for name in names):
        raise DataError(f"{path}: a class name is not text; expected text")
    with reading(path):
        return check_names(
            (name.decode() if isinstance(name, bytes) else name for name in names), path
        )


CIFAR10 = NamedSet("cifar10", load_cifar, has_test_split=True)
CIFAR100 = NamedSet("cifar100", load_cifar, has_test_split=True)
CIFAR_FOLDER = Format(
    "a CIFAR folder",
    lambda path, settings: load_cifar_folder(path, settings.limit),
    is_folder=is_cifar_folder,
)
