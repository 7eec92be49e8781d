"""Every engine that starts its own workers, against the one contract."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from remuda.parallel.messages import MessageError
from remuda.parallel.shared_memory import make_shared_folder
from remuda.parallel.transports import process
from remuda.parallel.transports.base import MasterComm, WorkerComm
from remuda.parallel.transports.local import LocalMaster
from remuda.parallel.transports.process import ProcessMaster
from tests.parallel.runs import worker_processes
from tests.parallel.transports.engine_contract import EngineContract
from tests.parallel.transports.scripted import scripted


class TestLocalEngine(EngineContract):
    endings = ("raise", "exit")  # a thread cannot be killed

    @classmethod
    def start(cls, workers: int) -> MasterComm:
        return LocalMaster(_quietly, workers)

    @classmethod
    def inventory(cls) -> set[str]:
        return {thread.name for thread in threading.enumerate()}


class TestProcessEngine(EngineContract):
    @classmethod
    def start(cls, workers: int) -> MasterComm:
        return ProcessMaster(scripted, (), make_shared_folder(0), workers)

    @classmethod
    def inventory(cls) -> set[str]:
        folders = Path("/dev/shm").glob(f"remuda-{os.getpid()}-*")
        return {f"worker {pid}" for pid in worker_processes(os.getpid())} | set(map(str, folders))


class TestSpawnedEngine(TestProcessEngine):
    """As where a process that has torch cannot be forked."""

    @classmethod
    def start(cls, workers: int) -> MasterComm:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(process, "can_fork", lambda: False)
            return super().start(workers)

    @classmethod
    def inventory(cls) -> set[str]:
        return super().inventory() | {child.name for child in multiprocessing.active_children()}


def _quietly(comm: WorkerComm) -> None:
    """A worker that fails is meant to; pytest would take it for a mistake of the test."""
    with contextlib.suppress(RuntimeError, SystemExit, MessageError):
        scripted(comm)
