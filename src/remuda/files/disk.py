"""The only way in which remuda changes files and folders: every function here is one step on disk.

Nothing else in the package writes, renames, links or removes (`tests/test_architecture.py`), so
that a test can fail or kill a run at every single step, and undo what a power cut would undo
(`tests/test_crashes.py`). For that, call them as `disk.NAME`.

The last part of a path is never followed if it is a link: what a link leads to is not ours. All of
them raise OSError.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from remuda.files.regular import NotRegularError

Content = bytes | Iterable[bytes | memoryview]  # in one piece, or in several

_OURS = os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_PIECES = 1024  # that the system takes at once

# -------------------------------------------------------------------------- files


def create(path: Path) -> int:
    """A new file to write to; FileExistsError where anything has this name."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OURS, 0o666)


def open_to_append(path: Path) -> int:
    """A file to add to, which is made where there is none."""
    return _open_kept(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def open_to_lock(path: Path) -> int:
    """A file to hold a lock on, which is made where there is none."""
    return _open_kept(path, os.O_RDWR | os.O_CREAT)


def _open_kept(path: Path, flags: int) -> int:
    """A file that stays what it is; NotRegularError for a link, pipe or device in its place."""
    try:
        # Opening a pipe would wait for its reader, were it not for O_NONBLOCK.
        descriptor = os.open(path, flags | os.O_NONBLOCK | _OURS, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotRegularError(errno.EINVAL, "is not a regular file", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(errno.EINVAL, "is not a regular file", str(path))
    return descriptor


def write(descriptor: int, content: Content) -> None:
    """Write all of it."""
    pieces = [content] if isinstance(content, bytes) else content
    rest = [memoryview(piece) for piece in pieces if len(piece)]
    first = 0  # of those that are not yet written
    while first < len(rest):
        written = os.writev(descriptor, rest[first : first + _MOST_PIECES])
        while first < len(rest) and written >= len(rest[first]):
            written -= len(rest[first])
            first += 1
        if written:
            rest[first] = rest[first][written:]


def sync_file(descriptor: int) -> None:
    """What was written survives a power cut; the file's name does once its folder is synced."""
    os.fsync(descriptor)


def replace(source: Path, target: Path) -> None:
    """Move a file or folder to a name, in place of what has it."""
    source.replace(target)


def link(source: Path, target: Path) -> None:
    """A second name for a file; FileExistsError where the name is taken."""
    os.link(source, target)


def remove(path: Path) -> None:
    """Remove a file, or a link and not what it leads to; nothing where there is none."""
    path.unlink(missing_ok=True)


def touch(path: Path) -> None:
    """Give a file the time of now."""
    os.utime(path, follow_symlinks=False)


# -------------------------------------------------------------------------- folders


def make_folder(path: Path) -> None:
    """A new folder; FileExistsError where anything has this name."""
    path.mkdir()


def remove_folder(path: Path) -> None:
    """Remove an empty folder."""
    path.rmdir()


def sync_path(path: Path) -> None:
    """What was added to a file, or made, renamed and removed in a folder, survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -------------------------------------------------------------------------- several steps


def make_folders(path: Path, root: Path | None = None) -> None:
    """A folder with those above it, as far as they are missing; they survive a power cut.

    With `root`, only those in that folder, which is not made again once it is gone.
    """
    if path == root or path.is_dir():
        return
    make_folders(path.parent, root)
    try:
        make_folder(path)
    except FileExistsError:
        if not path.is_dir():
            raise
    sync_path(path.parent)


def remove_tree(path: Path) -> None:
    """Remove a folder and all that is in it; of links in it only the links."""
    if path.is_symlink():
        remove(path)
        return
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            remove_tree(entry)
        else:
            remove(entry)
    remove_folder(path)
