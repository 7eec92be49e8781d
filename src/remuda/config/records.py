"""JSON files that are checked against a model when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from remuda.errors import DamagedError, NewerFormatError
from remuda.files import read_stored, value_text

# Bytes of memory that one of JSON may take, measured where every value in it is a mistake.
_ROOM = 320
_LONGEST_KEY, _LONGEST_MESSAGE = 100, 300  # characters that are shown


# Numbers that can be added up, compared and written without a surprise.
Count = Annotated[int, Field(ge=0, lt=2**63)]
Amount = Annotated[float, Field(ge=-1e15, le=1e15)]


class Record(BaseModel):
    """The content of a JSON file: types are checked strictly, unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


AnyRecord = TypeVar("AnyRecord", bound=Record)


class _Version(Record):
    format: int


def read_record(
    path: Path,
    kind: type[AnyRecord],
    what: str,
    *,
    format: int | None = None,
    follow: bool = False,
) -> AnyRecord:
    """A JSON file checked against its model, or a StoreError that names the file and the problem.

    With `format`, the newest version of the file that this remuda knows, later ones are refused
    with a request to upgrade. Only where it is to `follow`, the file may be a link.
    """
    content = read_stored(path, room=_ROOM, follow=follow)
    if format is not None:
        _refuse_newer(path, content, format)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise DamagedError(f"{path}: not a {what}: {first_problem(error)}") from None


def _refuse_newer(path: Path, content: bytes, known: int) -> None:
    try:
        found = _Version.model_validate_json(content).format
    except ValidationError:
        return  # whatever is wrong, the file's own model says it better
    if found > known:
        raise NewerFormatError(
            f"{path}: format {found} was written by a newer remuda; known: {known}; please upgrade"
        )


def first_problem(error: ValidationError) -> str:
    """One line about the first thing that is wrong: the key, its value, what is expected."""
    first = error.errors(include_url=False)[0]
    key = ".".join(map(str, first["loc"]))[:_LONGEST_KEY]
    message = " ".join(first["msg"].removeprefix("Value error, ").split())[:_LONGEST_MESSAGE]
    if first["type"] == "missing":
        return f"{key} is missing"
    if not key:
        return message
    return f"{key}={value_text(first['input'])}: {message}"
