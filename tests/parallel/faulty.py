"""Workers that meet faults at named points: targets for the process engine of the tests.

None of this is known to the program: a test's engine starts these in place of real workers, and
they patch their own process before they become one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from remuda.data import share_dataset
from remuda.parallel.engines import Engine
from remuda.parallel.messages import Configure
from remuda.parallel.shared_memory import make_shared_folder
from remuda.parallel.starting import configure, work_in_process
from remuda.parallel.transports.base import MasterComm, WorkerComm
from remuda.parallel.transports.process import ProcessMaster
from remuda.runs.prepare import Run
from remuda.runs.records import Machine
from remuda.runs.store import RunFolder
from tests.faults import after, before

ROUND = 2
ANOTHER = Machine(processor="Another 9000", capability="AVX2", fingerprint="0" * 16)


@dataclass(frozen=True)
class FaultyEngine(Engine):
    """A process engine on which each of these faults happens once, to one of its workers."""

    faults: tuple[str, ...] = ()

    def start(self, run: Run, folder: RunFolder) -> MasterComm:
        shared = make_shared_folder(0)
        share_dataset(run.dataset, shared)
        configured = configure(run, folder, str(shared), self.timeouts)
        met = folder.path.parent / "met"
        return ProcessMaster(faulty_work, (configured, self.faults, met), shared, self.workers or 2)


def faulty_work(
    comm: WorkerComm, configured: Configure, faults: tuple[str, ...], met: Path
) -> None:
    for fault in faults:
        {**FAULTS, **STUCK, **HARMLESS}[fault](Once(met / fault))
    work_in_process(comm, configured)


class Once:
    """Lets this many workers of a run through, each once: files are the memory that survives."""

    def __init__(self, folder: Path, victims: int = 1) -> None:
        self._folder, self._victims, self._mine = folder, victims, False
        self.released = folder / "released"
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self) -> bool:
        if self._mine:
            return False
        for number in range(self._victims):
            try:
                with (self._folder / str(number)).open("x") as file:
                    file.write(str(os.getpid()))
            except FileExistsError:
                continue
            self._mine = True
            return True
        return False


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _killed_while_training(once: Once) -> None:
    from remuda.gan.learner import Learner

    steps = 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps == 8 and once():
            die()

    before(Learner, "descend", step)


def _killed_while_publishing(once: Once) -> None:
    """Half of a parcel is in shared memory under its temporary name."""

    def link(part: Path, _target: Path) -> None:
        if f"-round-{ROUND}" in str(part) and once():
            os.truncate(part, 100)
            die()

    before(os, "link", link)


def _killed_while_writing_a_checkpoint(once: Once) -> None:
    def tear(descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if path.endswith(".safetensors.part") and f"round-{ROUND:06d}" in path and once():
            os.ftruncate(descriptor, 100)
            die()

    before(os, "fsync", tear)


def _hung(once: Once) -> None:
    """Stopped as a whole: neither trains nor answers."""
    from remuda.gan.cell import Cell

    def trained(*_: object) -> None:
        if once():
            os.kill(os.getpid(), signal.SIGSTOP)

    after(Cell, "train", trained)


def _stuck(once: Once) -> None:
    """The trainer stands still in the middle of its round, and the worker answers all the same.

    Until a file called `released` appears.
    """
    from remuda.gan.cell import Cell

    def train(cell: Cell, *_: object) -> None:
        if cell.round == ROUND and once():
            deadline = time.monotonic() + 60
            while not once.released.exists() and time.monotonic() < deadline:
                time.sleep(0.05)

    before(Cell, "train", train)


def _talks_nonsense(once: Once) -> None:
    """A well-formed report about a round that nobody is in."""
    from remuda.parallel.messages import Done, Message
    from remuda.parallel.transports.process import ProcessWorker

    real = ProcessWorker.send

    def send(comm: ProcessWorker, message: Message) -> None:
        if isinstance(message, Done) and once():
            wrong = message.encode().replace(b'"round":', b'"round":1')
            comm._pipe.send_bytes(wrong)
        else:
            real(comm, message)

    setattr(ProcessWorker, "send", send)  # noqa: B010 - not a new method to mypy


def _on_another_machine(once: Once) -> None:
    from remuda.parallel import hosts

    if once():
        setattr(hosts, "this_machine", lambda: ANOTHER)  # noqa: B010 - not a name to mypy


FAULTS: dict[str, Callable[[Once], None]] = {
    "killed while training": _killed_while_training,
    "killed while publishing": _killed_while_publishing,
    "killed while writing a checkpoint": _killed_while_writing_a_checkpoint,
    "hung": _hung,
    "talks nonsense": _talks_nonsense,
}
# Of the worker that answers nothing is to be seen: only with a limit is it noticed for good.
STUCK = {"stuck": _stuck}
# What costs no worker.
HARMLESS = {"on another machine": _on_another_machine}
