"""What the master's state machine asks its driver to do: plain values, carried out in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.errors import RemudaError
from remuda.methods import RoundReport
from remuda.parallel.messages import Message, RunTask, Saved
from remuda.parallel.protocol import HostInfo, WorkerStatus


@dataclass(frozen=True)
class Send:
    """Send a message to a worker."""

    worker: int
    message: Message


@dataclass(frozen=True)
class Dismiss:
    """Make sure that a worker does no more harm, and forget it."""

    worker: int


@dataclass(frozen=True)
class StartWorker:
    """Start one more worker; answer with `worker_started` or `no_worker_started`."""


@dataclass(frozen=True)
class AnnounceStart:
    """Every worker is up: record that the run starts, or continues, after a round."""

    round: int
    hosts: Mapping[int, HostInfo]


@dataclass(frozen=True)
class BeginTerm:
    """Send these tasks and record the placement."""

    term: int
    start: int
    placement: Mapping[int, tuple[int, ...]]
    hosts: Mapping[int, HostInfo]
    tasks: Mapping[int, RunTask]


@dataclass(frozen=True)
class RecordLoss:
    """Record that a worker was written off with its cells."""

    worker: int
    silence: float
    cells: tuple[int, ...]
    still: float | None = None  # seconds without progress, where that is why


@dataclass(frozen=True)
class RecordEvent:
    """Record something as it is. Without a round: it stays when rounds are trained again."""

    event: Mapping[str, Any]


@dataclass(frozen=True)
class RewindEvents:
    """Drop the events of rounds after this one: they will be trained again."""

    round: int


@dataclass(frozen=True)
class ShowProgress:
    """A cell is at a batch of its round."""

    cell: int
    round: int
    batch: int
    batches: int


@dataclass(frozen=True)
class Report:
    """Record and show what a cell did in a round."""

    report: RoundReport


@dataclass(frozen=True)
class CompleteRound:
    """All cells have reported a round: reduce it, draw its sheets, then call `round_completed`.

    Where a worker no longer has its results, call `results_lost` instead.
    """

    round: int


@dataclass(frozen=True)
class Forget:
    """Parcels of earlier terms, and of this term's rounds before this one, are not needed."""

    term: int
    round: int


@dataclass(frozen=True)
class SaveRound:
    """Write the manifest of a round whose files are on disk, then call `round_saved`."""

    round: int
    files: tuple[Saved, ...]


@dataclass(frozen=True)
class ShowRound:
    """A round is complete and its workers know: clear old checkpoints if it was saved, show it."""

    round: int
    saved: bool


@dataclass(frozen=True)
class WriteStatus:
    """Write and show what is known of the workers, then call `status_written`."""

    workers: tuple[WorkerStatus, ...]


@dataclass(frozen=True)
class Warn:
    """Tell the user something, though the run goes on."""

    text: str


@dataclass(frozen=True)
class Fail:
    """End the run with this error; the last complete round is saved if possible."""

    error: RemudaError


@dataclass(frozen=True)
class Finish:
    """All rounds are complete and every worker is done: reduce to the result."""


Command = (
    Send
    | Dismiss
    | StartWorker
    | AnnounceStart
    | BeginTerm
    | RecordLoss
    | RecordEvent
    | RewindEvents
    | ShowProgress
    | Report
    | CompleteRound
    | Forget
    | SaveRound
    | ShowRound
    | WriteStatus
    | Warn
    | Fail
    | Finish
)
