"""Where parcels lie between being published and being read.

A parcel belongs to a term, a cell and a round, and is never changed or replaced. After a loss a
new term begins, and what a lost worker may still publish in the old one is never read.

Synchronous readers ask for a round; asynchronous ones look into the cell's mailbox, in which the
newest parcel wins.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from remuda.errors import StoreError
from remuda.files import disk
from remuda.gan.parcels import Parcel, ParcelError, Part, map_parcel

# Between two looks: short at first, for cells of a kind are ready at about the same time.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0001, 0.002


class CancelledError(Exception):
    """A wait that was cancelled."""


class LostResultsError(Exception):
    """A worker that should have sent its parcels did not."""

    def __init__(self, worker: int) -> None:
        super().__init__(f"worker {worker} did not send its results")
        self.worker = worker


class Exchange(ABC):
    """Put, get and forget parcels; all implementations pass the same contract tests."""

    @abstractmethod
    def put(self, term: int, parcel: Parcel) -> None:
        """Make a parcel readable; ValueError if this cell's round is there already."""

    @abstractmethod
    def get(self, term: int, cells: Sequence[int], round: int, part: Part = "") -> list[Parcel]:
        """The parcels of these cells, in the order asked for; LookupError if one is missing.

        With `part`, at least the tensors whose names start with it.
        """

    def gather(
        self, wanted: Mapping[int, Sequence[int]], term: int, round: int, part: str = ""
    ) -> dict[int, Parcel]:
        """The parcels of these workers' cells, by cell, for a master that shares the exchange.

        LostResultsError where a worker has not published what it said it had.
        """
        found: dict[int, Parcel] = {}
        for worker, cells in wanted.items():
            try:
                found.update(zip(cells, self.get(term, cells, round, part), strict=True))
            except (LookupError, ParcelError):
                raise LostResultsError(worker) from None
        return found

    @abstractmethod
    def newest(self, term: int, cell: int, part: Part = "") -> Parcel:
        """The parcel of the latest round that this cell published; LookupError if none."""

    @abstractmethod
    def forget(self, term: int, round: int) -> None:
        """Drop earlier terms, and this one's rounds before this round.

        Not later terms: a peer may be in the next one before we hear of it.
        """

    def wait(
        self,
        term: int,
        cells: Sequence[int],
        round: int,
        cancelled: Callable[[], bool],
        part: Part = "",
    ) -> list[Parcel]:
        """As `get`, but waits for what is missing; CancelledError when `cancelled` says so."""
        return [
            _until(lambda: self.get(term, [cell], round, part)[0], cancelled)  # noqa: B023 - at once
            for cell in cells
        ]

    def wait_for_newest(
        self,
        term: int,
        cells: Sequence[int],
        oldest: int,
        cancelled: Callable[[], bool],
        part: Part = "",
    ) -> list[Parcel]:
        """The newest parcel of each cell; waits only where it is of a round before `oldest`."""

        def fresh(cell: int) -> Parcel:
            found = self.newest(term, cell, part)
            if found.round < oldest:
                raise LookupError(f"cell {cell} has not come to round {oldest}")
            return found

        return [_until(lambda: fresh(cell), cancelled) for cell in cells]  # noqa: B023 - at once


def _until(look: Callable[[], Parcel], cancelled: Callable[[], bool]) -> Parcel:
    pause = _SHORTEST_PAUSE
    while True:
        if cancelled():
            raise CancelledError
        try:
            return look()
        except LookupError:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class MemoryExchange(Exchange):
    """A dictionary for the threads of one process. Parcels are immutable, so references do."""

    def __init__(self) -> None:
        self._parcels: dict[tuple[int, int, int], Parcel] = {}
        self._mailbox: dict[tuple[int, int], Parcel] = {}
        self._lock = threading.Lock()

    def put(self, term: int, parcel: Parcel) -> None:
        key = (term, parcel.cell, parcel.round)
        with self._lock:
            if key in self._parcels:
                raise ValueError(f"cell {parcel.cell} published round {parcel.round} twice")
            self._parcels[key] = parcel
            there = self._mailbox.get((term, parcel.cell))
            if there is None or there.round < parcel.round:
                self._mailbox[term, parcel.cell] = parcel

    def get(self, term: int, cells: Sequence[int], round: int, part: Part = "") -> list[Parcel]:
        with self._lock:
            missing = [cell for cell in cells if (term, cell, round) not in self._parcels]
            if missing:
                raise LookupError(f"round {round} was not published by cells {missing}")
            return [self._parcels[term, cell, round] for cell in cells]

    def newest(self, term: int, cell: int, part: Part = "") -> Parcel:
        with self._lock:
            if (term, cell) not in self._mailbox:
                raise LookupError(f"cell {cell} published nothing")
            return self._mailbox[term, cell]

    def forget(self, term: int, round: int) -> None:
        with self._lock:
            self._parcels = {
                key: parcel
                for key, parcel in self._parcels.items()
                if key[0] > term or (key[0] == term and key[2] >= round)
            }
            self._mailbox = {key: parcel for key, parcel in self._mailbox.items() if key[0] >= term}


class FolderExchange(Exchange):
    """Files in a folder in shared memory, for processes.

    A file is written under a temporary name and linked into place, so a reader finds a whole one
    or none, even when the writer is killed, and nothing that is published is ever overwritten. One
    process publishes a cell, round after round, so what it put last is the newest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, term: int, parcel: Parcel) -> None:
        target = self._path(term, parcel.cell, parcel.round)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with suppress(FileExistsError):
                disk.make_folder(target.parent)
            self._write(part, parcel)
            disk.link(part, target)
            # The name of the newest moves on to it: a second name of one file, not a copy.
            disk.replace(part, self._mailbox(term, parcel.cell))
        except FileExistsError:
            raise ValueError(f"cell {parcel.cell} published round {parcel.round} twice") from None
        except OSError as error:
            raise StoreError(f"{target}: cannot be written: {error.strerror or error}") from None
        finally:
            with suppress(OSError):
                disk.remove(part)

    def _write(self, part: Path, parcel: Parcel) -> None:
        descriptor = disk.create(part)
        try:
            disk.write(descriptor, parcel.chunks)
        finally:
            os.close(descriptor)

    def get(self, term: int, cells: Sequence[int], round: int, part: Part = "") -> list[Parcel]:
        found = []
        for cell in cells:
            try:
                found.append(map_parcel(self._path(term, cell, round), part))
            except FileNotFoundError:
                raise LookupError(f"round {round} was not published by cells [{cell}]") from None
        return found

    def newest(self, term: int, cell: int, part: Part = "") -> Parcel:
        mailbox = self._mailbox(term, cell)
        # Under a name of its own: reading opens it twice, and a newer one may come in between.
        own = mailbox.with_name(f".{mailbox.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            disk.link(mailbox, own)
            return map_parcel(own, part)
        except FileNotFoundError:
            raise LookupError(f"cell {cell} published nothing") from None
        finally:
            disk.remove(own)

    def forget(self, term: int, round: int) -> None:
        current = self._path(term, 0, 0).parent
        for folder in self.path.glob("term-*"):
            if int(folder.name.rpartition("-")[2]) < term:
                with suppress(OSError):
                    disk.remove_tree(folder)
        for path in current.glob("cell-*"):
            if int(path.name.rpartition("-")[2]) < round:
                disk.remove(path)

    def _path(self, term: int, cell: int, round: int) -> Path:
        return self.path / f"term-{term}" / f"cell-{cell}-round-{round}"

    def _mailbox(self, term: int, cell: int) -> Path:
        return self.path / f"term-{term}" / f"newest-{cell}"
