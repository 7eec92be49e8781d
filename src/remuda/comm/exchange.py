"""Where parcels lie between being published and being read.

A parcel belongs to an epoch, a cell and a round, and is never changed or replaced. After a loss a
new epoch starts, and what a written-off worker may still publish in the old one is never read.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from remuda.errors import StoreError
from remuda.parcels import Parcel, decode_parcel, encode_parcel

_POLL_SECONDS = 0.002


class CancelledError(Exception):
    """A wait that was called off."""


class Exchange(ABC):
    """Put, get, forget; every kind passes the same contract tests."""

    @abstractmethod
    def put(self, epoch: int, parcel: Parcel) -> None:
        """Make a parcel readable; ValueError if this cell's round is there already."""

    @abstractmethod
    def get(self, epoch: int, cells: Sequence[int], round: int) -> list[Parcel]:
        """The parcels of these cells, in the order asked for; LookupError if one is missing."""

    @abstractmethod
    def forget(self, epoch: int, round: int) -> None:
        """Drop all other epochs, and the rounds before this one."""

    def wait(
        self, epoch: int, cells: Sequence[int], round: int, cancelled: Callable[[], bool]
    ) -> list[Parcel]:
        """As `get`, but waits for what is missing; CancelledError when `cancelled` says so."""
        found: list[Parcel] = []
        for cell in cells:
            while True:
                if cancelled():
                    raise CancelledError
                try:
                    found += self.get(epoch, [cell], round)
                    break
                except LookupError:
                    time.sleep(_POLL_SECONDS)
        return found


class MemoryExchange(Exchange):
    """A dictionary for the threads of one process. Parcels are immutable, so references do."""

    def __init__(self) -> None:
        self._parcels: dict[tuple[int, int, int], Parcel] = {}
        self._lock = threading.Lock()

    def put(self, epoch: int, parcel: Parcel) -> None:
        key = (epoch, parcel.cell, parcel.round)
        with self._lock:
            if key in self._parcels:
                raise ValueError(f"cell {parcel.cell} published round {parcel.round} twice")
            self._parcels[key] = parcel

    def get(self, epoch: int, cells: Sequence[int], round: int) -> list[Parcel]:
        with self._lock:
            missing = [cell for cell in cells if (epoch, cell, round) not in self._parcels]
            if missing:
                raise LookupError(f"round {round} was not published by cells {missing}")
            return [self._parcels[epoch, cell, round] for cell in cells]

    def forget(self, epoch: int, round: int) -> None:
        with self._lock:
            self._parcels = {
                key: parcel
                for key, parcel in self._parcels.items()
                if key[0] == epoch and key[2] >= round
            }


class FolderExchange(Exchange):
    """Files in a folder in shared memory, for processes.

    A file is written under a passing name and linked into place, so a reader finds a whole one or
    none, also when the writer is killed, and nothing that is published is ever overwritten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, epoch: int, parcel: Parcel) -> None:
        target = self._path(epoch, parcel.cell, parcel.round)
        target.parent.mkdir(exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            part.write_bytes(encode_parcel(parcel))
            os.link(part, target)
        except FileExistsError:
            raise ValueError(f"cell {parcel.cell} published round {parcel.round} twice") from None
        except OSError as error:
            raise StoreError(f"{target}: cannot be written: {error.strerror or error}") from None
        finally:
            part.unlink(missing_ok=True)

    def get(self, epoch: int, cells: Sequence[int], round: int) -> list[Parcel]:
        found = []
        for cell in cells:
            try:
                found.append(decode_parcel(self._path(epoch, cell, round).read_bytes()))
            except FileNotFoundError:
                raise LookupError(f"round {round} was not published by cells [{cell}]") from None
        return found

    def forget(self, epoch: int, round: int) -> None:
        current = self._path(epoch, 0, 0).parent
        for folder in self.path.glob("epoch-*"):
            if folder != current:
                shutil.rmtree(folder, ignore_errors=True)
        for path in current.glob("cell-*"):
            if int(path.name.rpartition("-")[2]) < round:
                path.unlink(missing_ok=True)

    def _path(self, epoch: int, cell: int, round: int) -> Path:
        return self.path / f"epoch-{epoch}" / f"cell-{cell}-round-{round}"
