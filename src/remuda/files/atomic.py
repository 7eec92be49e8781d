"""Writing files so that a reader sees the old one or the new one, never half of either."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from remuda.errors import StoreError
from remuda.files import disk
from remuda.files.disk import Content


def write_atomically(
    path: Path, content: Content, *, durable: bool = True, root: Path | None = None
) -> None:
    """Write, flush to disk, then rename into place; nothing is left behind on failure.

    Without `durable`, readers still see all or nothing, but a power cut may undo the write. Missing
    folders are made; with `root`, those in it, while that itself must be there.
    """
    # The name is fixed, so the next writer removes what a killed one left behind.
    part = path.with_name(f".{path.name}.part")
    try:
        disk.make_folders(path.parent, root)
        descriptor = _create(part)
        try:
            disk.write(descriptor, content)
            if durable:
                disk.sync_file(descriptor)
        finally:
            os.close(descriptor)
        disk.replace(part, path)
        if durable:
            disk.sync_path(path.parent)
    except FileNotFoundError:
        # A worker given up for lost that is still running wrote and renamed the same file first.
        if not path.exists():
            raise StoreError(f"{path}: cannot be written: it was removed meanwhile") from None
    except OSError as error:
        with contextlib.suppress(OSError):
            disk.remove(part)
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def sync(path: Path) -> None:
    """Make what was appended to a file, or renamed in a folder, survive a power cut."""
    try:
        disk.sync_path(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def _create(part: Path) -> int:
    """A new file, whatever has its name: never the file that a link of this name leads to."""
    while True:
        try:
            return disk.create(part)
        except FileExistsError:
            disk.remove(part)


def to_json(value: Any, indent: int | None = None) -> str:
    """Standard JSON: NaN and infinity become null."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)
    except (ValueError, TypeError):  # only now are all values looked at one by one
        return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=False)


def write_json(
    path: Path,
    value: Any,
    *,
    durable: bool = True,
    indent: int | None = 2,
    root: Path | None = None,
) -> None:
    content = (to_json(value, indent) + "\n").encode()
    write_atomically(path, content, durable=durable, root=root)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def digest(content: Content) -> str:
    found = hashlib.sha256()
    for piece in [content] if isinstance(content, bytes) else content:
        found.update(piece)
    return found.hexdigest()
