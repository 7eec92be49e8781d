"""A reader for CIFAR's Python files that can build arrays and containers, nothing else.

A pickle may call what it names, with arguments of its choice, and Python's own reader allocates
what it declares. This one knows only the few instructions that such files consist of. Names stand
for themselves and are never looked up; an array is a view of the file's bytes; and no instruction
makes anything larger than what it takes from the file.
"""

from __future__ import annotations

import codecs
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.data.reading import brief, read_bytes, reading
from remuda.errors import DataError
from remuda.files import check_memory

_STEP_BYTES = 100  # that one instruction may take: an empty list and its place
_STEPS_BETWEEN_CHECKS = 2**16
_LONG = 2**16  # bytes; longer byte strings are not copied
_MOST_DIMENSIONS = 8


def read_pickle(path: Path) -> dict[str | bytes, Any]:
    """The dictionary in a CIFAR file; a pickle that asks for more than arrays is refused."""
    data = read_bytes(path)
    with reading(path):
        content = _Reader(data, path).read()
    if not isinstance(content, dict):
        raise DataError(f"{path}: holds a {type(content).__name__}; expected CIFAR's dictionary")
    for key, value in content.items():
        if isinstance(value, _Array):
            with reading(path):
                content[key] = value.array()
    return content


@dataclass(frozen=True)
class _Name:
    """What a pickle calls by name."""

    text: str


class _Integers:
    """What `numpy.dtype` gives: an integer type whose byte order a pickle may set."""

    def __init__(self, code: object, *_flags: object) -> None:
        if not isinstance(code, str) or not re.fullmatch("[|<>]?[iu][1248]", code):
            raise ValueError(f"an array of {_shown(code)}; allowed: integers")
        self._order, self._code = code[:-2] or "|", code[-2:]

    def build(self, state: object) -> None:
        plain = (None, None, None, -1, -1, 0)  # no sub-array, names, fields, size, alignment, flags
        if not isinstance(state, tuple) or len(state) != 8 or state[2:] != plain:
            raise ValueError("a type with more than a byte order; allowed: integers")
        if state[1] not in ("|", "<", ">"):
            raise ValueError("a type with more than a byte order; allowed: integers")
        self._order = state[1]

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._order + self._code)


class _Array:
    """What `numpy.ndarray` gives: a pickle creates it empty and then fills it by its state."""

    def __init__(self, kind: object, *_placeholder: object) -> None:
        if kind != _NDARRAY:
            raise ValueError("an array of another kind; allowed: numpy.ndarray")
        self._array: npt.NDArray[Any] | None = None

    def build(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise ValueError("an array without its five parts")
        _, shape, kind, is_transposed, raw = state
        if not isinstance(raw, bytes | memoryview) or not isinstance(kind, _Integers):
            raise ValueError("an array of something other than numbers; allowed: integers")
        if (
            not isinstance(shape, tuple)
            or len(shape) > _MOST_DIMENSIONS
            or not all(type(side) is int and 0 <= side < 2**62 for side in shape)
        ):
            raise ValueError(f"an array of shape {_shown(shape)}; allowed: sizes from 0")
        if math.prod(shape) * kind.dtype().itemsize != len(raw):
            raise ValueError(f"{len(raw)} bytes for an array of shape {shape}")
        flat = np.frombuffer(raw, kind.dtype())
        self._array = flat.reshape(shape, order="F" if is_transposed else "C")

    def array(self) -> npt.NDArray[Any]:
        if self._array is None:
            raise ValueError("an array without content")
        return self._array


def _shown(value: object) -> str:
    """A value as messages show it; what is nested may be far longer than the file."""
    return brief(repr(value)) if isinstance(value, str | int) else f"a {type(value).__name__}"


_NDARRAY = _Name("numpy.ndarray")
_ENCODE = _Name("_codecs.encode")
_MAKERS: dict[_Name, Callable[..., Any]] = {
    _Name("numpy.core.multiarray._reconstruct"): _Array,
    _Name("numpy._core.multiarray._reconstruct"): _Array,  # since numpy 2
    _Name("numpy.dtype"): _Integers,
}


class _Reader:
    """Follows the instructions of a pickle: a stack of values, and a memo of those used again."""

    def __init__(self, data: bytes, path: Path) -> None:
        self._data, self._path, self._place = data, path, 0
        self._stack: list[Any] = []
        self._marks: list[int] = []  # the height of the stack where each open container starts
        self._memo: dict[int, Any] = {}
        self._encoded: dict[int, tuple[str, bytes]] = {}  # by the id of the text, which is kept

    def read(self) -> Any:
        steps = 0
        while (code := bytes(self.take(1))) != b".":
            steps += 1
            if steps % _STEPS_BETWEEN_CHECKS == 0:
                check_memory(self._path, len(self._data) + steps * _STEP_BYTES)
            if code in _VALUES:
                self._stack.append(_VALUES[code](self))
            elif code in _ACTIONS:
                _ACTIONS[code](self)
            else:
                raise ValueError(f"instruction 0x{code.hex()}, which CIFAR's files do not have")
        return self.pop()

    def take(self, size: int) -> memoryview:
        start, self._place = self._place, self._place + size
        if self._place > len(self._data):
            raise ValueError(f"truncated: {size} bytes expected, {len(self._data) - start} left")
        return memoryview(self._data)[start : self._place]

    def number(self, kind: str) -> Any:
        (number,) = struct.unpack(kind, self.take(struct.calcsize(kind)))
        return number

    def line(self) -> bytes:
        end = self._data.find(b"\n", self._place)
        if end < 0:
            raise ValueError("truncated within a line")
        return bytes(self.take(end + 1 - self._place)[:-1])

    def top(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise ValueError("an instruction without its values")
        return self._stack[-1]

    def pop(self) -> Any:
        self.top()
        return self._stack.pop()

    def pop_all(self, count: int) -> tuple[Any, ...]:
        return tuple([self.pop() for _ in range(count)][::-1])

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def pop_to_mark(self) -> list[Any]:
        if not self._marks:
            raise ValueError("the end of what has no start")
        height = self._marks.pop()
        values = self._stack[height:]
        del self._stack[height:]
        return values

    def remember(self, number: int | None = None) -> None:
        self._memo[len(self._memo) if number is None else number] = self.top()

    def recall(self, number: int) -> Any:
        if number not in self._memo:
            raise ValueError(f"part {number} is used before it is there")
        return self._memo[number]

    def extend(self, values: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            raise ValueError(f"values are added to a {type(target).__name__}; allowed: a list")
        target += values

    def update(self, values: list[Any]) -> None:
        target = self.top()
        if type(target) is not dict or len(values) % 2:
            raise ValueError(f"entries are added to a {type(target).__name__}; allowed: pairs")
        target.update(_dictionary(values))

    def call(self) -> Any:
        name, args = self.pop_all(2)
        if not isinstance(name, _Name) or not isinstance(args, tuple):
            raise ValueError(f"a {type(name).__name__} is not callable")
        if name == _ENCODE:
            return self._bytes(*args)
        if name not in _MAKERS:
            raise ValueError(f"{name.text} is not callable here")
        return _MAKERS[name](*args)

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if isinstance(target, _Integers):
            target.build(state)
        elif isinstance(target, _Array):
            if isinstance(state, tuple) and state and isinstance(state[-1], str):
                state = (*state[:-1], self._bytes(state[-1]))  # written by Python 2
            target.build(state)
        else:
            raise ValueError("the pickle changes what is no array, which is refused")

    def _bytes(self, text: object, encoding: object = "latin1") -> bytes:
        """How Python 2 and protocol 2 store bytes, made once however often they are asked for."""
        if encoding != "latin1" or not isinstance(text, str):
            raise ValueError(f"text in {_shown(encoding)}; allowed: latin1")
        if id(text) not in self._encoded:
            self._encoded[id(text)] = text, text.encode("latin1")
        return self._encoded[id(text)][1]


def _name(module: object, name: object) -> _Name:
    found = _Name(f"{module}.{name}")
    if found not in (_NDARRAY, _ENCODE, *_MAKERS):
        raise ValueError(
            f"the pickle asks for {brief(found.text)}, which is refused; "
            "allowed: arrays of numbers, and plain containers"
        )
    return found


def _dictionary(values: list[Any]) -> dict[str | bytes, Any]:
    keys = values[::2]
    if not all(isinstance(key, str | bytes) for key in keys):
        raise ValueError("a key that is not text")  # whose hash could take for ever
    return dict(zip(keys, values[1::2], strict=True))


def _integer(line: bytes) -> int | bool:
    return bool(int(line)) if line in (b"00", b"01") else int(line)


def _quoted(line: bytes) -> str:
    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
        raise ValueError("text without quotes")
    return codecs.escape_decode(line[1:-1])[0].decode("latin1")


def _whole(part: memoryview) -> int:
    return int.from_bytes(part, "little", signed=True)


def _binary(part: memoryview) -> bytes | memoryview:
    return part if len(part) > _LONG else bytes(part)


def _latin(part: memoryview) -> str | memoryview:
    """Text as Python 2 wrote it, unless it is so long that it can only be an array's bytes."""
    return part if len(part) > _LONG else str(part, "latin1")


def _unicode(part: memoryview) -> str:
    return str(part, "utf-8", "surrogatepass")


_VALUES: dict[bytes, Callable[[_Reader], Any]] = {
    b"N": lambda _: None,
    b"\x88": lambda _: True,
    b"\x89": lambda _: False,
    b"I": lambda reader: _integer(reader.line()),
    b"J": lambda reader: reader.number("<i"),
    b"K": lambda reader: reader.number("<B"),
    b"M": lambda reader: reader.number("<H"),
    b"L": lambda reader: int(reader.line().rstrip(b"L")),
    b"\x8a": lambda reader: _whole(reader.take(reader.number("<B"))),
    b"\x8b": lambda reader: _whole(reader.take(reader.number("<I"))),
    b"F": lambda reader: float(reader.line()),
    b"G": lambda reader: reader.number(">d"),
    b"S": lambda reader: _quoted(reader.line()),
    b"T": lambda reader: _latin(reader.take(reader.number("<I"))),
    b"U": lambda reader: _latin(reader.take(reader.number("<B"))),
    b"B": lambda reader: _binary(reader.take(reader.number("<I"))),
    b"C": lambda reader: _binary(reader.take(reader.number("<B"))),
    b"\x8e": lambda reader: _binary(reader.take(reader.number("<Q"))),
    b"V": lambda reader: reader.line().decode("raw-unicode-escape"),
    b"X": lambda reader: _unicode(reader.take(reader.number("<I"))),
    b"\x8c": lambda reader: _unicode(reader.take(reader.number("<B"))),
    b"\x8d": lambda reader: _unicode(reader.take(reader.number("<Q"))),
    b"]": lambda _: [],
    b")": lambda _: (),
    b"}": lambda _: {},
    b"l": lambda reader: reader.pop_to_mark(),
    b"t": lambda reader: tuple(reader.pop_to_mark()),
    b"d": lambda reader: _dictionary(reader.pop_to_mark()),
    b"\x85": lambda reader: reader.pop_all(1),
    b"\x86": lambda reader: reader.pop_all(2),
    b"\x87": lambda reader: reader.pop_all(3),
    b"g": lambda reader: reader.recall(int(reader.line())),
    b"h": lambda reader: reader.recall(reader.number("<B")),
    b"j": lambda reader: reader.recall(reader.number("<I")),
    b"c": lambda reader: _name(reader.line().decode("latin1"), reader.line().decode("latin1")),
    b"\x93": lambda reader: _name(*reader.pop_all(2)),
    b"R": lambda reader: reader.call(),
}
_ACTIONS: dict[bytes, Callable[[_Reader], object]] = {
    b"\x80": lambda reader: reader.take(1),  # the protocol
    b"\x95": lambda reader: reader.take(8),  # how much follows
    b"(": lambda reader: reader.mark(),
    b"0": lambda reader: reader.pop(),
    b"1": lambda reader: reader.pop_to_mark(),
    b"a": lambda reader: reader.extend([reader.pop()]),
    b"e": lambda reader: reader.extend(reader.pop_to_mark()),
    b"s": lambda reader: reader.update(list(reader.pop_all(2))),
    b"u": lambda reader: reader.update(reader.pop_to_mark()),
    b"p": lambda reader: reader.remember(int(reader.line())),
    b"q": lambda reader: reader.remember(reader.number("<B")),
    b"r": lambda reader: reader.remember(reader.number("<I")),
    b"\x94": lambda reader: reader.remember(),
    b"b": lambda reader: reader.build(),
}
