"""Engines that carry messages and parcels between master, workers and cells."""

from remuda.comm.base import LostResultsError, MasterComm, MasterGoneError, WorkerComm
from remuda.comm.exchange import CancelledError, Exchange, FolderExchange, MemoryExchange
from remuda.comm.local import LocalMaster
from remuda.comm.process import ProcessMaster, make_shared_folder, remove_shared_folder

__all__ = [
    "CancelledError",
    "Exchange",
    "FolderExchange",
    "LocalMaster",
    "LostResultsError",
    "MasterComm",
    "MasterGoneError",
    "MemoryExchange",
    "ProcessMaster",
    "WorkerComm",
    "make_shared_folder",
    "remove_shared_folder",
]
