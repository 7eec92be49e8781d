"""Folders in memory that the processes of one host share; none outlives its users for long."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "remuda-"
_ALIVE = "alive"
_held: dict[Path, int] = {}  # the locks of this process's folders


def make_shared_folder(size: int) -> Path:
    """A folder in memory that processes share, and that only this user may enter.

    Where memory has no room for `size` bytes (containers often have little), it lies on disk.
    """
    root = _root(size)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
    # Held while this process lives: a process id says nothing in another container.
    descriptor = os.open(folder / _ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    _held[folder] = descriptor
    return folder


def _root(size: int) -> Path:
    memory, disk = Path("/dev/shm"), Path(tempfile.gettempdir())
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > size
    root = memory if roomy else disk
    clear_stale(root)
    return root


def remove_shared_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    descriptor = _held.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def clear_stale(root: Path) -> None:
    """Remove the folders of masters that are no more."""
    for folder in root.glob(f"{PREFIX}*"):
        remove_if_stale(folder)


def remove_if_stale(folder: Path) -> bool:
    """Whether a folder, whose master was no more, is removed."""
    try:
        descriptor = os.open(folder / _ALIVE, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def join_shared_folder(name: str, size: int) -> Path:
    """The folder of this name on this host, for processes that found each other by it."""
    root = _root(size)
    folder = root / f"{PREFIX}{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / _ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    _held[folder] = descriptor
    return folder


def leave_shared_folder(folder: Path) -> None:
    """Whoever leaves last removes it."""
    descriptor = _held.pop(folder, None)
    if descriptor is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return
    finally:
        os.close(descriptor)
