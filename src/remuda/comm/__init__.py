"""Engines that carry messages and parcels between master, workers and cells."""

from remuda.comm.base import (
    LostResultsError,
    MasterComm,
    MasterGoneError,
    WorkerComm,
    ignore_signals,
)
from remuda.comm.exchange import CancelledError, Exchange, FolderExchange, MemoryExchange
from remuda.comm.folders import (
    clear_stale_segments,
    join_shared_folder,
    leave_shared_folder,
    make_shared_folder,
    remove_shared_folder,
)
from remuda.comm.local import LocalMaster
from remuda.comm.mpi import MpiError, MpiMaster, MpiWorker, Session, leave_as_lost
from remuda.comm.process import ProcessMaster

__all__ = [
    "CancelledError",
    "Exchange",
    "FolderExchange",
    "LocalMaster",
    "LostResultsError",
    "MasterComm",
    "MasterGoneError",
    "MemoryExchange",
    "MpiError",
    "MpiMaster",
    "MpiWorker",
    "ProcessMaster",
    "Session",
    "WorkerComm",
    "clear_stale_segments",
    "ignore_signals",
    "join_shared_folder",
    "leave_as_lost",
    "leave_shared_folder",
    "make_shared_folder",
    "remove_shared_folder",
]
