"""Workers of a given pace: every cell takes its time to train, and one takes ten times as much."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from remuda.gan.cell import Cell
from remuda.parallel.engines import Engine
from remuda.parallel.starting import configure, work
from remuda.parallel.transports.base import MasterComm
from remuda.parallel.transports.local import LocalMaster
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder

PACE = 0.06  # seconds added to a round
TIMES_SLOWER = 10
SLOW_CELL = 0


@dataclass(frozen=True)
class ThreadsEngine(Engine):
    """A worker per cell, all of them threads of this process."""

    def start(self, run: Run, folder: RunFolder) -> MasterComm:
        configured = configure(run, folder, "", self.timeouts)
        return LocalMaster(lambda comm: work(comm, configured, lambda _: run), run.config.cells)


def slow_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training a round takes its time, and for one cell ten times as long."""
    real = Cell.train

    def train(cell: Cell, *args: object, **kwargs: object) -> object:
        time.sleep(PACE * TIMES_SLOWER if cell.index == SLOW_CELL else PACE)
        return real(cell, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Cell, "train", train)
