"""Reading what remuda has stored, or what somebody says that it has."""

from __future__ import annotations

import os
from pathlib import Path

from remuda.errors import StoreError
from remuda.files.limits import check_memory
from remuda.files.regular import open_regular


def read_stored(path: Path, *, room: int = 1, follow: bool = False) -> bytes:
    """The content of a file of a run or an ensemble, or a StoreError that names the file.

    It is no pipe, device or (unless `follow`) link; `room` is how many bytes of memory each of its
    bytes may come to take.
    """
    try:
        with open_regular(path, follow=follow) as file:
            size = os.fstat(file.fileno()).st_size
            check_memory(path, room * size, f"its {size:,} bytes", StoreError)
            return file.read(size)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None
