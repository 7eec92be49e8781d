"""Arrays in numpy's own format, read without trusting what their headers declare."""

from __future__ import annotations

import math
import os
import re
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from remuda.data.reading import Stream, brief, fill, listed
from remuda.errors import DataError
from remuda.files import check_memory

Array = npt.NDArray[Any]

MAGIC = b"\x93NUMPY"
_MOST_HEADER = 10_000  # bytes; numpy's own limit
_KEYS = {
    "descr": re.compile(rb"""['"]descr['"]\s*:\s*['"]([^'"]{0,99})['"]"""),
    "fortran_order": re.compile(rb"""['"]fortran_order['"]\s*:\s*(True|False)"""),
    "shape": re.compile(rb"""['"]shape['"]\s*:\s*\(([\d\sL,]*)\)"""),
}
_TYPE = re.compile(r"[<>|=]?([iuf](1|2|4|8|16)|U\d{1,6})")
_MOST_DIMENSIONS, _MOST_DIGITS = 32, 18
_MOST_AT_ONCE = 2**22  # bytes; a directory of some fifty thousand arrays


def read_npy(stream: Stream, size: int, where: str) -> Array:
    """The array of numbers or words in a stream of at most `size` bytes."""
    start = stream.read(8)
    if not start.startswith(MAGIC):
        raise DataError(f"{where}: not an npy file (starts with 0x{start[:4].hex()})")
    length = "<H" if start[6:7] == b"\x01" else "<I"
    (header,) = struct.unpack(length, stream.read(struct.calcsize(length)))
    if header > _MOST_HEADER:
        raise DataError(f"{where}: a header of {header} bytes; allowed: {_MOST_HEADER}")
    dtype, shape, is_fortran = _declared(stream.read(header), where)
    wanted = math.prod(shape) * dtype.itemsize
    left = size - len(start) - struct.calcsize(length) - header
    if wanted > left:
        raise DataError(
            f"{where}: truncated: shape {shape} of {dtype} needs {wanted} bytes, found {left}"
        )
    floats = 0 if dtype == np.uint8 or dtype.kind == "U" else 4 * math.prod(shape)
    check_memory(where, wanted + floats, f"an array of shape {shape}")
    content = np.empty(wanted, np.uint8)
    found = fill(content, stream)
    if found < wanted:
        raise DataError(
            f"{where}: truncated: shape {shape} of {dtype} needs {wanted} bytes, found {found}"
        )
    return content.view(dtype).reshape(shape, order="F" if is_fortran else "C")


def _declared(header: bytes, where: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Type, shape and order, by the three keys that a header has: it is no program to be run."""
    found = {key: pattern.search(header) for key, pattern in _KEYS.items()}
    kind, order, sides = found["descr"], found["fortran_order"], found["shape"]
    if kind is None or order is None or sides is None:
        raise DataError(f"{where}: not an array of numbers: {brief(header.decode('latin1'))}")
    name = kind[1].decode("latin1")
    if not _TYPE.fullmatch(name):
        raise DataError(f"{where}: holds values of type {brief(name)}; expected numbers")
    lengths = sides[1].replace(b"L", b"").replace(b",", b" ").split()
    if len(lengths) > _MOST_DIMENSIONS or any(len(length) > _MOST_DIGITS for length in lengths):
        raise DataError(f"{where}: shape ({brief(sides[1].decode())}); expected that of images")
    return np.dtype(name), tuple(map(int, lengths)), order[1] == b"True"


class Archive:
    """The arrays in an npz file, by their names."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._path = path
        self._zip = zipfile.ZipFile(_InParts(file))
        self._members = {
            member.filename.removesuffix(".npy"): member for member in self._zip.infolist()
        }

    def first(self, keys: tuple[str, ...]) -> str | None:
        """The first of the keys that there is an array for."""
        return next((key for key in keys if key in self._members), None)

    @property
    def names(self) -> str:
        return listed(self._members) or "nothing"

    def read(self, key: str) -> Array:
        member = self._members[key]
        where = f"{self._path}: {key}"
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # Others inflate as much at a time as their input gives.
            raise DataError(f"{where}: packed by method {member.compress_type}; allowed: deflate")
        with self._zip.open(member) as stream:
            return read_npy(stream, member.file_size, where)


class _InParts:
    """A file that is never read in one go: not even a zip's directory, if it is a huge one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            place = self.tell()
            size = self.seek(0, os.SEEK_END) - place
            self.seek(place)
        if size > _MOST_AT_ONCE:
            raise ValueError(f"a directory of {size} bytes; allowed: {_MOST_AT_ONCE}")
        return self._file.read(size)
