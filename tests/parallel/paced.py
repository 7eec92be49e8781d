"""Workers of a given pace: every cell takes its time to train, and one takes ten times as much."""

from __future__ import annotations

import time
from dataclasses import dataclass

from remuda.data import share_dataset
from remuda.parallel.engines import Engine
from remuda.parallel.protocol import Timeouts
from remuda.parallel.shared_memory import make_shared_folder
from remuda.parallel.transports.base import MasterComm, WorkerComm
from remuda.parallel.transports.process import ProcessMaster
from remuda.parallel.worker import work
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder
from tests.faults import before

PACE = 0.06  # seconds added to a round
TIMES_SLOWER = 10
SLOW_CELL = 0


@dataclass(frozen=True)
class PacedEngine(Engine):
    """A process engine with a worker per cell, of which one is ten times slower."""

    def start(self, run: Run, folder: RunFolder) -> MasterComm:
        shared = make_shared_folder(0)
        share_dataset(run.dataset, shared)
        config = run.config.model_dump_json()
        arguments = (config, str(folder.path), str(shared), self.timeouts)
        return ProcessMaster(paced_work, arguments, shared, run.config.cells)


def paced_work(comm: WorkerComm, config: str, folder: str, data: str, timeouts: Timeouts) -> None:
    from remuda.gan.cell import Cell

    def training(cell: Cell, *_: object) -> None:
        time.sleep(PACE * TIMES_SLOWER if cell.index == SLOW_CELL else PACE)

    before(Cell, "train", training)
    work(comm, config, folder, data, timeouts)
