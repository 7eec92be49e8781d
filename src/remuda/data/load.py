"""From `data.source` to a data set: by name, or by what is found at a path."""

from __future__ import annotations

from pathlib import Path

from remuda.config import DataSettings, suggest
from remuda.data.dataset import Dataset
from remuda.data.formats import FORMATS, NAMED, Format
from remuda.data.places import data_dirs
from remuda.data.reading import reading
from remuda.errors import ConfigError, DataError
from remuda.files import open_regular

_HEAD = 16  # bytes of a file that its format is recognised by


def load_dataset(settings: DataSettings) -> Dataset:
    """The data that the settings describe, checked and in memory."""
    if settings.validation == 0:
        return selected(_load(settings), settings)
    return selected(_load(settings.model_copy(update={"limit": None})), settings)


def selected(dataset: Dataset, settings: DataSettings) -> Dataset:
    """The part of a whole data set that the settings ask for: first held out, then limited."""
    if settings.validation >= len(dataset):
        raise ConfigError(
            f"data.validation={settings.validation}: {dataset.name} has {len(dataset)} items; "
            f"allowed: 0 to {len(dataset) - 1}"
        )
    if settings.validation:
        # Before the limit, so that any limit leaves the same items held out.
        dataset = dataset.hold_out(settings.validation, settings.seed)
    if dataset.is_images:
        return dataset.first(settings.limit)
    return dataset.some(settings.limit, settings.seed)


def has_unseen(settings: DataSettings) -> bool:
    """Whether there are items that no cell trains on: held out, or in a test split."""
    known = NAMED.get(settings.source)
    return settings.validation > 0 or (
        settings.split == "train" and known is not None and known.has_test_split
    )


def load_unseen(settings: DataSettings, dataset: Dataset) -> tuple[Dataset, str]:
    """The items that no cell trains on, and what they are called: held-out or test."""
    if dataset.validation is not None:
        held = {"items": dataset.validation, "labels": dataset.validation_labels}
        return dataset.replace(**held, validation=None, validation_labels=None), "held-out"
    changes = {"split": "test", "limit": None, "validation": 0}
    return _load(settings.model_copy(update=changes)), "test"


def _load(settings: DataSettings) -> Dataset:
    """The data, not yet limited unless their format saves work that way."""
    both = ", ".join(known.name for known in NAMED.values() if known.has_test_split)
    if settings.source in NAMED:
        known = NAMED[settings.source]
        if settings.split == "test" and not known.has_test_split:
            raise DataError(f"{known.name}: has only the split train; {both} have both")
        _refuse_resizing(settings)
        return known.load(settings)
    path = _find(settings)
    if settings.split == "test":
        raise DataError(
            f"{path}: data.split=test is only for {both}; give the path of the test data instead"
        )
    found = _format_of(path)
    if not found.resizes:
        _refuse_resizing(settings)
    return found.load(path, settings)


def _format_of(path: Path) -> Format:
    with reading(path):
        if path.is_dir():
            matches = [known for known in FORMATS if known.has_folder(path)]
        else:
            with open_regular(path) as file:
                head = file.read(_HEAD)
            if not head:
                raise DataError(f"{path}: is empty (0 bytes)")
            # Content before name: a renamed file is still what it is.
            matches = [known for known in FORMATS if known.has_content(head)]
            matches += [known for known in FORMATS if known.has_name(path)]
    if not matches:
        *others, last = (known.name for known in FORMATS)
        raise DataError(f"{path}: not a known format; allowed: {', '.join(others)}, or {last}")
    return matches[0]


def _find(settings: DataSettings) -> Path:
    """The source as a path: as it stands, or else within a data folder."""
    source = Path(settings.source)
    with reading(source):
        places = [source.expanduser(), *(base / source for base in data_dirs(settings))]
        found = next((path for path in places if path.exists()), None)
    if found is not None and settings.source.strip():
        return found
    hint = suggest(settings.source, list(NAMED)) or ";"
    raise ConfigError(
        f"data.source={settings.source!r} is neither a data set nor an existing path{hint} "
        f"allowed: {', '.join(NAMED)}, or a path"
    )


def _refuse_resizing(settings: DataSettings) -> None:
    resizable = ", ".join(known.name for known in FORMATS if known.resizes)
    for key in ("size", "colour"):
        value = getattr(settings, key)
        if value is not None:
            raise ConfigError(
                f"data.{key}={value} does not apply to {settings.source}, only to {resizable}; "
                "allowed: null"
            )
