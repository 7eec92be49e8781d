"""The engines' contract for ranks: what rank 0 runs under mpiexec, see test_mpi.py.

    mpiexec -n 5 python -m tests.comm.mpi_suite REPORT [PYTEST OPTIONS]

The other ranks are scripted workers, test after test.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from remuda.parallel.transports.base import MasterComm
from remuda.parallel.transports.mpi import MpiMaster, MpiWorker, Session, leave_as_lost
from tests.parallel.transports.engine_contract import EngineContract
from tests.parallel.transports.scripted import scripted

_session: Session | None = None


class TestMpiEngine(EngineContract):
    can_kill = os.environ.get("REMUDA_CAN_KILL") == "yes"

    @classmethod
    def start(cls, workers: int) -> MasterComm:
        assert _session is not None
        return MpiMaster(_session)

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
