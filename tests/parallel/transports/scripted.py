"""A worker without a run, for the contract of engines; it imports little, for it starts often."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time

import torch
from pydantic import BaseModel

from remuda.files import to_json
from remuda.gan.parcels import Parcel
from remuda.parallel.exchange import CancelledError
from remuda.parallel.messages import (
    LARGEST,
    Configure,
    Failed,
    GetStatus,
    Hello,
    Message,
    RunTask,
    Status,
    Stop,
)
from remuda.parallel.protocol import State
from remuda.parallel.transports.base import MasterGoneError, WorkerComm

BIG = 1000  # from this round on, the first two cells' parcels weigh 8 MB
SECONDS = 60.0  # within which everything must have happened; far more than it takes


def parcel(cell: int, round: int) -> Parcel:
    tensors = {
        "weights": torch.tensor([float(cell), float(round)]),
        "step": torch.tensor(7, dtype=torch.int64),
        "empty": torch.zeros(0, 3),
        "statistics": torch.full((2, 2), cell + round / 3, dtype=torch.float64),
    }
    meta = {"genes": {"loss": "heuristic", "learning_rate": 0.1 + 0.2}, "memory": {"fitness": None}}
    return Parcel(cell, round, tensors, meta)


class Order(BaseModel):
    """What a scripted worker is to do; it travels as the text of a `Configure`."""

    end: str = ""  # at once: raise, exit, kill, garbage, too large
    publish: tuple[int, ...] | None = None  # these rounds in its next task; None: the task's
    oldest: int | None = None  # its next task looks into the mailboxes
    timeouts: float = SECONDS  # of its next task's waiting


class Seen(BaseModel):
    """What a scripted worker collected in a task; it travels as the text of a `Failed`."""

    cancelled: bool = False
    cells: list[int] = []
    rounds: list[int] = []
    sums: list[str] = []


class Garbage(Message):
    """Bytes that are not a message."""

    kind: str = "garbage"

    def encode(self) -> bytes:
        return b'{"kind": "done", "term": 1, "report": {"cell": 0}}'


def payload(cell: int, round: int) -> Parcel:
    sent = parcel(cell, round)
    if round < BIG or cell > 1:
        return sent
    bulk = {"bulk": torch.arange(2**21, dtype=torch.float32) + cell}
    return Parcel(cell, round, {**sent.tensors, **bulk}, sent.meta)


def checksum(found: Parcel) -> str:
    """Of all that a parcel is."""
    digest = hashlib.sha256(to_json([found.cell, found.round, dict(found.meta)]).encode())
    for name, value in sorted(found.tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def scripted(comm: WorkerComm) -> None:
    """A worker without a run: does what it is told until it is told to stop."""
    order = Order()
    try:
        comm.send(Hello(host="here", pid=os.getpid(), cores=1, memory=1))
        while True:
            match comm.receive(timeout=0.5):
                case Stop():
                    return
                case GetStatus(number=number):
                    comm.send(Status(number=number, state=State.INACTIVE, term=0, rounds={}))
                case Configure(config=text):
                    order = Order.model_validate_json(text)
                    _end(comm, order.end)
                case RunTask() as task:
                    seen = _carry_out(comm, task, order)
                    comm.send(
                        Failed(term=task.term, cell=None, round=0, error=seen.model_dump_json())
                    )
                    order = Order()
    except MasterGoneError:
        return


def _carry_out(comm: WorkerComm, task: RunTask, order: Order) -> Seen:
    """Publish for all others, collect from all in reverse order, and say what was seen."""
    own = {task.owners[cell] for cell in task.cells}
    readers = set(task.owners) - own
    for round in (task.start,) if order.publish is None else order.publish:
        for cell in task.cells:
            comm.publish(task.term, payload(cell, round), readers)
    wanted = list(reversed(range(len(task.owners))))
    end = time.monotonic() + order.timeouts

    def cancelled() -> bool:
        return time.monotonic() > end

    try:
        if order.oldest is None:
            found = comm.collect(task.term, wanted, task.start, cancelled)
        else:
            found = comm.collect_newest(task.term, wanted, order.oldest, cancelled)
    except CancelledError:
        return Seen(cancelled=True)
    return Seen(
        cells=[one.cell for one in found],
        rounds=[one.round for one in found],
        sums=[checksum(one) for one in found],
    )


def _end(comm: WorkerComm, how: str) -> None:
    match how:
        case "raise":
            raise RuntimeError("told to")
        case "exit":
            sys.exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "garbage":
            comm.send(Garbage())
        case "too large":
            comm.send(Failed(term=0, cell=None, round=0, error="x" * (LARGEST + 1)))
