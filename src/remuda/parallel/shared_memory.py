"""Folders in memory that the processes of one host share, and that are gone when they are."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

from remuda.errors import StoreError

MEMORY = Path("/dev/shm")
PREFIX = "remuda-"
_OURS = re.compile(rf"{PREFIX}\d+-\w+")  # a process or a user, and what tells it from others
_SETTLED_SECONDS = 10.0
_ALIVE = "alive"
_held: dict[Path, int] = {}  # the locks of this process's folders


def make_shared_folder(size: int) -> Path:
    """A folder in memory that processes share, and that only this user may enter.

    Where memory has no room for `size` bytes (containers often have little), or cannot be used as
    a folder (macOS), it is on disk.
    """
    sweep()
    return _make(_root(size))


def make_temporary_folder() -> Path:
    """A folder on disk that only this user may enter; the next run removes what a kill left."""
    sweep()
    return _make(_disk())


def lock_of(folder: Path) -> int:
    """The descriptor that keeps a folder; to be inherited by those who may outlive us in it."""
    return _held[folder]


def _make(root: Path) -> Path:
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
    return MEMORY if roomy else _disk()


def _disk() -> Path:
    return Path(tempfile.gettempdir())


def remove_shared_folder(folder: Path) -> None:
    _remove(folder)
    descriptor = _held.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a folder, its lock last: a kill in the middle leaves one that is still swept."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _ALIVE:
                path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Remove what killed runs of this user left in memory and under the temporary folder."""
    for root in {MEMORY, _disk()}:
        clear_stale(root)
    clear_stale_segments()


def clear_stale(root: Path) -> None:
    """Remove the folders of masters that no longer run."""
    for folder in root.glob(f"{PREFIX}*"):
        # Others under such a name are the user's own.
        if _OURS.fullmatch(folder.name):
            remove_if_stale(folder)


def remove_if_stale(folder: Path) -> bool:
    """Remove a folder of this user if its master no longer runs; whether it did."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        return False
    try:
        descriptor = os.open(folder / _ALIVE, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # killed before it was locked; whoever is at it now makes another
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def clear_stale_segments(root: Path | None = None) -> None:
    """Remove what killed ranks left in memory: segments of Open MPI that no process has mapped."""
    found = [
        path for path in (root or MEMORY).glob(f"sm_segment.*.{os.getuid()}.*") if _is_settled(path)
    ]
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
    sweep()
    while True:
        # The first process decides where: what it puts there takes room from the next.
        there = [root / f"{PREFIX}{name}" for root in (MEMORY, _disk())]
        folder = next((path for path in there if path.is_dir()), None)
        if folder is None:
            folder = _root(size) / f"{PREFIX}{name}"
            folder.mkdir(mode=0o700, exist_ok=True)
        try:
            found = folder.lstat()
        except FileNotFoundError:
            continue  # another process took it for stale before we could lock it
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
        _remove(folder)
    except OSError:
        return
    finally:
        os.close(descriptor)
