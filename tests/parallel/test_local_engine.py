"""Faults that need no process of their own, on workers that are threads of this one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from remuda.gan.cell import Cell
from remuda.methods import Mixture
from remuda.parallel import shared_memory, training
from remuda.parallel.engines import Engine
from remuda.parallel.master_state import WorkerError
from remuda.parallel.protocol import Timeouts
from remuda.runs.store import RunFolder
from tests.parallel.runs import QUICK, Remembering, check_equal, settings
from tests.tiny_runs import Command, tiny


def fail_in_round_two(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Cell 0 raises in its second round, this many times."""
    real, left = Cell.train, [times]

    def train(cell: Cell, *args: object, **kwargs: object) -> object:
        if (cell.index, cell.round) == (0, 2) and left[0] > 0:
            left[0] -= 1
            raise RuntimeError("a real bug")
        return real(cell, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Cell, "train", train)


@pytest.mark.slow
def test_a_worker_that_raises_is_replaced_and_nothing_changes(
    tmp_path: Path, data: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_in_round_two(monkeypatch, 1)
    observer, run = Remembering(), tmp_path / "run"
    training.train(settings(data, run), observer, engine=Engine("local", timeouts=QUICK))
    # Beside them, a busy machine may make a worker silent for half a second.
    failed, lost = [text for text in observer.warnings if "failed" in text or "lost" in text]
    assert "failed in round 2: RuntimeError: a real bug" in failed
    assert "was lost; its 3 cells go on from round 1 elsewhere" in lost
    check_equal(run, undisturbed)


@pytest.mark.slow
def test_a_checkpoint_every_third_round_is_enough_to_recover(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "run.checkpoint_every=3"
    training.train(settings(data, tmp_path / "undisturbed", more))
    fail_in_round_two(monkeypatch, 2)
    training.train(settings(data, tmp_path / "run", more))
    check_equal(tmp_path / "run", tmp_path / "undisturbed")


def test_a_cell_that_always_fails_ends_the_run_with_its_error(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_in_round_two(monkeypatch, 99)
    with pytest.raises(WorkerError, match=r"cell 0 failed 3 times in round 2(.|\n)*a real bug"):
        training.train(settings(data, tmp_path / "run"))
    stopped = RunFolder(tmp_path / "run").events()[-1]
    assert (stopped["event"], stopped["after_round"]) == ("stopped", 1)


@pytest.mark.slow
def test_a_pause_of_the_master_is_no_fault_of_its_workers(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    timeouts = Timeouts(interval=0.1, delayed=1.5, dead=1.5)

    class Busy(Remembering):
        def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
            if round == 1:
                time.sleep(timeouts.dead + 0.5)

    observer, run = Busy(), tmp_path / "run"
    training.train(settings(data, run), observer, engine=Engine("local", timeouts=timeouts))
    assert observer.warnings == []
    check_equal(run, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_closed_terminal_or_an_interrupt_saves_what_is_complete(
    number: signal.Signals, tmp_path: Path, data: Path
) -> None:
    run = tmp_path / "run"
    more = ("rounds=400", "training.batches_per_round=20", "run.checkpoint_every=400")
    train = Command(tmp_path, "train", *tiny(data, run, *more, "run.sheet_every=0"), "--plain")
    train.wait_for("round    2/400")
    train.send(number)
    assert train.wait() == 128 + number
    assert len(RunFolder(run).checkpoints()) == 1


@pytest.mark.slow
def test_the_local_engine_removes_what_killed_runs_left(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory and under the temporary folder, whatever engine they had."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    left = [root / "remuda-1-dead" for root in (memory, disk)]
    for folder in left:
        folder.mkdir(parents=True)
        (folder / "alive").touch()
    segment = memory / f"sm_segment.host.{os.getuid()}.ab.0"
    segment.touch()
    os.utime(segment, (0, 0))
    monkeypatch.setattr(shared_memory, "MEMORY", memory)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(disk))
    training.train(settings(data, tmp_path / "run", "rounds=1"), engine=Engine("local"))
    assert not [path for path in (*left, segment) if path.exists()]
