"""What more than one command prints: plain tables, the workers, and what a run cost."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from remuda.errors import visible
from remuda.parallel.protocol import Liveness, WorkerStatus
from remuda.runs.costs import Costs

NARROW = 80  # columns below which tables leave something out
_COLOURS = {Liveness.WORKING: "green", Liveness.DELAYED: "yellow", Liveness.DEAD: "red"}
_MAX_LISTED_CELLS = 4  # of one worker; more are counted


def verbatim(text: str, style: str = "") -> Text:
    """Text as it is: no markup, and what a terminal would obey written out."""
    return Text(visible(text), style=style)


class VerbatimTable(Table):
    """A table without lines, whose titles and cells are shown as they are."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(box=None, pad_edge=False, header_style="dim", **settings)

    def add_column(self, header: RenderableType = "", *more: Any, **settings: Any) -> None:
        # A title may be broken where remuda breaks it.
        lines = [verbatim(line) for line in header.split("\n")] if isinstance(header, str) else []
        super().add_column(Text("\n").join(lines) if lines else header, *more, **settings)

    def add_row(self, *cells: RenderableType | None, **settings: Any) -> None:
        shown = (verbatim(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*shown, **settings)


def plain_table(*titles: str, numbers: bool = False) -> Table:
    """A table without lines; with `numbers`, every column but the first is aligned right."""
    table = VerbatimTable()
    for place, title in enumerate(titles):
        right = numbers and place > 0
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    return table


def print_table(table: Table) -> None:
    """Print to the terminal's width; to a pipe, print every row on one line, for grep and co."""
    Console(width=None if sys.stdout.isatty() else 1000, highlight=False).print(table)


def workers_table(workers: Sequence[WorkerStatus], width: int) -> Table:
    """One line per worker: where it is, what it does, and when it was last heard from."""
    table = VerbatimTable(padding=(0, 2, 0, 0))
    narrow = width < NARROW
    titles = ("worker", "host", *([] if narrow else ["pid"]), "state", "heartbeat", "heard")
    for title in titles:
        table.add_column(title, no_wrap=title != "host", overflow="fold")
    table.add_column("cell:round", overflow="fold")
    for worker in workers:
        colour = _COLOURS[worker.liveness]
        table.add_row(
            str(worker.worker),
            worker.host,
            *([] if narrow else [str(worker.pid)]),
            worker.state,
            Text(worker.liveness, style=colour),
            _heard(worker),
            _cells(worker),
            # A worker that needs attention is coloured as a whole line.
            style=None if worker.liveness is Liveness.WORKING else colour,
        )
    return table


def _heard(worker: WorkerStatus) -> str:
    """When a worker was heard; for a delayed one, what it is delayed by."""
    if worker.still is not None:
        return f"no progress {worker.still:.0f}s"
    if worker.liveness is Liveness.DELAYED:
        return f"silent {worker.heard:.1f}s"
    return f"{worker.heard:.1f}s ago"


def workers_line(workers: Sequence[WorkerStatus]) -> Text:
    """All workers in one line: how many are working, delayed and dead."""
    counts = Counter(worker.liveness for worker in workers)
    parts = [
        Text(f"{counts[liveness]} {liveness}", style=colour)
        for liveness, colour in _COLOURS.items()
        if counts[liveness]
    ]
    return Text.assemble("workers: ", Text(", ").join(parts))


def _cells(worker: WorkerStatus) -> str:
    if not worker.cells:
        return "" if worker.liveness is Liveness.DEAD else "spare"
    rounds = [worker.rounds.get(cell, 0) for cell in worker.cells]
    if len(rounds) <= _MAX_LISTED_CELLS:
        pairs = zip(worker.cells, rounds, strict=True)
        return " ".join(f"{cell}:{round}" for cell, round in pairs)
    first, last = min(rounds), max(rounds)
    return f"{len(rounds)} cells:{first}" + ("" if first == last else f"-{last}")


def costs_lines(costs: Costs, width: int) -> list[str]:
    """Where the cells' time went and how many bytes they moved, in a few lines."""
    if not costs.seconds:
        return []
    whole = sum(costs.seconds.values()) or 1.0
    entries = [
        f"{name:<15}{seconds:>9,.1f}s {_share(seconds / whole):>6}"
        for name, seconds in costs.seconds.items()
    ]
    columns = 2 if width >= NARROW else 1
    height = -(-len(entries) // columns)
    rows = ["     ".join(entries[row::height]) for row in range(height)]
    lines = ["time by routine, summed over all cells", *(f"  {row}" for row in rows)]
    if costs.bytes:
        lines.append(f"per cell and round: {_traffic(costs, costs.cell_rounds)}")
        lines.append(f"in total:           {_traffic(costs, 1)}")
    return lines


def _traffic(costs: Costs, parts: int) -> str:
    names = sorted(costs.bytes, key=lambda name: (name != "published", name))
    return ", ".join(f"{size(costs.bytes[name] / parts)} {name}" for name in names)


def size(count: float) -> str:
    """A number of bytes for people to read: 6.6 MB."""
    for unit, digits in (("B", 0), ("kB", 1), ("MB", 1), ("GB", 1)):
        if count < 999.95:
            return f"{count:.{digits}f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _share(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
