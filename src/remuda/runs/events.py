"""The event log of a run: one JSON object per line, appended as things happen."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from remuda.errors import StoreError
from remuda.files import check_memory, disk, open_regular, sync, to_json, write_atomically
from remuda.runs.retention import lines_to_keep

_LONGEST_LINE = 2**26  # bytes; a longer one is no event, and may be the whole of a damaged file


class EventLog:
    """Reads and writes one event log; a line that is not an event is skipped."""

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
        """The events one by one: those of a large run fill gigabytes."""
        return (event for _, event in self._lines())

    def rewind(self, committed: int) -> None:
        """Drop the events of rounds that will be trained again, and a line cut short by a kill."""
        if not self.path.exists():
            return
        check_memory(self.path, self.path.stat().st_size, error=StoreError)
        lines, rounds = [], []
        for line, event in self._lines():
            round = event.get("round")
            lines.append(line)
            rounds.append(round if isinstance(round, int) else None)
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

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Each line that is an event, without its newline, and the event itself."""
        try:
            with open_regular(self.path, follow=False) as file:
                while line := file.readline(_LONGEST_LINE):
                    with contextlib.suppress(ValueError, RecursionError):
                        event = json.loads(line)
                        if isinstance(event, dict):
                            yield line.rstrip(b"\n"), event
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
