"""Workers of a given pace: every cell takes its time to train, and one takes ten times as much."""

from __future__ import annotations

import time
from dataclasses import dataclass

from remuda.comm import MasterComm, ProcessMaster, WorkerComm, make_shared_folder
from remuda.data import share_dataset
from remuda.protocol import Patience
from remuda.runtime import Engine, Run
from remuda.runtime.worker import work
from remuda.store import RunFolder
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
        arguments = (config, str(folder.path), str(shared), self.patience)
        return ProcessMaster(paced_work, arguments, shared, run.config.cells)


def paced_work(comm: WorkerComm, config: str, folder: str, data: str, patience: Patience) -> None:
    from remuda.cell import Cell

    def training(cell: Cell, *_: object) -> None:
        time.sleep(PACE * TIMES_SLOWER if cell.index == SLOW_CELL else PACE)

    before(Cell, "train", training)
    work(comm, config, folder, data, patience)
