"""A pickle reader for CIFAR's Python files that can build arrays and containers, nothing else.

A pickle may call what it names, with arguments of its choice, and may set the state of the result.
numpy's own callables are not safe against that: `numpy.ndarray` takes any bytes for pointers. So
every name that a pickle of arrays asks for is replaced by a stand-in that checks its arguments, and
the arrays are made only after everything has been read, as copies of checked bytes.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.data.reading import read_bytes, reading
from remuda.errors import DataError


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR file; a pickle that asks for more than arrays is refused."""
    data = read_bytes(path)
    with reading(path):
        content = _unwrapped(_ArrayUnpickler(data, path).load(), {})
    if not isinstance(content, dict):
        raise DataError(f"{path}: holds a {type(content).__name__}; expected CIFAR's dictionary")
    return content


def _unwrapped(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """The value with stand-ins replaced by arrays; shared parts and cycles are kept."""
    if not isinstance(value, _Array | list | dict | tuple):
        return value
    if id(value) not in done:
        # Each result is kept with its original, which must outlive the lookups of its id.
        if isinstance(value, _Array):
            done[id(value)] = (value, value.array())
        elif isinstance(value, list):
            done[id(value)] = (value, value)
            value[:] = [_unwrapped(part, done) for part in value]
        elif isinstance(value, dict):
            done[id(value)] = (value, value)
            value.update({key: _unwrapped(part, done) for key, part in value.items()})
        else:
            done[id(value)] = (value, tuple(_unwrapped(part, done) for part in value))
    return done[id(value)][1]


class _Callable:
    """Something a pickle may call, and nothing else: it is not a class and accepts no state."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *args: Any) -> Any:
        return self._make(*args)

    def __setstate__(self, _: object) -> None:
        raise ValueError("the pickle changes a function, which is refused")


class _Integers:
    """Stands in for `numpy.dtype`: an integer type whose byte order a pickle may set."""

    __slots__ = ("_code", "_order")

    def __init__(self, code: str, *_flags: object) -> None:
        if not isinstance(code, str) or not re.fullmatch("[|<>]?[iu][1248]", code):
            raise ValueError(f"an array of {code!r}; allowed: integers")
        self._order, self._code = code[:-2] or "|", code[-2:]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        plain = (None, None, None, -1, -1, 0)  # no sub-array, names, fields, size, alignment, flags
        if not isinstance(state, tuple) or state[2:] != plain or state[1] not in ("|", "<", ">"):
            raise ValueError("a type with more than a byte order; allowed: integers")
        self._order = state[1]

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._order + self._code)


class _Array:
    """Stands in for `numpy.ndarray`, which a pickle creates empty and then fills by its state."""

    __slots__ = ("_raw", "_shape", "_transposed", "_type")

    def __init__(self, kind: object, *_placeholder: object) -> None:
        if kind is not _NDARRAY:
            raise ValueError("an array of another kind; allowed: numpy.ndarray")
        self._raw: bytes | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, transposed, raw = state
        if isinstance(raw, str):  # bytes written by Python 2
            raw = raw.encode("latin1")
        if not isinstance(raw, bytes) or not isinstance(kind, _Integers):
            raise ValueError("an array of something other than numbers; allowed: integers")
        if not isinstance(shape, tuple) or not all(
            type(side) is int and side >= 0 for side in shape
        ):
            raise ValueError(f"an array of shape {shape!r}; allowed: sizes from 0")
        if math.prod(shape) * kind.dtype().itemsize != len(raw):
            raise ValueError(f"{len(raw)} bytes for an array of shape {shape}")
        self._raw, self._shape, self._type, self._transposed = raw, shape, kind, bool(transposed)

    def array(self) -> npt.NDArray[Any]:
        if self._raw is None:
            raise ValueError("an array without content")
        flat = np.frombuffer(self._raw, self._type.dtype())
        return flat.reshape(self._shape, order="F" if self._transposed else "C").copy()


def _encode(text: str, encoding: str) -> bytes:
    # How pickle protocol 2 stores bytes; other codecs would run code of the pickle's choice.
    if encoding != "latin1":
        raise ValueError(f"text in {encoding!r}; allowed: latin1")
    return text.encode("latin1")


_NDARRAY = object()  # only ever an argument of _reconstruct
_ADMITTED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Callable(_Array),
    ("numpy._core.multiarray", "_reconstruct"): _Callable(_Array),  # since numpy 2
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Callable(_Integers),
    ("_codecs", "encode"): _Callable(_encode),
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
