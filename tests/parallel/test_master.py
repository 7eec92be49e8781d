"""The master's driver: what it does when it is interrupted between two commands."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from remuda.config import Config
from remuda.methods import Mixture
from remuda.parallel.exchange import LostResultsError
from remuda.parallel.master import Master
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import Timeouts
from remuda.parallel.starting import configure, work
from remuda.parallel.transports.local import LocalMaster
from remuda.runs.environment import environment
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder
from tests.tiny import tiny_config, tiny_dataset

ROUNDS = 4


class Line(LocalMaster):
    """Two workers that are threads; one can be declared gone, and losing it can go wrong."""

    def __init__(self, run: Run, folder: RunFolder) -> None:
        configured = configure(run, folder, "", Timeouts())
        self.lost: set[int] = set()
        self.interrupts = False
        self.withheld = 0  # times that results are asked for in vain
        super().__init__(lambda comm: work(comm, configured, lambda _: run), workers=2)

    def gone(self) -> set[int]:
        return super().gone() | (self.lost & set(self.workers()))

    def dismiss(self, worker: int) -> None:
        if self.interrupts:
            raise KeyboardInterrupt
        super().dismiss(worker)

    def results(self, *args: object, **kwargs: object) -> dict[int, object]:  # type: ignore[override]
        if self.withheld:
            self.withheld -= 1
            raise LostResultsError(1)
        return super().results(*args, **kwargs)  # type: ignore[arg-type, return-value]


class AfterRound(Observer):
    """Does something when a round is complete, and remembers all of them."""

    def __init__(self, round: int, line: Line, *, interrupts: bool = False) -> None:
        self.rounds: list[int] = []
        self.warnings: list[str] = []
        self._round, self._line, self._interrupts = round, line, interrupts

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        self.rounds.append(round)
        if round == self._round:
            self._line.lost, self._line.interrupts = {1}, self._interrupts
            time.sleep(0.15)  # the master looks for losses ten times a second: now it is time

    def warned(self, message: str) -> None:
        self.warnings.append(message)


def begun(path: Path, **run: object) -> tuple[Run, RunFolder, Line]:
    config: Config = tiny_config(
        rounds=ROUNDS,
        run={"dir": str(path), "keep_last": 9, "sheet_every": 0, **run},
        score={"extractor": "none"},
    )
    prepared = Run.prepare(config, tiny_dataset())
    with RunFolder.create(config, environment(prepared)) as folder:
        pass
    return prepared, folder, Line(prepared, folder)


def test_an_interrupt_while_a_loss_is_handled_saves_the_last_complete_round(
    tmp_path: Path,
) -> None:
    """What was decided but not yet done must not count: the round would be lost with it."""
    run, folder, line = begun(tmp_path / "run", checkpoint_every=100)
    with pytest.raises(KeyboardInterrupt):
        Master(run, folder, line, AfterRound(2, line, interrupts=True)).run()
    line.interrupts = False
    line.close()
    (saved,) = [checkpoint.round for checkpoint in folder.checkpoints()]
    assert saved >= 2
    (stopped,) = [event for event in folder.events() if event["event"] == "stopped"]
    assert (stopped["after_round"], stopped["why"]) == (saved, "KeyboardInterrupt")
    complete = {event["round"] for event in folder.events() if event["event"] == "population"}
    assert complete == set(range(1, saved + 1))


def test_a_loss_takes_everybody_back_to_the_last_saved_round(tmp_path: Path) -> None:
    run, folder, line = begun(tmp_path / "run", checkpoint_every=2)
    observer = AfterRound(3, line)
    Master(run, folder, line, observer).run()
    assert observer.rounds in ([1, 2, 3, 3, 4], [1, 2, 3, 4])  # the last may have been faster
    whole, plain, other = begun(tmp_path / "undisturbed", checkpoint_every=2)
    Master(whole, plain, other, Observer()).run()
    for checkpoint in plain.checkpoints():
        ours = folder.load_cells(checkpoint.round, range(4))
        for cell, parcel in plain.load_cells(checkpoint.round, range(4)).items():
            assert ours[cell].encoded == parcel.encoded


def test_results_that_are_lost_while_a_round_is_completed_cost_only_the_round(
    tmp_path: Path,
) -> None:
    run, folder, line = begun(tmp_path / "run", checkpoint_every=1)
    line.withheld = 1
    observer = AfterRound(0, line)
    Master(run, folder, line, observer).run()
    assert observer.rounds == [1, 2, 3, 4]
    assert any("worker 1" in warning and "was lost" in warning for warning in observer.warnings)
    rounds = [event["round"] for event in folder.events() if event["event"] == "population"]
    assert rounds == [1, 2, 3, 4]
