"""Files and folders of others: regular files only, so that nobody waits for a pipe or a device,
and no folder that leads elsewhere."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from remuda.errors import StoreError

_CHUNK = 2**20


class NotRegularError(OSError):
    """A pipe, device, socket or, where links are not followed, a link."""


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; NotRegularError for anything else, without waiting.

    Without `follow` the file itself must not be a link: those inside a run folder never are.
    """
    # Opening a pipe would wait for its writer, were it not for O_NONBLOCK.
    flags = os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        if not follow and error.errno == errno.ELOOP:
            raise NotRegularError(errno.EINVAL, "is a link; expected a file", str(path)) from None
        if error.errno == errno.ENXIO:
            raise NotRegularError(errno.EINVAL, "is not a regular file", str(path)) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotRegularError(errno.EINVAL, "is not a regular file", str(path))
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, *, follow: bool = True) -> bytes:
    """The content of a regular file."""
    with open_regular(path, follow=follow) as file:
        return file.read()


def real_folder(root: Path, *names: str) -> Path:
    """A folder in another, or where it would be; StoreError if a link on the way leads elsewhere.

    The outer folder may be a link: it is where its user wants it to be.
    """
    path = root
    for name in names:
        path = path / name
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None
        if not stat.S_ISDIR(mode):
            found = "a link" if stat.S_ISLNK(mode) else "not a folder"
            raise StoreError(f"{path}: is {found}; allowed: a folder of its own")
    return path
