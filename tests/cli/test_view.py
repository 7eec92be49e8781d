"""The views of a run in training, without a terminal: recorded once, shown at several widths."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from remuda.cli.view import LiveView, PlainView, View, founders, make_view
from remuda.config import load_config
from remuda.methods import Mixture, RoundReport
from remuda.methods.base import Diversity
from remuda.parallel import training
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import Liveness, State, WorkerStatus
from remuda.runs.alarms import Alarm
from remuda.runs.prepare import Run
from tests.tiny_runs import tiny


class Recorder(Observer):
    """Remembers a run, to show it to other observers."""

    def __init__(self) -> None:
        self._events: list[tuple[str, tuple[object, ...]]] = []

    def started(self, run: Run, path: Path, round: int) -> None:
        self._events.append(("started", (run, path, round)))

    def ticked(self, cell: int, round: int, batch: int, batches: int) -> None:
        self._events.append(("ticked", (cell, round, batch, batches)))

    def reported(self, report: RoundReport, alarms: list[Alarm]) -> None:
        self._events.append(("reported", (report, alarms)))

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        self._events.append(("completed", (round, mixture, seconds)))

    def replay(self, view: View) -> str:
        """What a view has printed at the end."""
        with view:
            for name, arguments in self._events:
                getattr(view, name)(*arguments)
        assert isinstance(view.console.file, io.StringIO)
        return view.console.file.getvalue()


@pytest.fixture(scope="module")
def recorded(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    recorder = Recorder()
    source, *settings = tiny(data, tmp_path_factory.mktemp("view") / "run")
    training.train(load_config(source, settings), recorder)
    return recorder


def console(width: int = 80, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, height=30, force_terminal=terminal)


@pytest.mark.parametrize("width", [60, 80, 130])
def test_the_live_table_fits_the_terminal(recorded: Recorder, width: int) -> None:
    screen = recorded.replay(LiveView(console(width, terminal=True)))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    place = r"2 \(0,2\)" if width > 100 else "2"
    fitness_and_rates = r"[\d.-]+ +[\d.]+ +\d\.\de-\d\d +\d\.\de-\d\d +" if width >= 80 else ""
    assert re.search(
        rf"{place} +3 +-?[\d.]+ +[\d.]+ +{fitness_and_rates}(minimax|heuristic) +[\d.]+", text
    )
    assert ("fitness" in text) == ("images/s" in text) == (width >= 80)
    assert re.search(r"round 3/3 .* FID [\d.]+ .*left \d+s", text)
    assert "…" not in text
    table = text[text.rindex("round 3/3") :]
    assert max(map(len, table.splitlines())) <= width


@pytest.mark.parametrize(
    ("left", "merged", "shown"),
    [
        ((4, 4), False, ""),
        ((4, 3), False, "founders G 4 D 3  "),
        ((1, 2), False, "founders G 1 D 2  "),
        ((1, 1), True, ""),
    ],
)
def test_founders_are_counted_where_some_are_lost(
    left: tuple[int, int], merged: bool, shown: str
) -> None:
    mixture = Mixture({0: 1.0}, None, "", merged=merged, diversity=Diversity(*left, None))
    assert founders(mixture, 4) == shown
    assert founders(Mixture({0: 1.0}, None, ""), 4) == ""


def test_plain_lines_show_every_round(recorded: Recorder) -> None:
    text = recorded.replay(PlainView(console()))
    assert re.findall(r"^round +(\d)/3  FID +[\d.]+  .*loss G", text, re.M) == ["1", "2", "3"]
    assert "\x1b" not in text


def test_a_terminal_gets_the_live_table_unless_plain_lines_are_asked_for() -> None:
    assert isinstance(make_view(console(terminal=True)), LiveView)
    assert isinstance(make_view(console(terminal=True), plain=True), PlainView)
    assert isinstance(make_view(console(terminal=False)), PlainView)


# ---------------------------------------------------------------------------------- the workers


def drawn(workers: Sequence[WorkerStatus], width: int = 80) -> str:
    view = LiveView(console(width))
    view.workers_seen(workers)
    with view.console.capture() as capture:
        view.console.print(view.render())
    return capture.get()


def status(worker: int, liveness: Liveness = Liveness.WORKING) -> WorkerStatus:
    return WorkerStatus(worker, "node", 1, State.PROCESSING, liveness, 6.0, (worker,), {worker: 2})


def test_workers_that_are_all_working_take_one_line() -> None:
    text = drawn([status(1), status(2), status(3)])
    assert "workers: 3 working\n" in text
    assert "node" not in text


@pytest.mark.parametrize("width", [60, 80])
def test_only_workers_that_are_not_working_are_listed(width: int) -> None:
    text = drawn([status(1), status(2, Liveness.DELAYED), status(3, Liveness.DEAD)], width)
    assert "workers: 1 working, 1 delayed, 1 dead" in text
    rows = [line.split() for line in text.splitlines() if "node" in line]
    assert [(row[0], row[-4], row[-1]) for row in rows] == [
        ("2", "delayed", "2:2"),
        ("3", "dead", "3:2"),
    ]


def test_a_thousand_delayed_workers_do_not_fill_the_screen() -> None:
    text = drawn([status(number, Liveness.DELAYED) for number in range(1000)])
    assert "1000 delayed" in text
    assert len(text.splitlines()) < 15


def test_a_single_worker_is_not_worth_a_line_unless_something_is_wrong_with_it() -> None:
    assert "workers" not in drawn([status(1)])
    stuck = dataclasses.replace(status(1, Liveness.DELAYED), still=45.0)
    assert "no progress 45s" in drawn([stuck])


def test_a_line_is_about_its_own_round_only(recorded: Recorder) -> None:
    """Cells that are a round ahead, and rounds that come again after a loss, must not mix in."""

    def lines(recorder: Recorder) -> list[str]:
        output = recorder.replay(PlainView(console()))
        return re.findall(r"round +\d/\d .*loss G +\S+ D +\S+ +\S+ images/s", output)

    events = list(recorded._events)
    ahead = next(
        place
        for place, (name, arguments) in enumerate(events)
        if name == "reported" and getattr(arguments[0], "round") == 2  # noqa: B009
    )
    first = next(place for place, (name, _) in enumerate(events) if name == "completed")
    shuffled = Recorder()
    shuffled._events = [*events[:first], events[ahead], *events[first:]]  # early, and once more
    assert len(lines(recorded)) == 3
    assert lines(shuffled) == lines(recorded)
