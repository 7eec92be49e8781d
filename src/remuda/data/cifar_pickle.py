"""A pickle reader for CIFAR's Python files that can build arrays and containers, nothing else."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from remuda.data.reading import read_bytes, reading
from remuda.errors import DataError


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR file; a pickle that asks for more than arrays is refused."""
    data = read_bytes(path)
    with reading(path):
        content = _ArrayUnpickler(data, path).load()
    if not isinstance(content, dict):
        raise DataError(f"{path}: holds a {type(content).__name__}; expected CIFAR's dictionary")
    return content


def _dtype(code: str, *_flags: object) -> np.dtype[Any]:
    # Python 2 wrote the flags as integers, which numpy now warns about; a copy is always safe.
    dtype = np.dtype(code, copy=True)
    if dtype.kind not in "iu":
        raise ValueError(f"an array of {code!r}; allowed: integers")
    return dtype


def _encode(text: str, encoding: str) -> bytes:
    # How pickle protocol 2 spells bytes; other codecs would run code of the pickle's choice.
    if encoding != "latin1":
        raise ValueError(f"text in {encoding!r}; allowed: latin1")
    return text.encode("latin1")


# numpy has moved this function twice; an array's own pickle says where it is now.
_reconstruct: Any = np.empty(0).__reduce__()[0]
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise DataError(
                f"{self._path}: the pickle asks for {module}.{name}, which is refused; "
                "allowed: arrays of numbers, and plain containers"
            )
        return _ADMITTED[module, name]
