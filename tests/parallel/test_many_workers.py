"""The real master with hundreds of simulated workers; `benchmarks/simulate.py` goes further."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulate import Fault, Plan, simulate, simulated_config
from remuda.parallel import master_state, roster
from remuda.parallel.protocol import Timeouts
from remuda.runs import outcome
from remuda.runs.store import RunFolder

ROUNDS = 3
BEAT = Timeouts(interval=0.1)


@pytest.fixture(autouse=True)
def _few_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pictures would take longer than all the rest."""
    monkeypatch.setattr(outcome, "MOST_SHEETS", 2)


def _count(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """How often the master calls one of its functions."""
    calls, real = [0], getattr(roster, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(roster, name, counted)
    return calls


def test_a_lost_worker_of_hundreds_is_adopted_and_the_run_finishes(tmp_path: Path) -> None:
    config, workers = simulated_config("10x30", ROUNDS, tmp_path), 305
    plan = Plan(0.15, faults=[Fault(term=1, worker=7, after=0.2, kind="killed")])
    notes = simulate(config, plan, BEAT, workers)
    cells = list(range(config.cells))
    before, after = notes.placements[1], notes.placements[2]
    assert sorted(cell for own in before.values() for cell in own) == cells
    assert sorted(cell for own in after.values() for cell in own) == cells
    (heir,) = after.keys() - before.keys()
    assert heir > config.cells  # a spare
    assert after == {**{w: own for w, own in before.items() if w != 7}, heir: before[7]}
    folder = RunFolder.open(tmp_path / "run")
    reported = [(e["round"], e["cell"]) for e in folder.events() if e["event"] == "round"]
    assert sorted(reported) == [(round, cell) for round in range(1, ROUNDS + 1) for cell in cells]
    result = folder.result()
    assert result is not None
    assert result.rounds == ROUNDS


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["5x10", "20x20"])
def test_the_masters_work_per_heartbeat_grows_only_with_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grid: str
) -> None:
    looked, judged = _count(monkeypatch, "liveness_of"), _count(monkeypatch, "progress_of")
    start = time.monotonic()
    config = simulated_config(grid, ROUNDS, tmp_path)
    notes = simulate(config, Plan(0.2), BEAT, config.cells)
    looks = (time.monotonic() - start) / master_state.WATCH_SECONDS
    cells, beats = config.cells, len(notes.heartbeats)
    assert cells * (beats - 1) < notes.sent["GetStatus"] <= cells * beats
    assert notes.taken["Status"] <= notes.answered <= notes.sent["GetStatus"]
    assert notes.sent["RunTask"] == cells
    assert notes.sent["Committed"] == cells * ROUNDS
    # Not one liveness on each worker for every message of any of them, which is the square.
    assert cells <= looked[0] <= cells * (looks + 1)
    assert judged[0] == 0  # while all get on


@pytest.mark.slow
def test_one_of_hundreds_that_answers_and_does_not_train_is_written_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = _count(monkeypatch, "progress_of")
    config, workers = simulated_config("10x30", ROUNDS, tmp_path), 301
    plan = Plan(0.1, faults=[Fault(term=1, worker=7, after=0.15, kind="stuck")])
    beat, start = Timeouts(interval=0.1, still=0.5, stuck=1.0), time.monotonic()
    notes = simulate(config, plan, beat, workers)
    events = [e for e in RunFolder.open(tmp_path / "run").events() if e["event"] == "lost"]
    (event,) = [event for event in events if event["worker"] == 7]
    assert event["still"] >= 1.0
    assert event["silence"] < 10
    last = notes.placements[max(notes.placements)]
    assert sorted(cell for own in last.values() for cell in own) == list(range(config.cells))
    assert 7 not in last
    # Those that wait for it are looked at, and not judged.
    looks = (time.monotonic() - start) / master_state.WATCH_SECONDS
    assert judged[0] < 30 * looks


def test_a_lost_node_takes_many_workers_and_not_the_run(tmp_path: Path) -> None:
    config, node = (
        simulated_config("10x10", ROUNDS, tmp_path),
        range(1, 2 * master_state.MOST_LOSSES),
    )
    faults = [Fault(term=1, worker=worker, after=0.05, kind="killed") for worker in node]
    notes = simulate(config, Plan(0.15, faults=faults), BEAT, config.cells)
    last = notes.placements[max(notes.placements)]
    assert sorted(cell for own in last.values() for cell in own) == list(range(config.cells))
    assert not last.keys() & set(node)


def test_where_nobody_is_left_and_nobody_can_be_started_the_run_says_so(tmp_path: Path) -> None:
    config = simulated_config("2x2", ROUNDS, tmp_path)
    faults = [Fault(term=1, worker=1 + cell, after=0.05, kind="killed") for cell in range(4)]
    with pytest.raises(master_state.WorkerError, match="no worker could be started"):
        simulate(config, Plan(1.0, faults=faults), BEAT, config.cells)


def test_sheets_of_a_large_grid_show_some_of_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "MOST_SHEETS", 4)
    config = simulated_config("3x3", 1, tmp_path)
    simulate(config, Plan(0.01), BEAT, config.cells)
    names = sorted(path.stem for path in (tmp_path / "run" / "samples" / "round-000001").iterdir())
    assert names == ["cell-0000", "cell-0003", "cell-0006", "mixture"]
