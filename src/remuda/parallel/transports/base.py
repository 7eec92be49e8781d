"""How master, workers and cells talk, whatever the transport.

Three planes on every engine: *control* (tasks, status, reports: small messages between master
and workers), *exchange* (parcels between the cells of active workers, see `exchange.py`) and
*results* (parcels to the master).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence

from remuda.gan.parcels import Parcel, Part
from remuda.parallel.exchange import Exchange
from remuda.parallel.messages import Message


class MasterGoneError(Exception):
    """The master is gone: nobody will ask for our results any more."""


class MasterComm(ABC):
    """The master's end."""

    @abstractmethod
    def workers(self) -> list[int]:
        """All workers that were started and not dismissed."""

    @abstractmethod
    def send(self, worker: int, message: Message) -> None:
        """Send a worker a message; to a worker that is gone, nothing, and that is no error."""

    @abstractmethod
    def receive(self, timeout: float) -> list[tuple[int, Message]]:
        """What the workers sent, waiting at most this long for the first message."""

    @abstractmethod
    def gone(self) -> set[int]:
        """Workers that have certainly ended."""

    @abstractmethod
    def dismiss(self, worker: int) -> None:
        """Make sure that a worker does no more harm, and forget it."""

    @abstractmethod
    def replace(self) -> int | None:
        """Start one more worker; None where the engine cannot."""

    @abstractmethod
    def results(
        self, wanted: Mapping[int, Sequence[int]], term: int, round: int, part: str = ""
    ) -> dict[int, Parcel]:
        """The parcels of a round that these workers' cells have finished, by cell.

        With `part`, at least the tensors whose names start with it. LostResultsError where a worker
        can no longer be asked.
        """

    @abstractmethod
    def forget(self, term: int, round: int) -> None:
        """Drop parcels of earlier terms and rounds; nobody will ask for them."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and leave nothing behind."""


class WorkerComm(ABC):
    """A worker's end. Engines differ in where parcels lie, not in how they are waited for."""

    exchange: Exchange

    @property
    @abstractmethod
    def master_gone(self) -> bool:
        """Whether nobody will ask for our results any more."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send the master a message."""

    @abstractmethod
    def receive(self, timeout: float) -> Message | None:
        """What the master sent, or None after the timeout; MasterGoneError when it is gone."""

    @abstractmethod
    def publish(self, term: int, parcel: Parcel, readers: Collection[int], part: Part = "") -> None:
        """Make a parcel readable for the cells of these workers, for its own and for the master.

        Of `part`, those cells may get no more.
        """

    def collect(
        self,
        term: int,
        cells: Sequence[int],
        round: int,
        cancelled: Callable[[], bool],
        part: Part = "",
    ) -> list[Parcel]:
        """The parcels these cells published for this round, in the order asked for; only `part`.

        Waits for those that are not there yet; CancelledError when `cancelled` says so.
        """
        called_off = self._called_off(cancelled)
        found = self.exchange.wait(term, cells, round, called_off, part)
        return [parcel.only(part) for parcel in found]

    def collect_newest(
        self,
        term: int,
        cells: Sequence[int],
        oldest: int,
        cancelled: Callable[[], bool],
        part: Part = "",
    ) -> list[Parcel]:
        """The newest parcel of each cell; waits only where it is of a round before `oldest`."""
        called_off = self._called_off(cancelled)
        found = self.exchange.wait_for_newest(term, cells, oldest, called_off, part)
        return [parcel.only(part) for parcel in found]

    def _called_off(self, cancelled: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: cancelled() or self.master_gone
