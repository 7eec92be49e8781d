"""What the user sees during training: a live table of the cells, or plain lines."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from remuda.cli.tables import NARROW, VerbatimTable, verbatim, workers_line, workers_table
from remuda.config import METRICS
from remuda.errors import shape_text
from remuda.methods import Mixture, RoundReport
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import Liveness, WorkerStatus
from remuda.runs.alarms import Alarm
from remuda.runs.prepare import Run

_WIDE = 110  # columns of a terminal that fits the whole table
_MAX_LISTED_WORKERS = 5
_LONG = 10.0  # seconds of scoring that are announced in a log too
_SHORT_SECONDS = 5.0  # between two lines about rounds that are not scored
_SIGN_OF_LIFE_SECONDS = 30.0  # between two lines of a plain view


class View(Observer):
    """What both views share: what is known about the run so far."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.path: Path | None = None
        self.round = 0
        self.rounds = 0
        self.metric = ""
        self.unit = "images"
        self.scores_some = False  # of the rounds
        self._alarmed: set[tuple[int, str]] = set()
        self._recent: deque[float] = deque(maxlen=5)  # seconds of the last rounds
        self._reported: dict[int, dict[int, RoundReport]] = {}  # by round and cell
        self._complete: list[RoundReport] = []  # of the last complete round, one per cell
        self._rate = 0.0

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def prepared(self, message: str) -> None:
        self._print(message)

    def started(self, run: Run, path: Path, round: int) -> None:
        self.path, self.round, self.rounds = path, round, run.config.rounds
        self.metric = METRICS[run.config.score.metric].title
        self.unit = run.unit
        self.scores_some = run.scorer is not None and run.config.score.every > 1
        self._print(describe(run))
        if run.scorer is not None:
            samples, real = run.config.score.samples, run.scorer.real.count
            self._print(
                f"{self.metric} while training: {samples:,} samples per cell against {real:,} real "
                f"{self.unit}, by {run.scorer.extractor.name}"
            )
        self._print(f"run folder {path}")
        if round:
            self._print(f"continuing after round {round}")

    def reported(self, report: RoundReport, alarms: list[Alarm]) -> None:
        # By round, since cells may be one ahead; by cell, since after a loss a round comes again.
        self._reported.setdefault(report.round, {})[report.cell] = report
        for alarm in alarms:
            # Each kind once per cell; the live table and events.jsonl show every one.
            if (report.cell, alarm.kind) not in self._alarmed:
                self._alarmed.add((report.cell, alarm.kind))
                self._print(
                    f"cell {report.cell}, round {report.round}: {alarm.message}; "
                    f"advice: {alarm.advice}",
                    kind="alarm",
                )

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        self.round = round
        self._recent.append(seconds)
        self._complete = list(self._reported.pop(round, {}).values())
        self._rate = sum(report.losses.images for report in self._complete) / seconds

    def warned(self, message: str) -> None:
        self._print(message, kind="warning")

    def _print(self, line: str, kind: str = "") -> None:
        """Print a line verbatim: not wrapped, and without reading brackets as markup."""
        text = verbatim(line)
        if kind:
            text = Text.assemble((kind, "yellow"), " ", text)
        self.console.print(text, soft_wrap=True)

    def time_left(self) -> str:
        if not self._recent:
            return "?"
        return duration(sum(self._recent) / len(self._recent) * (self.rounds - self.round))


class PlainView(View):
    """One line per round, for logs and pipes, and a sign of life now and then in long rounds."""

    def started(self, run: Run, path: Path, round: int) -> None:
        super().started(run, path, round)
        self._last_line = time.monotonic()

    def ticked(self, cell: int, round: int, batch: int, batches: int) -> None:
        if time.monotonic() - self._last_line > _SIGN_OF_LIFE_SECONDS:
            self._print_progress(
                f"round {round:>4}/{self.rounds}  cell {cell}  batch {batch}/{batches}"
            )

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        super().completed(round, mixture, seconds)
        # Short rounds between two scores do not need a line each.
        if mixture.score is None and self.scores_some and self._is_recent():
            return
        count = len(self._complete)
        generator = sum(report.losses.generator for report in self._complete) / count
        discriminator = sum(report.losses.discriminator for report in self._complete) / count
        score = f"{self.metric} {mixture.score.value:8.2f}  " if mixture.score else ""
        self._print_progress(
            f"round {round:>4}/{self.rounds}  {score}{founders(mixture, count)}"
            f"loss G {generator:6.3f} D {discriminator:6.3f}"
            f"  {self._rate:7,.0f} {self.unit}/s  left {self.time_left()}"
        )

    def _is_recent(self) -> bool:
        return time.monotonic() - self._last_line < _SHORT_SECONDS

    def _print_progress(self, line: str) -> None:
        self._last_line = time.monotonic()
        self._print(line)


class LiveView(View):
    """A table of the cells that updates in place."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None
        self._reports: dict[int, RoundReport] = {}
        self._alarms: dict[int, str] = {}
        self._progress: dict[int, float] = {}  # rounds done by each cell, fractions included
        self._score: float | None = None
        self._run: Run | None = None
        self._workers: tuple[float, list[WorkerStatus]] = (0.0, [])

    def __enter__(self) -> LiveView:
        self.console.print("[dim]loading the data[/]")
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, run: Run, path: Path, round: int) -> None:
        super().started(run, path, round)
        self._run = run
        self._progress = dict.fromkeys(range(run.config.cells), float(round))
        self._live = Live(console=self.console, get_renderable=self.render, refresh_per_second=4)
        self._live.start()

    def ticked(self, cell: int, round: int, batch: int, batches: int) -> None:
        self._progress[cell] = round - 1 + batch / batches

    def reported(self, report: RoundReport, alarms: list[Alarm]) -> None:
        super().reported(report, alarms)
        before = self._reports.get(report.cell)
        if report.score is None and before is not None:  # between two scores
            report = dataclasses.replace(report, score=before.score, classes=before.classes)
        self._reports[report.cell] = report
        self._progress[report.cell] = report.round
        self._alarms[report.cell] = ", ".join(alarm.kind for alarm in alarms)

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        super().completed(round, mixture, seconds)
        if mixture.score is not None or not self.scores_some:
            self._score = mixture.score.value if mixture.score else None

    def workers_seen(self, workers: Sequence[WorkerStatus]) -> None:
        self._workers = (time.monotonic(), list(workers))

    def render(self) -> RenderableType:
        """The view as it is now."""
        done = sum(self._progress.values()) / max(1, len(self._progress))
        score = f"{self.metric} {self._score:.2f}" if self._score is not None else ""
        rate = f"{self._rate:,.0f} {self.unit}/s" if self._rate else ""
        narrow = self.console.width < NARROW
        head = Table.grid(padding=(0, 2))
        head.add_row(
            f"round {min(self.round + 1, self.rounds)}/{self.rounds}",
            ProgressBar(
                total=self.rounds, completed=min(done, self.rounds), width=8 if narrow else 24
            ),
            score,
            *([] if narrow else [rate]),
            f"left {self.time_left()}",
        )
        workers, height = self._workers_section()
        return Group(head, *workers, self._cells_table(max(4, self.console.height - 8 - height)))

    def _workers_section(self) -> tuple[list[RenderableType], int]:
        """One line for all workers, a table of those not working, and the height of both."""
        seen, workers = self._workers
        if len(workers) < 2 and all(one.liveness is Liveness.WORKING for one in workers):
            return [], 0
        age = time.monotonic() - seen
        listed = [
            dataclasses.replace(worker, heard=worker.heard + age)
            for worker in workers
            if worker.liveness is not Liveness.WORKING
        ][-_MAX_LISTED_WORKERS:]
        if not listed:
            return [workers_line(workers)], 1
        return [workers_line(workers), workers_table(listed, self.console.width)], 2 + len(listed)

    def _cells_table(self, height: int) -> Table:
        width = self.console.width
        columns = [column for column in _COLUMNS if width >= column.min_width]
        table = VerbatimTable(padding=(0, 1, 0, 0))
        for column in columns:
            title = column.title or self.metric
            # On the usual 80 columns titles take two lines, so that no number is cut off.
            title = title.replace(" ", "\n") if width < _WIDE else title
            table.add_column(title, justify=column.justify, no_wrap=True)
        table.add_column("", overflow="fold")
        shown = sorted(self._reports)[:height]
        for cell in shown:
            report = self._reports[cell]
            values = [column.value(report) for column in columns]
            if width >= _WIDE:
                assert self._run is not None
                row, place = self._run.method.grid.at(report.round).position(cell)
                values[0] = f"{cell} ({row},{place})"
            table.add_row(*values, verbatim(self._alarms.get(cell, ""), "yellow"))
        if len(self._reports) > len(shown):
            table.add_row(f"… {len(self._reports) - len(shown)} more")
        return table


@dataclass(frozen=True)
class _Column:
    """A column of the live table, shown if the terminal is wide enough."""

    title: str  # empty: the metric's title
    value: Callable[[RoundReport], str]
    min_width: int = 0
    justify: Literal["left", "right"] = "right"


def _fitness(role: str) -> Callable[[RoundReport], str]:
    return lambda report: _number(report.details.get("centre", {}).get(role, {}).get("fitness"))


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


_COLUMNS = (
    _Column("cell", lambda report: str(report.cell)),
    _Column("round", lambda report: str(report.round)),
    _Column("loss G", lambda report: _number(report.losses.generator)),
    _Column("loss D", lambda report: _number(report.losses.discriminator)),
    _Column("fitness G", _fitness("generator"), NARROW),
    _Column("fitness D", _fitness("discriminator"), NARROW),
    _Column("lr G", lambda report: f"{report.genes.lr_generator:.1e}", NARROW),
    _Column("lr D", lambda report: f"{report.genes.lr_discriminator:.1e}", NARROW),
    _Column("loss gene", lambda report: str(report.genes.loss), justify="left"),
    _Column("", lambda report: _number(report.score, 1)),
    _Column("classes", lambda report: _number(report.classes, 0), _WIDE),
)


def founders(mixture: Mixture, cells: int) -> str:
    """How many of the first generators and discriminators have descendants, where some are lost."""
    found = mixture.diversity
    if found is None or mixture.merged or min(found.generators, found.discriminators) == cells:
        return ""
    return f"founders G {found.generators} D {found.discriminators}  "


def make_view(console: Console, plain: bool = False) -> View:
    """A live table on a terminal, otherwise plain lines."""
    return PlainView(console) if plain or not console.is_terminal else LiveView(console)


class ScoringBar:
    """Progress of scoring: a bar on a terminal, elsewhere one line if it takes long."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self._console = console
        self._bar = bar
        self._task = bar.add_task("loading", total=None)

    def started(self, images: int, seconds: float, doing: str = "scoring") -> None:
        if seconds > _LONG or self._console.is_terminal:
            self._console.print(f"{doing} {images:,} items, about {duration(seconds)}")
        self._bar.reset(self._task, description="scoring", total=images)

    def said(self, message: str) -> None:
        self._console.print(verbatim(message), soft_wrap=True)

    def advanced(self, images: int) -> None:
        self._bar.advance(self._task, images)


@contextmanager
def scoring() -> Iterator[ScoringBar]:
    """A progress bar on standard error while a run is scored."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        yield ScoringBar(console, bar)


def describe(run: Run) -> str:
    """The run in one line: method, grid, data, network, rounds, seed, threads."""
    config, data = run.config, run.dataset
    grid = f"{config.grid.shape[0]}x{config.grid.shape[1]}"
    known = config.network.num_classes
    given = f" given {known} labels" if known else ""
    return (
        f"{config.name}: {config.method.name} on a {grid} grid, {len(data):,} items of "
        f"{data.name} ({shape_text(data.shape)}), {config.network.family}{given}, "
        f"{config.rounds} rounds, seed {config.seed}, threads {config.threads}"
    )


def duration(seconds: float) -> str:
    """Seconds for people to read: 42s, 3m05s, 2h10m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
