"""Asynchronous runs: nobody waits for the slow, unless told to. Workers are threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config import Config, load_config
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel
from remuda.methods import Mixture
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.observer import Observer
from remuda.runs.store import RunFolder
from tests.parallel.paced import SLOW_CELL, ThreadsEngine, slow_down
from tests.tiny_runs import CELLS, tiny

pytestmark = pytest.mark.slow

ROUNDS = 10


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    slow_down(monkeypatch)
    return monkeypatch


def settings(data: Path, run: Path, *more: str) -> Config:
    more = ("exchange.mode=async", "run.sheet_every=0", f"rounds={ROUNDS}", *more)
    source, *overrides = tiny(data, run, *more)
    return load_config(source, overrides)


def rounds_of(run: Path) -> list[dict[str, Any]]:
    """What the cells did, in the order in which the master heard of it."""
    return [event for event in RunFolder(run).events() if event["event"] == "round"]


def slow_rounds_when_the_others_were_done(events: list[dict[str, Any]]) -> int:
    """How far the slow cell had come when the last of the others reported its last round."""
    last = max(
        number
        for number, event in enumerate(events)
        if event["cell"] != SLOW_CELL and event["round"] == ROUNDS
    )
    return max((e["round"] for e in events[:last] if e["cell"] == SLOW_CELL), default=0)


def check_every_round_is_there_once(run: Path, rounds: int = ROUNDS) -> None:
    found = sorted((event["round"], event["cell"]) for event in rounds_of(run))
    assert found == [(round, cell) for round in range(1, rounds + 1) for cell in range(CELLS)]
    result = RunFolder(run).result()
    assert result is not None
    assert result.rounds == rounds


@pytest.mark.usefixtures("paced")
def test_nobody_waits_for_a_worker_that_is_ten_times_slower(tmp_path: Path, data: Path) -> None:
    run = tmp_path / "run"
    training.train(settings(data, run), engine=ThreadsEngine())
    check_every_round_is_there_once(run)
    events = rounds_of(run)
    # In step with it, the others could not have finished before its last round but one.
    assert slow_rounds_when_the_others_were_done(events) <= ROUNDS // 2

    seen = {(e["cell"], e["round"]): e["staleness"] for e in events}
    slow, others = str(SLOW_CELL), [cell for cell in range(CELLS) if cell != SLOW_CELL]
    for (cell, round), staleness in seen.items():
        assert staleness.keys() == {str(peer) for peer in range(CELLS) if peer != cell}
        for lag in staleness.values():
            assert round - 1 - ROUNDS <= lag <= round - 1  # of a round that there was
    # Its parcels got older and older for the others, and theirs came from its future.
    for cell in others:
        assert seen[cell, ROUNDS][slow] >= ROUNDS // 2 - 1
    assert min(seen[SLOW_CELL, ROUNDS // 2].values()) < 0


@pytest.mark.usefixtures("paced")
def test_with_a_bound_nobody_reads_what_is_older_and_they_wait(tmp_path: Path, data: Path) -> None:
    run, bound = tmp_path / "run", 2
    config = settings(data, run, f"exchange.max_staleness={bound}")
    training.train(config, engine=ThreadsEngine())
    check_every_round_is_there_once(run)
    events = rounds_of(run)
    lags = [lag for event in events for lag in event["staleness"].values()]
    assert max(lags) == bound  # never exceeded, and used to the full
    # For their last round the others needed its round ROUNDS - 1 - bound, which it may have
    # published a moment before it was reported.
    assert slow_rounds_when_the_others_were_done(events) >= ROUNDS - 2 - bound


@pytest.mark.usefixtures("paced")
def test_members_that_swap_wait_for_their_partner_alone(tmp_path: Path, data: Path) -> None:
    """Newer parcels may hold the very network that a member gave away: some would be lost."""
    run = tmp_path / "run"
    own = ("exchange.mode=async", "run.sheet_every=0", f"rounds={ROUNDS}", "method=gap", "grid=1x4")
    kept = [word for word in tiny(data, run) if not word.startswith(("method.", "grid="))]
    training.train(load_config(kept[0], [*kept[1:], *own]), engine=ThreadsEngine())
    events = rounds_of(run)
    for round in range(1, ROUNDS + 1):
        held = [event["lineage"] for event in events if event["round"] == round]
        assert sorted(held) == list("0123")
    swaps = [event["swap"] for event in events if event["round"] > 1]
    assert not any(swap["kept"] for swap in swaps)


def test_synchronous_rounds_have_no_staleness(tmp_path: Path, data: Path) -> None:
    run = tmp_path / "run"
    training.train(settings(data, run, "exchange.mode=sync", "rounds=1"), engine=Engine("local"))
    assert not [event for event in rounds_of(run) if "staleness" in event]


def test_a_lost_worker_is_survived(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, real, failures = tmp_path / "run", Cell.parcel, [RuntimeError("lost while publishing")]

    def parcel(cell: Cell) -> Parcel:
        if cell.round == 2 and failures:
            raise failures.pop()
        return real(cell)

    monkeypatch.setattr(Cell, "parcel", parcel)
    training.train(settings(data, run, "rounds=4"), engine=ThreadsEngine())
    assert [event for event in RunFolder(run).events() if event["event"] == "lost"]
    check_every_round_is_there_once(run, 4)


def test_an_interrupted_run_goes_on_also_on_another_engine(
    tmp_path: Path, data: Path, paced: pytest.MonkeyPatch
) -> None:
    class Impatient(Observer):
        def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
            if round == 3:
                raise KeyboardInterrupt

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        training.train(settings(data, run), Impatient(), engine=ThreadsEngine())
    # The others were far ahead of the last complete round; what they did there does not count.
    assert max(checkpoint.round for checkpoint in RunFolder(run).checkpoints()) == 3
    paced.undo()
    assert training.resume(run, engine=Engine("local")) is not None
    check_every_round_is_there_once(run)
    assert len(list((run / "checkpoints").iterdir())) == len(RunFolder(run).checkpoints())
