"""What a data format and a named data set tell the loader about themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from remuda.config import DataSettings
from remuda.data.dataset import Dataset


@dataclass(frozen=True)
class NamedSet:
    """A data set that `data.source` may give the name of."""

    name: str
    load: Callable[[DataSettings], Dataset]
    has_test_split: bool = False


@dataclass(frozen=True)
class Format:
    """A kind of file or folder that `data.source` may give the path of.

    A file is recognised by its first bytes or else by its name, a folder by what is in it. `load`
    may leave `limit` to the loader; it is passed for formats that can save work by it.
    """

    name: str  # what error messages call it
    load: Callable[[Path, DataSettings], Dataset]
    first_bytes: tuple[bytes, ...] = ()
    file_names: tuple[str, ...] = ()  # patterns such as *.csv
    is_folder: Callable[[Path], bool] | None = None  # for formats that are folders
    resizes: bool = False  # whether data.size and data.colour apply

    def has_content(self, head: bytes) -> bool:
        return head.startswith(self.first_bytes)

    def has_name(self, path: Path) -> bool:
        return any(fnmatchcase(path.name, pattern) for pattern in self.file_names)

    def has_folder(self, path: Path) -> bool:
        return self.is_folder is not None and self.is_folder(path)
