"""Trainers that hang while their workers answer: real ones, in processes and in a thread."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from remuda.gan.cell import Cell
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.protocol import Liveness, Timeouts, WorkerStatus
from remuda.runs.store import RunFolder
from tests.parallel.faulty import ROUND, FaultyEngine
from tests.parallel.runs import Remembering, check_equal, settings

pytestmark = pytest.mark.slow

LIMIT = 3.0
# Silence has all the time it wants: here it must not be what a worker is delayed by.
PATIENT = Timeouts(interval=0.05, delayed=30.0, dead=60.0, still=0.1)
LIMITED = dataclasses.replace(PATIENT, stuck=LIMIT)


class Releasing(Remembering):
    """Lets a trainer go on as soon as its worker is shown as delayed."""

    def __init__(self, is_stuck: Callable[[WorkerStatus], bool], release: Any) -> None:
        super().__init__()
        self.delayed: list[set[int]] = []  # with it, when it was
        self._is_stuck, self._release = is_stuck, release

    def workers_seen(self, workers: Sequence[WorkerStatus]) -> None:
        super().workers_seen(workers)
        late = [one for one in workers if one.liveness is Liveness.DELAYED]
        assert all(one.still for one in late)
        if any(map(self._is_stuck, late)):
            self.delayed.append({one.worker for one in late})
            self._release()


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in RunFolder(run).events() if event["event"] == kind]


def delays(run: Path, worker: int) -> list[dict[str, Any]]:
    found = [late for event in events(run, "delayed") for late in event["workers"]]
    return [late for late in found if late["worker"] == worker]


def test_a_worker_whose_trainer_hangs_is_delayed_and_those_that_wait_for_it_are_not(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    run, met = tmp_path / "run", tmp_path / "met" / "stuck"

    def is_stuck(worker: WorkerStatus) -> bool:
        return (met / "0").exists() and worker.pid == int((met / "0").read_text() or 0)

    observer = Releasing(is_stuck, (met / "released").touch)
    engine = FaultyEngine("process", 3, PATIENT, ("stuck",))
    training.train(settings(data, run), observer, engine=engine)
    (worker,) = observer.delayed[0]
    (late,) = delays(run, worker)
    assert (late["why"], late["doing"], late["round"]) == ("no progress", "train", ROUND)
    assert [event for event in events(run, "on time") if worker in event["workers"]]
    said = f"worker {worker} on {late['host']} has made no progress for"
    assert [text for text in observer.warnings if said in text]
    assert not events(run, "lost")
    check_equal(run, undisturbed)


def test_with_a_limit_its_cells_are_adopted_and_the_weights_are_the_same(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    observer, run = Remembering(), tmp_path / "run"
    engine = FaultyEngine("process", 3, LIMITED, ("stuck",))
    training.train(settings(data, run), observer, engine=engine)
    lost = events(run, "lost")
    assert lost
    for loss in lost:
        assert loss["still"] >= LIMIT
        assert loss["silence"] < LIMITED.delayed
        assert loss["worker"] in observer.dead
    assert "has made no progress for" in " ".join(observer.warnings)
    check_equal(run, undisturbed)


class Hang:
    """Cell 0 stands still in its second round, once, until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trainer: threading.Thread | None = None
        self.released = threading.Event()
        real = Cell.train

        def train(cell: Cell, *args: object, **kwargs: object) -> object:
            if (cell.index, cell.round) == (0, ROUND) and self.trainer is None:
                self.trainer = threading.current_thread()
                self.released.wait(60)
            return real(cell, *args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(Cell, "train", train)


def test_in_one_process_a_thread_that_hangs_is_replaced_and_does_nothing_when_it_comes_to(
    tmp_path: Path, data: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang, run = Hang(monkeypatch), tmp_path / "run"
    written: list[tuple[int, int]] = []
    real = RunFolder.save_cell

    def save_cell(folder: RunFolder, parcel: Any) -> Any:
        written.append((parcel.round, parcel.cell))
        return real(folder, parcel)

    monkeypatch.setattr(RunFolder, "save_cell", save_cell)
    training.train(settings(data, run), engine=Engine("local", timeouts=LIMITED))
    assert events(run, "lost")[0]["worker"] == 1
    check_equal(run, undisturbed)
    before = list(written)
    hang.released.set()
    assert hang.trainer is not None
    hang.trainer.join(60)
    assert not hang.trainer.is_alive()
    assert written == before
    check_equal(run, undisturbed)


def test_in_one_process_without_a_limit_the_user_is_told_what_hangs(
    tmp_path: Path, data: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang, run = Hang(monkeypatch), tmp_path / "run"
    observer = Releasing(lambda _: hang.trainer is not None, hang.released.set)
    training.train(settings(data, run), observer, engine=Engine("local", timeouts=PATIENT))
    place = f"(train, cell 0, round {ROUND}, batch 0 of 1); waiting without limit"
    assert [text for text in observer.warnings if place in text]
    assert "worker 1 is on time again" in observer.warnings
    assert not events(run, "lost")
    check_equal(run, undisturbed)
