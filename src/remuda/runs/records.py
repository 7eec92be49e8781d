"""The JSON files of a run folder that are read back: env.json, result.json and status.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from remuda.config.records import Amount, Count, Record

ID_PATTERN = r"^[0-9a-f]{16}$"
_PRINTABLE = r"^[ -~]{1,120}$"  # for it is shown
_Figure = Annotated[int, Field(ge=-(2**53), le=2**53)] | float | None


class DataSummary(Record):
    """Which data a run trains on."""

    name: str | None = None
    items: Count | None = None
    fingerprint: str | None = None


class Machine(Record):
    """What a run is computed on, and a fingerprint of the bits that come out of it."""

    processor: str = Field(pattern=_PRINTABLE)
    capability: str = Field(pattern=_PRINTABLE)  # of ATen's kernels
    fingerprint: str = Field(pattern=ID_PATTERN)

    def __str__(self) -> str:
        return f"{self.processor}, {self.capability}, fingerprint {self.fingerprint}"


class Environment(Record):
    """Where a run was started: its software, its settings and its data."""

    id: str | None = Field(None, pattern=ID_PATTERN)  # absent in runs of earlier versions
    remuda: str | None = None
    torch: str | None = None
    platform: str | None = None
    config: dict[str, Any] | None = None
    machine: Machine | None = None  # absent in runs of earlier versions
    data: DataSummary = Field(default_factory=DataSummary)
    attachments: dict[str, str] = Field(default_factory=dict)  # SHA-256 by file name


class ScoreSummary(Record):
    """Final scores, or the coverage of known modes."""

    values: dict[str, _Figure]
    modes: Count | None = None
    # What the figures depend on; absent where modes are known, and in part in old files.
    extractor: str | None = None
    extractor_id: str | None = None
    scaling: str | None = None
    samples: Count | None = None
    real: str | None = None
    real_samples: Count | None = None


class RunResult(Record):
    """What a finished run came to."""

    rounds: Count | None = None
    seconds: Amount | None = None
    images: Count | None = None
    batches: Count | None = None
    cpu_seconds: Amount | None = None
    scores: ScoreSummary | None = None
    modes_by_cell: dict[str, ScoreSummary] | None = None


class WorkerEntry(Record):
    """One worker; `verdict` is its liveness."""

    worker: Count
    host: str
    pid: Count
    state: Literal["inactive", "processing", "finished"]
    verdict: Literal["working", "delayed", "dead"]
    heard: Amount
    cells: list[Count]
    rounds: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Count]


class RunStatus(Record):
    """What the master last wrote about its workers."""

    time: Amount
    rounds: Count
    completed: Count
    epoch: Count  # the term; files keep its old name
    workers: list[WorkerEntry]
