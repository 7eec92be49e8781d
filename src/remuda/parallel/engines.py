"""Which engine carries a run, and on how many workers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal, cast

from remuda.config import Config
from remuda.data import share_dataset
from remuda.errors import StoreError
from remuda.gan.devices import Devices
from remuda.parallel.protocol import Timeouts
from remuda.parallel.ranks import start_ranks
from remuda.parallel.shared_memory import make_shared_folder, remove_shared_folder
from remuda.parallel.transports.base import MasterComm
from remuda.parallel.transports.local import LocalMaster
from remuda.parallel.transports.mpi import Session
from remuda.parallel.transports.process import ProcessMaster
from remuda.parallel.worker import Worker, work
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder

EngineName = Literal["local", "process", "mpi", "auto"]
PARCELS_BYTES = 256 * 2**20  # room for parcels beside the data, a generous guess


@dataclass(frozen=True)
class Engine:
    """How a run is carried; never what comes out of it.

    `local` trains in this process, `process` in `workers` child processes (None: as many as the
    cores and cells allow), `mpi` in the other ranks of the job that `session` belongs to, and
    `auto` in processes where they can help.
    """

    name: EngineName = "local"
    workers: int | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    session: Session | None = field(default=None, kw_only=True)

    def check(self, config: Config) -> None:
        """Refuse, before anything is written, devices that the workers will not find."""
        if self.session is None:  # those of other ranks may be on other machines
            Devices.of(config.devices)

    def start(self, run: Run, folder: RunFolder) -> MasterComm:
        """Start the workers; the caller closes what it gets."""
        # Only now, for data may make more cells than the settings alone say.
        count = self.workers or default_workers(run.config)
        if self.name == "local" or (self.name == "auto" and count == 1):
            return LocalMaster(lambda comm: Worker(run, folder.path, comm, self.timeouts).serve())
        if self.session is not None:
            return start_ranks(self.session, run, folder, self.timeouts)
        size = run.dataset.items.nbytes
        shared = make_shared_folder(size + PARCELS_BYTES)
        try:
            share_dataset(run.dataset, shared)
        except BaseException as error:
            remove_shared_folder(shared)
            if isinstance(error, OSError):
                raise StoreError(
                    f"{shared}: no room for {size:,} bytes of data to share: {error}"
                ) from None
            raise
        arguments = (run.config.model_dump_json(), str(folder.path), str(shared), self.timeouts)
        # Read when a child's torch loads, so it must be set before.
        os.environ["OMP_NUM_THREADS"] = str(run.config.threads)
        return ProcessMaster(work, arguments, shared, count)


def choose_engine(name: str, workers: int | None, session: Session | None = None) -> Engine:
    """The engine for a name from the command line; in an MPI job it is the job's."""
    if session is not None:
        return Engine("mpi", session=session)
    return Engine(cast("EngineName", name), workers)


def default_workers(config: Config) -> int:
    """As many as the cores hold at the configured threads, and no more than there are cells."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(config.cells, cores // config.threads))
