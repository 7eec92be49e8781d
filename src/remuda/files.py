"""Writing files so that a reader sees the old one or the new one, never half of either."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from remuda.errors import StoreError

LOCK = ".lock"  # in a folder that one process at a time may work in
_LOOKING_SECONDS = 0.3
VERSION = "0.1.0"  # of remuda; run folders and ensembles say which version wrote them


Content = bytes | Iterable[bytes | memoryview]  # in one piece, or in several


def write_atomically(path: Path, content: Content, *, durable: bool = True) -> None:
    """Write, flush to disk, then rename into place; nothing is left behind on failure.

    Without `durable`, readers still see all or nothing, but a power cut may undo the write.
    """
    # The name is fixed, so the next writer overwrites what a killed one left behind.
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
        if durable:
            _sync(path.parent)
    except FileNotFoundError:
        # A worker given up for lost that is still running wrote and renamed the same file first.
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


def to_json(value: Any, indent: int | None = None) -> str:
    """Standard JSON: NaN and infinity become null."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)
    except (ValueError, TypeError):  # only now are all values looked at one by one
        return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


@contextlib.contextmanager
def lock(folder: Path, held: str) -> Iterator[None]:
    """Hold a folder's lock; where another process holds it, a StoreError says what that means."""
    path = folder / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from None
    if not _hold(descriptor):
        os.close(descriptor)
        raise StoreError(f"{folder}: {held}")
    try:
        yield
    finally:
        os.close(descriptor)


def _hold(descriptor: int) -> bool:
    """Take a lock; not at once, for those who only look (`is_locked`) hold it for a moment."""
    end = time.monotonic() + _LOOKING_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the folder's lock now."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def digest(content: Content) -> str:
    found = hashlib.sha256()
    for piece in [content] if isinstance(content, bytes) else content:
        found.update(piece)
    return found.hexdigest()
