"""Writing files so that a reader sees the old one or the new one, never half of either."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from remuda.errors import DamagedError, StoreError

VERSION = "0.1.0"  # of remuda; every file that is kept says which one wrote it


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write, flush to disk, then rename into place; nothing is left behind on failure.

    Without `durable` a reader still finds all or nothing, but a power cut may undo it.
    """
    # The name is fixed, so what a killed writer left is overwritten by the next one.
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
        if durable:
            _sync(path.parent)
    except FileNotFoundError:
        # A worker that was written off and does not know it yet wrote the same: its file is there.
        if not path.exists():
            raise StoreError(f"{path}: cannot be written: it was removed meanwhile") from None
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def sync(path: Path) -> None:
    """Make what was appended to a file, or renamed in a folder, survive a power cut."""
    try:
        _sync(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any, *, durable: bool = True, indent: int | None = 2) -> None:
    write_atomically(path, (to_json(value, indent) + "\n").encode(), durable=durable)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """A JSON object, or a StoreError that names the file."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise DamagedError(f"{path}: not valid JSON, so no {what}: {error}") from None
    if not isinstance(value, dict):
        raise DamagedError(f"{path}: not a {what}: expected a JSON object")
    return value


def to_json(value: Any, indent: int | None = None) -> str:
    """Standard JSON: what is no number (NaN, infinity) becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
