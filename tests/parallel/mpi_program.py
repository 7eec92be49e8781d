"""What the ranks of a test's MPI job run: some runs, one after the other, with faults or without.

mpiexec -n 3 python -m tests.parallel.mpi_program SPEC.json
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from remuda.config import load_config
from remuda.parallel import ranks, training
from remuda.parallel.engines import Engine
from remuda.parallel.launch import find_launcher
from remuda.parallel.protocol import Timeouts
from remuda.parallel.transports import mpi_thread
from remuda.parallel.transports.mpi import MpiMaster
from remuda.parallel.transports.mpi_thread import MpiThread, Plane
from tests.faults import after, before
from tests.parallel.faulty import FAULTS, Once, die

QUICK = Timeouts(interval=0.1, delayed=0.5, dead=10.0)
SLEEPER = 1  # the rank that hangs and wakes


def _killed_while_publishing(once: Once) -> None:
    """Some of its readers have the parcel, others will never get it."""
    sent = 0

    def send(_thread: MpiThread, plane: Plane, *_: object) -> None:
        nonlocal sent
        sent += plane is Plane.LOCAL
        if sent == 4 and once():
            die()

    before(MpiThread, "send", send)


def _hung_and_woken(once: Once) -> None:
    """Stopped until it was written off; the master cannot reach it, as on another host."""
    from remuda.gan.cell import Cell

    def trained(*_: object) -> None:
        if once():
            subprocess.Popen(["sh", "-c", f"sleep 13; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)

    after(Cell, "train", trained)


RANK_FAULTS = {
    **FAULTS,
    "killed while publishing": _killed_while_publishing,
    "hung and woken": _hung_and_woken,
}


def _cannot_reach_the_sleeper() -> None:
    real = MpiMaster.dismiss

    def dismiss(master: MpiMaster, worker: int) -> None:
        if worker == SLEEPER:
            master._workers.discard(worker)
        else:
            real(master, worker)

    setattr(MpiMaster, "dismiss", dismiss)  # noqa: B010 - not a new method to mypy


def main(spec: dict[str, Any]) -> None:
    launcher = find_launcher(os.environ)
    assert launcher is not None
    faults: dict[str, int] = spec["faults"]
    sleepers = faults.pop("hung and woken", 0)
    if sleepers and launcher.task == 0:
        _cannot_reach_the_sleeper()
    elif sleepers and launcher.task == SLEEPER:
        faults = {"hung and woken": sleepers}  # and no other: nobody would end it
    for fault, victims in faults.items() if launcher.task > 0 else ():
        RANK_FAULTS[fault](Once(Path(spec["met"]) / fault, victims))
    if "start_seconds" in spec:
        mpi_thread.START_SECONDS = spec["start_seconds"]
        if launcher.task == SLEEPER:
            die()
    session = ranks.join_job(launcher)
    for source, *overrides in spec["runs"]:
        engine = Engine("mpi", session=session, timeouts=QUICK)
        training.train(load_config(source, overrides), engine=engine)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
