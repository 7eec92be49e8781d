"""Files that a reader sees whole, either the old one or the new one, and checks before use."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from remuda.errors import DamagedError, NewerFormatError, StoreError

VERSION = "0.1.0"  # of remuda; run folders and ensembles say which version wrote them
_LONGEST_VALUE = 60  # characters of a bad value that a message shows


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write, flush to disk, then rename into place; nothing is left behind on failure.

    Without `durable`, readers still see all or nothing, but a power cut may undo the write.
    """
    # The name is fixed, so the next writer overwrites what a killed one left behind.
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
        if durable:
            _sync(path.parent)
    except FileNotFoundError:
        # A worker given up for lost that is still running wrote and renamed the same file first.
        if not path.exists():
            raise StoreError(f"{path}: cannot be written: it was removed meanwhile") from None
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def sync(path: Path) -> None:
    """Make what was appended to a file, or renamed in a folder, survive a power cut."""
    try:
        _sync(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any, *, durable: bool = True, indent: int | None = 2) -> None:
    write_atomically(path, (to_json(value, indent) + "\n").encode(), durable=durable)


class Record(BaseModel):
    """The content of a JSON file: types are checked strictly, unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


AnyRecord = TypeVar("AnyRecord", bound=Record)


class _Version(Record):
    format: int


def read_record(
    path: Path, kind: type[AnyRecord], what: str, *, format: int | None = None
) -> AnyRecord:
    """A JSON file checked against its model, or a StoreError that names the file and the problem.

    With `format`, the newest version of the file that this remuda knows, later ones are refused
    with a request to upgrade.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None
    if format is not None:
        _refuse_newer(path, content, format)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise DamagedError(f"{path}: not a {what}: {_first_problem(error)}") from None


def _refuse_newer(path: Path, content: bytes, known: int) -> None:
    try:
        found = _Version.model_validate_json(content).format
    except ValidationError:
        return  # whatever is wrong, the file's own model says it better
    if found > known:
        raise NewerFormatError(
            f"{path}: format {found} was written by a newer remuda; known: {known}; please upgrade"
        )


def _first_problem(error: ValidationError) -> str:
    """One line about the first thing that is wrong: the key, its value, what is expected."""
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    if first["type"] == "missing":
        return f"{key} is missing"
    if not key:
        return message
    value = repr(first["input"])
    short = value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}..."
    return f"{key}={short}: {message}"


def to_json(value: Any, indent: int | None = None) -> str:
    """Standard JSON: NaN and infinity become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
