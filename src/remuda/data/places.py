"""The folders that are searched for named data sets and relative paths."""

from __future__ import annotations

import os
from pathlib import Path

from remuda.config import DataSettings
from remuda.data.reading import reading
from remuda.errors import DataError

WHERE_TO_PUT = "the folder given by --data-dir or REMUDA_DATA"


def data_dirs(settings: DataSettings) -> list[Path]:
    """The configured folder, then the environment's."""
    dirs = []
    if settings.dir is not None:
        with reading(Path(settings.dir)):
            folder = Path(settings.dir).expanduser()
            if not folder.is_dir():
                raise DataError(f"data.dir={settings.dir}: no such folder")
        dirs.append(folder)
    if os.environ.get("REMUDA_DATA"):
        dirs.append(Path(os.environ["REMUDA_DATA"]))
    return dirs


def cache_dir() -> Path:
    """Where downloads are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "remuda"
