"""The live view, drawn without a run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from remuda.protocol import State, Verdict, Watched
from remuda.view import LiveView


def drawn(workers: list[Watched], width: int = 80) -> str:
    view = LiveView(Console(file=io.StringIO(), width=width, height=30))
    view.watched(workers)
    with view.console.capture() as capture:
        view.console.print(view.render())
    return capture.get()


def watched(worker: int, verdict: Verdict = Verdict.WORKING) -> Watched:
    return Watched(worker, "node", 1, State.PROCESSING, verdict, 6.0, (worker,), {worker: 2})


def test_workers_that_are_well_take_one_line() -> None:
    text = drawn([watched(1), watched(2), watched(3)])
    assert "workers 3 working\n" in text
    assert "node" not in text


@pytest.mark.parametrize("width", [60, 80])
def test_only_workers_that_are_not_well_are_listed(width: int) -> None:
    text = drawn([watched(1), watched(2, Verdict.DELAYED), watched(3, Verdict.DEAD)], width)
    assert "workers 1 working, 1 delayed, 1 dead" in text
    rows = [line.split() for line in text.splitlines() if "node" in line]
    assert [(row[0], row[-4], row[-1]) for row in rows] == [
        ("2", "delayed", "2:2"),
        ("3", "dead", "3:2"),
    ]


def test_a_thousand_delayed_workers_do_not_fill_the_screen() -> None:
    text = drawn([watched(number, Verdict.DELAYED) for number in range(1000)])
    assert "1000 delayed" in text
    assert len(text.splitlines()) < 15


def test_a_single_worker_is_not_worth_a_line() -> None:
    assert "workers" not in drawn([watched(1)])
