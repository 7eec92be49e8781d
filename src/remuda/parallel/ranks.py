"""An MPI job as master and workers: what each rank does from its start to its end."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import sys
import time
import traceback
from pathlib import Path
from typing import IO, NoReturn

from remuda.config import Config
from remuda.data import Dataset, load_dataset, open_shared_dataset, share_dataset
from remuda.errors import RemudaError, StoreError, visible
from remuda.files import digest
from remuda.parallel.launch import Launcher
from remuda.parallel.messages import Configure, Stop
from remuda.parallel.protocol import Timeouts
from remuda.parallel.shared_memory import join_shared_folder, leave_shared_folder
from remuda.parallel.signals import ignore_signals
from remuda.parallel.starting import configure, prepare_shared, work
from remuda.parallel.transports.base import MasterComm, MasterGoneError
from remuda.parallel.transports.mpi import MpiMaster, MpiWorker
from remuda.parallel.transports.mpi_thread import (
    LostAtStartError,
    MpiError,
    Session,
    leave_as_lost,
)
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder

SILENCE_SECONDS = 180.0  # of a master that prepares a run: it says every second that it lives
FILLING_SECONDS = 120.0  # for another process of this host to share the data


def join_job(launcher: Launcher) -> Session:
    """Become a rank. Returns only on the master's: the others serve it, and end with the job."""
    if launcher.task > 0:
        ignore_signals()
    try:
        session = Session()
    except LostAtStartError:
        if launcher.task > 0:
            leave_as_lost()
        raise
    if launcher.tasks > session.size:
        raise MpiError(
            f"{launcher.name} started {launcher.tasks} tasks, but MPI sees {session.size}: each "
            "would train a run of its own. The MPI behind mpi4py and the launcher do not belong "
            "together; use that MPI's mpiexec, or `remuda train --engine mpi`, which finds it"
        )
    if session.rank > 0:
        _live(session)
    if session.size < 2:
        raise MpiError("1 rank: a master and at least one worker are needed; allowed: -n 2 or more")
    atexit.register(session.end)
    session.prepare()
    return session


class _JobMaster(MpiMaster):
    """The master's end in a job that may carry more runs after this one."""

    def close(self) -> None:
        super().close()
        self._session.prepare()


def start_ranks(session: Session, run: Run, folder: RunFolder, timeouts: Timeouts) -> MasterComm:
    """Tell all ranks what to train; this host's ranks share the master's copy of the data."""
    name = shared_name(folder.path, run.dataset.fingerprint)
    shared = host_dataset(run.config, name, run.dataset.items.nbytes, run.dataset)
    atexit.register(leave_shared_folder, shared)
    run.dataset = open_shared_dataset(shared)  # the master's own copy can go
    comm = _JobMaster(session)
    message = configure(run, folder, name, timeouts)
    for worker in comm.workers():
        comm.send(worker, message)
    return comm


def shared_name(run: Path, fingerprint: str) -> str:
    """A name for a run's shared memory that all hosts find alike, and no other run has.

    Nor has the same run with other data, which a killed job may have left there.
    """
    return f"{os.getuid()}-{digest(f'{run.absolute()} {fingerprint}'.encode())[:16]}"


def host_dataset(config: Config, name: str, size: int, dataset: Dataset | None = None) -> Path:
    """The folder with this host's one copy of the data; the first process there fills it."""
    folder = join_shared_folder(name, size)
    try:
        with (folder / "filling").open("w") as lock:
            _wait_for(lock, folder)
            if not (folder / "dataset.json").exists():
                share_dataset(dataset if dataset is not None else load_dataset(config.data), folder)
    except OSError as error:
        leave_shared_folder(folder)
        raise StoreError(f"{folder}: no room for {size:,} bytes of data: {error}") from None
    return folder


def _wait_for(lock: IO[str], folder: Path) -> None:
    """Until no other process of this host is at the data."""
    deadline = time.monotonic() + FILLING_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{folder}: another process has not finished sharing the data there within "
                    f"{FILLING_SECONDS:.0f} seconds; end it, and remove the folder"
                ) from None
            time.sleep(0.05)


def _live(session: Session) -> NoReturn:
    """A worker's rank, to its end: run after run, until it is told to stop without one."""
    comm = MpiWorker(session)
    try:
        while (configured := _wait_for_configuration(comm)) is not None:
            _work(comm, configured)
    except MasterGoneError:
        leave_as_lost()
    except RemudaError as error:
        for line in error.lines:
            print(f"remuda: rank {session.rank}: {visible(line)}", file=sys.stderr)
        leave_as_lost()
    except BaseException:
        traceback.print_exc()
        leave_as_lost()
    session.end()
    # Not sys.exit: a trainer thread in the middle of a long step must not keep the rank alive.
    os._exit(0)


def _wait_for_configuration(comm: MpiWorker) -> Configure | None:
    heard = time.monotonic()
    while time.monotonic() - heard < SILENCE_SECONDS:
        message = comm.receive(timeout=1.0)
        if isinstance(message, Stop):
            return None
        if isinstance(message, Configure):
            return message
        if message is not None:
            heard = time.monotonic()
    raise MasterGoneError


def _work(comm: MpiWorker, configured: Configure) -> None:
    """Take part in one run."""
    comm.begin()
    with contextlib.ExitStack() as stack:

        def prepare(config: Config) -> Run:
            shared = host_dataset(config, configured.data, configured.size)
            stack.callback(leave_shared_folder, shared)
            return prepare_shared(config, shared, configured)

        work(comm, configured, prepare)
