"""The live view, drawn without a run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from remuda.cli.view import LiveView
from remuda.parallel.protocol import Liveness, State, WorkerStatus


def drawn(workers: list[WorkerStatus], width: int = 80) -> str:
    view = LiveView(Console(file=io.StringIO(), width=width, height=30))
    view.watched(workers)
    with view.console.capture() as capture:
        view.console.print(view.render())
    return capture.get()


def watched(worker: int, liveness: Liveness = Liveness.WORKING) -> WorkerStatus:
    return WorkerStatus(worker, "node", 1, State.PROCESSING, liveness, 6.0, (worker,), {worker: 2})


def test_workers_that_are_well_take_one_line() -> None:
    text = drawn([watched(1), watched(2), watched(3)])
    assert "workers 3 working\n" in text
    assert "node" not in text


@pytest.mark.parametrize("width", [60, 80])
def test_only_workers_that_are_not_well_are_listed(width: int) -> None:
    text = drawn([watched(1), watched(2, Liveness.DELAYED), watched(3, Liveness.DEAD)], width)
    assert "workers 1 working, 1 delayed, 1 dead" in text
    rows = [line.split() for line in text.splitlines() if "node" in line]
    assert [(row[0], row[-4], row[-1]) for row in rows] == [
        ("2", "delayed", "2:2"),
        ("3", "dead", "3:2"),
    ]


def test_a_thousand_delayed_workers_do_not_fill_the_screen() -> None:
    text = drawn([watched(number, Liveness.DELAYED) for number in range(1000)])
    assert "1000 delayed" in text
    assert len(text.splitlines()) < 15


def test_a_single_worker_is_not_worth_a_line() -> None:
    assert "workers" not in drawn([watched(1)])
