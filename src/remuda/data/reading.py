"""Reads files of strangers, and turns whatever goes wrong into an error for the user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from remuda.errors import DataError, RemudaError
from remuda.files import NotRegularError, check_memory, open_regular

CHUNK = 2**20  # bytes read at a time, so that only what is kept takes memory
_MOST_LETTERS = 200  # of a file's content in a message


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around code that opens and parses `path`: every failure becomes a DataError naming it."""
    try:
        yield
    except RemudaError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise DataError(f"{path}: is a folder; expected a file") from error
    except NotRegularError as error:
        raise DataError(f"{path}: {error.strerror}; expected a file") from error
    except PermissionError as error:
        raise DataError(f"{path}: permission denied") from error
    except MemoryError as error:
        raise DataError(f"{path}: takes more memory than there is") from error
    # gzip, zip, numpy and Pillow do not document which errors damaged files raise.
    except Exception as error:
        reason = brief(str(error)) or type(error).__name__
        raise DataError(f"{path}: damaged or in another format: {reason}") from error


def brief(text: str) -> str:
    """Text of a file as messages show it: one short line, nothing that a terminal obeys."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 2 * _MOST_LETTERS])
    line = " ".join(shown.split())
    return line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…"


def listed(names: Iterable[object], most: int = 10) -> str:
    """The first of the names that a file holds, as messages show them."""
    shown = [brief(str(name)) for name, _ in zip(names, range(most + 1), strict=False)]
    return brief(", ".join(shown[:most])) + (", …" if len(shown) > most else "")


def read_bytes(path: Path) -> bytes:
    """The whole file, which must not be empty."""
    with reading(path), open_regular(path) as file:
        check_memory(path, os.fstat(file.fileno()).st_size)
        data = file.read()
    if not data:
        raise DataError(f"{path}: is empty (0 bytes)")
    return data


class Stream(Protocol):
    """Where bytes come from: a file, or what is inflated from one."""

    def read(self, size: int, /) -> bytes: ...


def fill(array: npt.NDArray[np.uint8], stream: Stream) -> int:
    """Read bytes into an array, part by part; how many there were before the stream's end."""
    place = 0
    while place < len(array):
        part = stream.read(min(CHUNK, len(array) - place))
        if not part:
            break
        array[place : place + len(part)] = np.frombuffer(part, np.uint8)
        place += len(part)
    return place
