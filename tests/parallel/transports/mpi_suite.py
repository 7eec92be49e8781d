"""The engines' contract for ranks: what rank 0 runs under mpiexec, see test_mpi.py.

    mpiexec -n 6 python -m tests.parallel.transports.mpi_suite REPORT [PYTEST OPTIONS]

The other ranks are scripted workers, test after test.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest

from remuda.parallel.messages import Stop
from remuda.parallel.transports.base import MasterComm
from remuda.parallel.transports.mpi import MpiMaster, MpiWorker
from remuda.parallel.transports.mpi_thread import Session, leave_as_lost
from tests.parallel.transports.engine_contract import EngineContract
from tests.parallel.transports.scripted import scripted

_session: Session | None = None


_dismissed: set[int] = set()  # in earlier tests; whoever of them lives takes part again


class _Master(MpiMaster):
    def dismiss(self, worker: int) -> None:
        super().dismiss(worker)
        _dismissed.add(worker)


class TestMpiEngine(EngineContract):
    @classmethod
    def start(cls, workers: int) -> MasterComm:
        assert _session is not None
        master = _Master(_session)
        time.sleep(0.2)  # until its thread knows which ranks earlier tests have lost
        gone = master.gone()
        for worker in _dismissed - gone:
            master.send(worker, Stop())  # which ends its last life, and it says hello again
        _dismissed.clear()
        for worker in gone:
            master.dismiss(worker)
        return master

    @classmethod
    def inventory(cls) -> set[str]:
        return {thread.name for thread in threading.enumerate()}


def _work(session: Session, report: Path) -> NoReturn:
    comm = MpiWorker(session)
    try:
        while not report.exists():
            comm.begin()
            scripted(comm)
    except BaseException:
        leave_as_lost()
    session.end()
    os._exit(0)


def _main(report: Path, options: list[str]) -> int:
    global _session
    _session = Session()
    if _session.rank > 0:
        _work(_session, report)
    # As this module, not as __main__, so that the suite sees the session.
    sys.modules["tests.parallel.transports.mpi_suite"] = sys.modules["__main__"]
    code = pytest.main([__file__, "-p", "no:cacheprovider", "-q", *options])
    report.write_text(str(int(code)))
    _session.end()
    return int(code)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), sys.argv[2:]))
