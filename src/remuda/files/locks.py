"""Locks on folders that one process at a time may work in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from remuda.errors import StoreError
from remuda.files import disk

LOCK = ".lock"  # in the folder
_LOOKING_SECONDS = 0.3


class Lock:
    """A lock that is held."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def is_in_place(self) -> bool:
        """Whether it still is the lock of its folder: not if that was removed or replaced."""
        try:
            return os.path.samestat(self._path.lstat(), os.fstat(self._descriptor))
        except OSError:
            return False


@contextlib.contextmanager
def lock(folder: Path, held: str) -> Iterator[Lock]:
    """Hold a folder's lock; where another process holds it, a StoreError says what that means."""
    path = folder / LOCK
    try:
        descriptor = disk.open_to_lock(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from None
    if not _hold(descriptor):
        os.close(descriptor)
        raise StoreError(f"{folder}: {held}")
    try:
        yield Lock(path, descriptor)
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
        # Of a stranger's folder: it may be a pipe, whose opening would wait.
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
