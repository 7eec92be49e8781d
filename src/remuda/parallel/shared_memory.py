"""Folders in memory that the processes of one host share, and that are gone when they are."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from remuda.errors import StoreError

MEMORY = Path("/dev/shm")
PREFIX = "remuda-"
_SETTLED_SECONDS = 10.0
_ALIVE = "alive"
_held: dict[Path, int] = {}  # the locks of this process's folders


def make_shared_folder(size: int) -> Path:
    """A folder in memory that processes share, and that only this user may enter.

    Where memory has no room for `size` bytes (containers often have little), or cannot be used as
    a folder (macOS), it is on disk.
    """
    root = _root(size)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
        # Held while this process lives: a process id says nothing in another container.
        if _hold(folder, fcntl.LOCK_EX):
            return folder


def _hold(folder: Path, how: int) -> bool:
    """Lock a folder as in use; False if another process took it for stale before we could."""
    if folder in _held:
        return True
    try:
        descriptor = os.open(folder / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, how)
    try:
        if (folder / _ALIVE).stat().st_ino == os.fstat(descriptor).st_ino:
            _held[folder] = descriptor
            return True
    except FileNotFoundError:
        pass
    os.close(descriptor)
    return False


def _root(size: int) -> Path:
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > size
    root = MEMORY if roomy else Path(tempfile.gettempdir())
    clear_stale(root)
    return root


def remove_shared_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    descriptor = _held.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def clear_stale(root: Path) -> None:
    """Remove the folders of masters that no longer run."""
    for folder in root.glob(f"{PREFIX}*"):
        remove_if_stale(folder)


def remove_if_stale(folder: Path) -> bool:
    """Remove a folder if its master no longer runs; whether it did."""
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


def clear_stale_segments(root: Path = MEMORY) -> None:
    """Remove what killed ranks left in memory: segments of Open MPI that no process has mapped."""
    found = [path for path in root.glob(f"sm_segment.*.{os.getuid()}.*") if _is_settled(path)]
    if not found:
        return
    mapped: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            lines = maps.read_text(errors="replace").splitlines()
            mapped.update(line.rpartition(" ")[2] for line in lines if "sm_segment." in line)
    for path in found:
        if str(path) not in mapped:
            path.unlink(missing_ok=True)


def _is_settled(path: Path) -> bool:
    """Whether a file is old enough for its maker to have mapped it."""
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > _SETTLED_SECONDS
    return False


def join_shared_folder(name: str, size: int) -> Path:
    """The folder of this name on this host, for processes that find each other by it."""
    clear_stale_segments()
    while True:
        # The first process decides where: what it puts there takes room from the next.
        there = [root / f"{PREFIX}{name}" for root in (MEMORY, Path(tempfile.gettempdir()))]
        folder = next((path for path in there if path.is_dir()), None)
        if folder is None:
            folder = _root(size) / f"{PREFIX}{name}"
            folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise StoreError(f"{folder}: belongs to another user; remove it, or ask them to")
        if _hold(folder, fcntl.LOCK_SH):
            return folder


def leave_shared_folder(folder: Path) -> None:
    """The last process to leave a folder removes it."""
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
