"""JSON files that are checked against a model when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from remuda.errors import DamagedError, NewerFormatError, StoreError

_LONGEST_VALUE = 60  # characters of a bad value that a message shows


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
