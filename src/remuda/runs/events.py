"""The event log of a run: one JSON object per line, appended as things happen."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Required

from pydantic import ConfigDict, Discriminator, Tag, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # the one that pydantic asks for before Python 3.12

from remuda.config.records import Amount, Count, first_problem
from remuda.errors import DamagedError, StoreError
from remuda.files import check_memory, disk, open_regular, sync, to_json, write_atomically
from remuda.runs.retention import lines_to_keep

_LONGEST_LINE = 4 * 2**20  # bytes; the weights of a hundred thousand cells take half of it

_Centre = TypedDict("_Centre", {"from": str | int})  # other keys are for people


class _Cost(TypedDict):
    train: float | None
    validation: float | None


class _Event(TypedDict, total=False):
    """What readers of any event rely on; everything else is for people."""

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]  # how pydantic is told
        strict=True, extra="allow", allow_inf_nan=False
    )
    event: Required[str]
    round: Count | None
    cell: Count | None
    centre: dict[str, _Centre]


class _Round(_Event, total=False):
    """A round of a cell; those of earlier versions have fewer fields."""

    round: Required[Count]  # type: ignore[misc]  # no longer None
    cell: Required[Count]  # type: ignore[misc]
    lr_generator: float | None
    lr_discriminator: float | None
    loss: str | None
    r1: float | None
    average: float | None
    images: Count
    batches: Count
    cost: _Cost | None
    seconds: dict[str, Amount]
    cpu_seconds: Amount
    bytes: dict[str, Count]


class _Population(_Event, total=False):
    """A round of all cells."""

    round: Required[Count]  # type: ignore[misc]
    score: float | None
    coverage: dict[str, float | None] | None
    seconds: Amount


def _kind(value: Any) -> str:
    kind = value.get("event") if isinstance(value, dict) else None
    return kind if kind in ("round", "population") else "event"


_EVENT: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        Annotated[_Round, Tag("round")]
        | Annotated[_Population, Tag("population")]
        | Annotated[_Event, Tag("event")],
        Discriminator(_kind),
    ]
)
# Lines that are none at all, as a kill or a full disk leaves them.
_TORN = ("json_invalid", "dict_type")


class EventLog:
    """Reads and writes one event log; a line that is no JSON object is skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: Mapping[str, Any]) -> None:
        line = to_json({"time": datetime.now().isoformat(timespec="milliseconds"), **event})
        try:
            descriptor = disk.open_to_append(self.path)
            try:
                disk.write(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be written: {error.strerror or error}"
            ) from error

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The events one by one, each checked: those of a large run fill gigabytes."""
        for number, line in enumerate(self._lines(), 1):
            try:
                yield _EVENT.validate_json(line)
            except ValidationError as error:
                if not _is_torn(error):
                    raise DamagedError(
                        f"{self.path}: line {number}: not an event: {first_problem(error)}"
                    ) from None

    def rewind(self, committed: int) -> None:
        """Drop the events of rounds that will be trained again, and lines that are no events."""
        if not self.path.exists():
            return
        check_memory(self.path, self.path.stat().st_size, error=StoreError)
        lines, rounds = [], []
        for line in self._lines():
            try:
                rounds.append(_EVENT.validate_json(line).get("round"))
            except ValidationError:
                continue
            lines.append(line)
        kept = lines_to_keep(rounds, committed)
        content = b"".join(lines[number] + b"\n" for number in kept)
        write_atomically(self.path, content, root=self.path.parent)

    def last_saved(self) -> int | None:
        """The last round that was saved, or that a start went on from; None if there is none."""
        return max(filter(None, map(_saved_round, self)), default=None)

    def sync(self) -> None:
        """Make what was appended survive a power cut."""
        if self.path.exists():
            sync(self.path)
            sync(self.path.parent)  # it may be new

    def _lines(self) -> Iterator[bytes]:
        """Each line without its newline; none where there is no log yet."""
        try:
            with open_regular(self.path, follow=False) as file:
                number = 0
                while line := file.readline(_LONGEST_LINE + 1):
                    number += 1
                    if len(line) > _LONGEST_LINE:
                        raise DamagedError(
                            f"{self.path}: line {number}: not an event: longer than "
                            f"{_LONGEST_LINE:,} bytes"
                        )
                    yield line.rstrip(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be read: {error.strerror or error}") from None


def _saved_round(event: Mapping[str, Any]) -> int | None:
    match event:
        case {"event": "saved", "round": int(round)} | {
            "event": "started",
            "after_round": int(round),
        }:
            return round
    return None


def _is_torn(error: ValidationError) -> bool:
    first = error.errors(include_url=False, include_input=False)[0]
    return first["type"] in _TORN and len(first["loc"]) <= 1
