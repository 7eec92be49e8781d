"""Turns whatever a damaged file raises into an error that the user can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remuda.errors import DataError, RemudaError


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
    except PermissionError as error:
        raise DataError(f"{path}: permission denied") from error
    # gzip, zip, numpy, pickle and Pillow do not document which errors damaged files raise.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: damaged or in another format: {reason}") from error


def read_bytes(path: Path) -> bytes:
    """The whole file, which must not be empty."""
    with reading(path):
        data = path.read_bytes()
    if not data:
        raise DataError(f"{path}: is empty (0 bytes)")
    return data
