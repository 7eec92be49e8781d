"""Workers that meet a fault at a named point: targets for the process engine of the tests.

None of this is known to the program: a test's engine starts these in place of `work`, and they
patch their own process before they do.
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
from remuda.parallel.protocol import Timeouts
from remuda.parallel.shared_memory import make_shared_folder
from remuda.parallel.transports.base import MasterComm, WorkerComm
from remuda.parallel.transports.process import ProcessMaster
from remuda.parallel.worker import work
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder
from tests.faults import after, before

ROUND = 2


@dataclass(frozen=True)
class FaultyEngine(Engine):
    """A process engine whose workers meet a fault, each once in the run."""

    fault: str = ""
    victims: int = 1

    def start(self, run: Run, folder: RunFolder) -> MasterComm:
        shared = make_shared_folder(0)
        share_dataset(run.dataset, shared)
        arguments = (
            run.config.model_dump_json(),
            str(folder.path),
            str(shared),
            self.timeouts,
            self.fault,
            str(folder.path.parent / "met"),
            self.victims,
        )
        return ProcessMaster(faulty_work, arguments, shared, self.workers or 2)


def faulty_work(
    comm: WorkerComm,
    config: str,
    folder: str,
    data: str,
    timeouts: Timeouts,
    fault: str,
    met: str,
    victims: int,
) -> None:
    FAULTS[fault](Once(Path(met), victims))
    work(comm, config, folder, data, timeouts)


class Once:
    """Lets so many workers of a run through, each once: files are the memory that survives."""

    def __init__(self, folder: Path, victims: int) -> None:
        self._folder, self._victims, self._mine = folder, victims, False
        folder.mkdir(exist_ok=True)

    def __call__(self) -> bool:
        if self._mine:
            return False
        for number in range(self._victims):
            try:
                (self._folder / str(number)).touch(exist_ok=False)
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

    before(Learner, "step", step)


def _killed_while_publishing(once: Once) -> None:
    """Half of a parcel is in shared memory under its passing name."""

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


def _killed_after_its_last_round(once: Once) -> None:
    from remuda.parallel.messages import Finished
    from remuda.parallel.transports.process import ProcessWorker

    def sent(_line: object, message: object) -> None:
        if isinstance(message, Finished) and once():
            die()

    before(ProcessWorker, "send", sent)


def _hung(once: Once) -> None:
    """Stopped as a whole: neither trains nor answers."""
    from remuda.gan.cell import Cell

    def trained(*_: object) -> None:
        if once():
            os.kill(os.getpid(), signal.SIGSTOP)

    after(Cell, "train", trained)


def _raises(once: Once) -> None:
    from remuda.gan.cell import Cell

    def training(*_: object) -> None:
        if once():
            raise RuntimeError("a cosmic ray")

    before(Cell, "train", training)


def _always_raises(_once: Once) -> None:
    from remuda.gan.cell import Cell

    def training(cell: Cell, *_: object) -> None:
        if cell.index == 0 and cell.round == ROUND:
            raise RuntimeError("a real bug")

    before(Cell, "train", training)


def _slow(once: Once) -> None:
    from remuda.gan.cell import Cell

    slow = once()
    before(Cell, "train", lambda *_: time.sleep(0.5) if slow else None)


def _late(once: Once) -> None:
    """Still starting when the others have long been waiting."""
    if once():
        time.sleep(5)


FAULTS: dict[str, Callable[[Once], None]] = {
    "killed while training": _killed_while_training,
    "killed while publishing": _killed_while_publishing,
    "killed while writing a checkpoint": _killed_while_writing_a_checkpoint,
    "killed after its last round": _killed_after_its_last_round,
    "hung": _hung,
    "raises": _raises,
    "always raises": _always_raises,
    "slow": _slow,
    "late": _late,
}
