"""What master and workers say to each other: small, typed, checked on arrival.

Messages travel as JSON of bounded size on every engine, so that nothing executable crosses a
process boundary. Tensors never travel here; parcels have a plane of their own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from remuda.methods import RoundReport
from remuda.parallel.protocol import State, Timeouts
from remuda.runs.records import Machine

LARGEST = 16 * 2**20


class Message(BaseModel):
    """Base of all messages: unknown fields are refused, and NaN and infinity survive."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")

    def encode(self) -> bytes:
        return self.model_dump_json().encode()


# ---------------------------------------------------------------------------- master to worker


class Configure(Message):
    """What a worker needs to take part in a run: the settings, its folder, its data."""

    kind: Literal["configure"] = "configure"
    config: str
    folder: str
    data: str  # the folder of the shared data, or a name that each host makes one of
    fingerprint: str  # of the data
    size: int = 0  # of the data, in bytes
    timeouts: Timeouts


class RunTask(Message):
    """Train these cells from the checkpoint of `start` on (0: from scratch), as of this term."""

    kind: Literal["run_task"] = "run_task"
    term: int
    cells: tuple[int, ...]
    start: int
    owners: tuple[int, ...]  # of every cell, its worker


class GetStatus(Message):
    """The heartbeat's question."""

    kind: Literal["get_status"] = "get_status"
    number: int


class Committed(Message):
    """A round is complete everywhere: workers may start the round after the next."""

    kind: Literal["committed"] = "committed"
    term: int
    round: int


class Forget(Message):
    """Parcels of earlier terms, and of earlier rounds of this one, will not be asked for."""

    kind: Literal["forget"] = "forget"
    term: int
    round: int


class GetResults(Message):
    """Send these cells' parcels of a round, or the tensors whose names start with `part`."""

    kind: Literal["get_results"] = "get_results"
    number: int
    term: int
    round: int
    cells: tuple[int, ...]
    part: str


class Stop(Message):
    """The run is over."""

    kind: Literal["stop"] = "stop"


# ---------------------------------------------------------------------------- worker to master


class Hello(Message):
    """A worker is up: where it is, and what its host has."""

    kind: Literal["hello"] = "hello"
    host: str
    pid: int
    cores: int = Field(ge=1)
    memory: int
    devices: tuple[str, ...] = ()
    machine: Machine | None = None


class Status(Message):
    """The heartbeat's answer."""

    kind: Literal["status"] = "status"
    number: int
    state: State
    term: int
    rounds: dict[int, int]
    cell: int | None = None
    batch: int = 0
    batches: int = 0
    doing: str = ""  # the routine that its trainer is in


class Saved(Message):
    """A cell's file of a checkpoint is on disk."""

    kind: Literal["saved"] = "saved"
    term: int
    cell: int
    round: int
    bytes: int
    sha256: str


class Done(Message):
    """A cell has finished a round and published its parcel."""

    kind: Literal["done"] = "done"
    term: int
    report: RoundReport


class Finished(Message):
    """All rounds of all cells of the task are done."""

    kind: Literal["finished"] = "finished"
    term: int


class Failed(Message):
    """The task raised an error."""

    kind: Literal["failed"] = "failed"
    term: int
    cell: int | None
    round: int
    error: str
    user_error: bool = False


AnyMessage = Annotated[
    Configure
    | RunTask
    | GetStatus
    | Committed
    | Forget
    | GetResults
    | Stop
    | Hello
    | Status
    | Saved
    | Done
    | Finished
    | Failed,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(AnyMessage)


class MessageError(Exception):
    """Bytes that are not a valid message."""


def decode(content: bytes) -> Message:
    """A checked message."""
    if len(content) > LARGEST:
        raise MessageError(f"a message of {len(content)} bytes; at most {LARGEST} are allowed")
    try:
        message: Message = _ADAPTER.validate_json(content)
    except ValidationError as error:
        raise MessageError(f"not a message: {error.errors()[0]['msg']}") from None
    return message
