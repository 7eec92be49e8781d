"""What `benchmarks/tables.py` makes of executions, by executions that can be worked out by hand."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from benchmarks import executions, tables
from benchmarks.article_tables import all_tables, page, table_iv, weak_scaling
from benchmarks.executions import Case, Execution, Log, Memory
from benchmarks.memory import MB


def execution(grid: str, workers: int, seconds: float, batches: int = 60) -> Execution:
    cells = executions.cells_of(grid)
    return Execution(
        case=Case(grid, workers, 2, batches, "digits"),
        round_s=seconds,
        cpu_s=seconds * workers,
        whole_s=seconds + 2.0,
        beside_s=2.0,
        routines={"train": 1.0 * cells, "gather": 0.5 * cells, "other": 0.25 * cells},
        processes=workers + 2,
        rss_mb=500.0 * workers,
        once_mb=200.0 * workers,
    )


def figures(monkeypatch: pytest.MonkeyPatch, resume: Path | None = None) -> dict[str, Any]:
    """Those of executions whose cells take a second, and two workers half as long for each."""

    def execute(case: Case, name: str) -> Execution:
        own = -(-executions.cells_of(case.grid) // case.workers)
        return execution(case.grid, case.workers, float(own), case.batches)

    monkeypatch.setattr(executions, "execute", execute)
    monkeypatch.setattr(tables, "source", lambda: "digits")
    monkeypatch.setattr(tables, "ceiling", lambda workers, batches: (1.0, 1.0))
    options = argparse.Namespace(
        workers=2, repeat=4, rounds=2, batches=60, grids=["2x2", "3x3", "4x4"], resume=resume
    )
    machine = {"cores": 2, "processor": "P", "torch": "T"}
    return {"command": "C", "date": "D", "machine": machine, **tables.measure(options)}


def test_an_execution_is_its_rounds_after_the_first() -> None:
    events: list[dict[str, Any]] = [{"event": "started"}]
    for round, spent in ((1, 9.0), (2, 1.0), (3, 3.0)):
        for cell in (0, 1):
            seconds = {"train": spent / 4, "other": 0.1}
            events.append(
                {"event": "round", "round": round, "cell": cell, "seconds": seconds}
                | {"cpu_seconds": spent / 2}
            )
        events.append({"event": "population", "round": round, "seconds": spent})
    case = Case("1x2", 1, 3, 5, "digits")
    found = Execution.of(case, events, 20.0, Memory(3, 10 * MB, 5 * MB))
    assert found.round_s == pytest.approx(2.0)
    assert found.cpu_s == pytest.approx(2.0)
    assert found.beside_s == pytest.approx(20.0 - 13.0)
    assert found.routines == pytest.approx({"train": 1.0, "other": 0.2})
    assert (found.processes, found.rss_mb, found.once_mb) == (3, 10.0, 5.0)


def test_single_and_distributed_executions_are_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    found = figures(monkeypatch)
    counts = {name: row["executions"] for name, row in found["table_ii"].items()}
    assert {
        counts[f"{grid} {kind}"] for grid in ("2x2", "4x4") for kind in ("single", "distributed")
    } == {4}
    assert found["table_ii"]["4x4 crowded"]["workers"] == 16


def test_efficiency_is_the_speed_up_over_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = figures(monkeypatch)
    assert found["table_iii"]["4x4"]["efficiency"] == pytest.approx(1.0)
    assert found["table_iii"]["3x3"]["efficiency"] == pytest.approx(0.9)
    assert found["table_iii"]["3x3"]["possible_efficiency"] == pytest.approx(0.9)
    assert found["weak"]["grid"] == "3x6"
    assert found["weak"]["efficiency"] == pytest.approx(1.0)


def test_weak_efficiency_stands_beside_the_articles(monkeypatch: pytest.MonkeyPatch) -> None:
    (table,) = weak_scaling(figures(monkeypatch))
    assert [row[-1] for row in table.rows] == [
        "1",
        "1.00 (of medians 1.00)",
        "1.00",
        "0.54",
        "0.31",
    ]


def test_only_training_is_scaled_to_a_round_of_full_length(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = figures(monkeypatch)["table_iv"]["routines"]
    assert rows["train"]["full_single_s"] == pytest.approx(10 * rows["train"]["single_s"]["mean"])
    assert rows["gather"]["full_single_s"] == pytest.approx(rows["gather"]["single_s"]["mean"])


def test_acceleration_is_the_time_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {row[0]: row for row in table_iv(figures(monkeypatch)).rows}
    # On two workers, each has half of what one has.
    assert rows["train"][5:] == ["50.0%", "2.00", "264.9", "43.8", "83.5%", "6.05"]
    assert rows["other"][7:9] == ["1410.4", "28.8"]


def test_an_interrupted_command_goes_on_with_what_is_in_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "executions.jsonl"
    before = figures(monkeypatch, file)
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:5]) + "\n")
    assert figures(monkeypatch, file)["table_iii"] == before["table_iii"]
    assert len(file.read_text().splitlines()) == len(lines)
    monkeypatch.setattr(executions, "execute", None)  # nothing is left to execute
    log = Log(file)
    assert log.execution(Case("2x2", 1, 2, 60, "digits"), "").round_s == pytest.approx(4.0)


def test_a_page_has_every_table_and_says_if_the_machine_was_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = figures(monkeypatch)
    limit = "speed_up_of_processes_that_share_nothing"
    free, busy = (page({**found, limit: share * found["workers"]}) for share in (0.97, 0.7))
    for table in all_tables(found):
        assert f"## {table.title}\n" in free
        assert all(len(row) == len(table.head) for row in table.rows)
    assert "mean nothing.**" in busy
    assert "mean nothing.**" not in free
    assert "The cores were free" in free


@pytest.mark.slow
def test_a_failed_execution_says_why() -> None:
    with pytest.raises(SystemExit, match="no-such-data"):
        executions.execute(Case("2x2", 1, 2, 5, "no-such-data"), "2x2 single")
