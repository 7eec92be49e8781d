"""The workers and the costs, as the terminal shows them."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from remuda.cli.tables import costs_lines, size, workers_line, workers_table
from remuda.parallel.protocol import Liveness, State, WorkerStatus
from remuda.runs.costs import Costs


def status(
    worker: int,
    liveness: Liveness = Liveness.WORKING,
    cells: int = 2,
    still: float | None = None,
) -> WorkerStatus:
    numbers = tuple(range(worker * cells, worker * cells + cells))
    rounds = {cell: 3 + cell % 2 for cell in numbers}
    return WorkerStatus(
        worker, "node[a]", 4711, State.PROCESSING, liveness, 7.25, numbers, rounds, still
    )


def shown(what: RenderableType, width: int, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
    )
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_worker_is_one_line_with_all_that_is_known_about_it() -> None:
    lines = shown(workers_table([status(1), status(2, cells=0)], 80), 80).splitlines()
    assert lines[0].split() == [
        "worker",
        "host",
        "pid",
        "state",
        "heartbeat",
        "heard",
        "cell:round",
    ]
    row = ["1", "node[a]", "4711", "processing", "working", "7.2s", "ago", "2:3", "3:4"]
    assert lines[1].split() == row
    assert lines[2].split()[-1] == "spare"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_cut_on_a_narrow_terminal(width: int) -> None:
    text = shown(workers_table([status(1, cells=4), status(2, Liveness.DEAD, 40)], width), width)
    assert "…" not in text
    parts = [
        "node[a]",
        "processing",
        "dead",
        "7.2s",
        "ago",
        "4:3",
        "5:4",
        "6:3",
        "7:4",
        "40",
        "3-4",
    ]
    assert all(part in text for part in parts)
    assert ("4711" in text) == (width >= 80)
    assert width == 60 or len(text.splitlines()) == 3


@pytest.mark.parametrize(
    ("liveness", "code"), [(Liveness.DELAYED, "\x1b[33m"), (Liveness.DEAD, "\x1b[31m")]
)
def test_a_worker_that_is_not_working_is_coloured_as_a_whole_line(
    liveness: Liveness, code: str
) -> None:
    text = shown(workers_table([status(1), status(2, liveness)], 80), 80, colour=True)
    working, other = text.splitlines()[1:]
    assert code not in working
    assert other.startswith(code)
    assert code in shown(workers_line([status(1), status(2, liveness)]), 80, colour=True)


@pytest.mark.parametrize("width", [60, 80])
def test_a_delayed_worker_says_by_what(width: int) -> None:
    late = Liveness.DELAYED
    workers = [status(1), status(2, late), status(3, late, still=45.4)]
    lines = shown(workers_table([*workers, status(4, Liveness.DEAD, still=600)], width), width)
    rows = [line for line in lines.splitlines() if "processing" in line]
    texts = ["7.2s ago", "silent 7.2s", "no progress 45s", "no progress 600s"]
    assert [text in row for text, row in zip(texts, rows, strict=True)] == [True] * 4


def test_what_is_written_of_a_worker_is_read_again() -> None:
    for worker in (status(1), status(2, Liveness.DELAYED, still=45.4)):
        written = json.loads(json.dumps(worker.to_json()))
        assert WorkerStatus.from_json(written) == worker
        del written["still"]  # as an earlier version wrote it
        assert WorkerStatus.from_json(written).still is None


def test_all_workers_in_one_line() -> None:
    workers = [status(1), status(2), status(3, Liveness.DELAYED), status(4, Liveness.DEAD)]
    assert shown(workers_line(workers), 80) == "workers: 2 working, 1 delayed, 1 dead\n"
    assert shown(workers_line(workers[:2]), 80) == "workers: 2 working\n"


COSTS = Costs(
    cell_rounds=4,
    seconds={"train": 75.0, "gather": 24.99, "mutate": 0.01},
    bytes={"gathered": 8_000_000, "published": 4_000_000, "saved": 2_000},
)


def test_costs_are_shown_in_seconds_shares_and_bytes() -> None:
    assert costs_lines(COSTS, 80) == [
        "time by routine, summed over all cells",
        "  train               75.0s  75.0%     mutate               0.0s  <0.1%",
        "  gather              25.0s  25.0%",
        "per cell and round: 1.0 MB published, 2.0 MB gathered, 500 B saved",
        "in total:           4.0 MB published, 8.0 MB gathered, 2.0 kB saved",
    ]


def test_costs_take_one_column_on_a_narrow_terminal() -> None:
    lines = costs_lines(COSTS, 60)
    assert [line.split()[0] for line in lines[1:4]] == ["train", "gather", "mutate"]


def test_a_run_without_rounds_cost_nothing() -> None:
    assert costs_lines(Costs(), 80) == []


@given(st.integers(0, 10**16))
def test_a_size_is_short_and_about_right(count: int) -> None:
    number, unit = size(count).split()
    power = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}[unit]
    assert abs(float(number) * power - count) <= 0.051 * power
    assert float(number) < 1000 or unit == "TB"
