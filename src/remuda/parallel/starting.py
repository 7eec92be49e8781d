"""How workers come to life: what the master tells them, and what they do first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from remuda.config import Config
from remuda.data import open_shared_dataset, share_dataset
from remuda.errors import DataError, StoreError
from remuda.parallel.allocation import keep_memory
from remuda.parallel.messages import Configure
from remuda.parallel.protocol import Timeouts
from remuda.parallel.shared_memory import make_shared_folder, remove_shared_folder, sweep
from remuda.parallel.transports.base import MasterComm, WorkerComm
from remuda.parallel.transports.local import LocalMaster
from remuda.parallel.transports.process import ProcessMaster
from remuda.parallel.worker import Worker
from remuda.runs.portable import ensure_portable
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder

PARCELS_BYTES = 256 * 2**20  # room for parcels beside the data, a generous guess


def configure(run: Run, folder: RunFolder, data: str, timeouts: Timeouts) -> Configure:
    """What a worker needs to know to take part in a run; `data` says where it finds the data."""
    return Configure(
        config=run.config.model_dump_json(),
        folder=str(folder.path.absolute()),
        data=data,
        fingerprint=run.dataset.fingerprint,
        size=run.dataset.items.nbytes,
        timeouts=timeouts,
    )


def work(comm: WorkerComm, configured: Configure, prepare: Callable[[Config], Run]) -> None:
    """A worker from its first step to its last, on every engine."""
    run = prepare(Config.model_validate_json(configured.config))
    Worker(run, Path(configured.folder), comm, configured.timeouts).serve()


def prepare_shared(config: Config, data: Path, configured: Configure) -> Run:
    """A run on the data that the master or another worker of this host has shared.

    For a process of its own: the number of torch's threads is set for good, and memory is kept.
    """
    ensure_portable(config)
    keep_memory()
    torch.set_num_threads(config.threads)
    dataset = open_shared_dataset(data)
    if dataset.fingerprint != configured.fingerprint:
        raise DataError(
            f"{dataset.name}: on {os.uname().nodename} the data are not the master's: "
            f"{dataset.fingerprint} here, {configured.fingerprint} there"
        )
    # The extractor, too, is the one that the master has put into the run folder.
    return Run.prepare(config, dataset, folder=RunFolder(Path(configured.folder)))


def start_local(run: Run, folder: RunFolder, timeouts: Timeouts) -> MasterComm:
    """One worker, a thread of this process, on the run as the master has prepared it."""
    sweep()
    configured = configure(run, folder, "", timeouts)
    return LocalMaster(lambda comm: work(comm, configured, lambda _config: run))


def start_processes(run: Run, folder: RunFolder, timeouts: Timeouts, workers: int) -> MasterComm:
    """Worker processes of this machine, with the data in shared memory."""
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
    run.dataset = open_shared_dataset(shared)  # the master's own copy can go
    configured = configure(run, folder, str(shared), timeouts)
    return ProcessMaster(work_in_process, (configured,), shared, workers, run.config.threads)


def work_in_process(comm: WorkerComm, configured: Configure) -> None:
    """What a worker process runs."""
    data = Path(configured.data)
    work(comm, configured, lambda config: prepare_shared(config, data, configured))
