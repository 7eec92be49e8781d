"""Opening files of others: regular ones only, so that nobody waits for a pipe or a device."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_CHUNK = 2**20


class NotRegularError(OSError):
    """A pipe, device, socket or, where links are not followed, a link."""


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; NotRegularError for anything else, without waiting.

    Without `follow` the file itself must not be a link: those inside a run folder never are.
    """
    # Opening a pipe would wait for its writer, were it not for O_NONBLOCK.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
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
