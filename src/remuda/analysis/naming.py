"""What runs are called in tables and figures."""

from __future__ import annotations

import os
from pathlib import Path


def short_names(paths: list[Path]) -> list[str]:
    """The names of the run folders, or as much of their paths as tells them apart."""
    if len({path.name for path in paths}) == len(paths):
        return [path.name for path in paths]
    common = os.path.commonpath([path.absolute() for path in paths])
    return [os.path.relpath(path.absolute(), common) for path in paths]
