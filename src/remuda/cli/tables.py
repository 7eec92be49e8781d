"""Tables for the terminal that more than one command shows: the workers, and what a run cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from remuda.parallel.protocol import Liveness, WorkerStatus
from remuda.runs.costs import Costs

NARROW = 80  # columns below which tables leave something out
_COLOURS = {Liveness.WORKING: "green", Liveness.DELAYED: "yellow", Liveness.DEAD: "red"}
_MOST_CELLS = 4  # of one worker, listed by name


def workers_table(workers: Sequence[WorkerStatus], width: int) -> Table:
    """One line per worker: where it is, what it does, and when it was last heard."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    narrow = width < NARROW
    titles = ("worker", "host", *([] if narrow else ["pid"]), "state", "heartbeat", "heard")
    for title in titles:
        table.add_column(title, no_wrap=title != "host", overflow="fold")
    table.add_column("cell:round", overflow="fold")
    for watched in workers:
        colour = _COLOURS[watched.liveness]
        table.add_row(
            str(watched.worker),
            Text(watched.host),
            *([] if narrow else [str(watched.pid)]),
            watched.state,
            Text(watched.liveness, style=colour),
            f"{watched.heard:.1f}s ago",
            _cells(watched),
            # What needs a look catches the eye as a whole line.
            style=None if watched.liveness is Liveness.WORKING else colour,
        )
    return table


def workers_line(workers: Sequence[WorkerStatus]) -> Text:
    """All workers in one line: how many are well, how many are not."""
    counts = Counter(watched.liveness for watched in workers)
    parts = [
        Text(f"{counts[liveness]} {liveness}", style=colour)
        for liveness, colour in _COLOURS.items()
        if counts[liveness]
    ]
    return Text.assemble("workers ", Text(", ").join(parts))


def _cells(watched: WorkerStatus) -> str:
    if not watched.cells:
        return "" if watched.liveness is Liveness.DEAD else "spare"
    rounds = [watched.rounds.get(cell, 0) for cell in watched.cells]
    if len(rounds) <= _MOST_CELLS:
        pairs = zip(watched.cells, rounds, strict=True)
        return " ".join(f"{cell}:{round}" for cell, round in pairs)
    first, last = min(rounds), max(rounds)
    return f"{len(rounds)} cells:{first}" + ("" if first == last else f"-{last}")


def costs_lines(costs: Costs, width: int) -> list[str]:
    """Where the cells' time went, and what they moved, in a few lines."""
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
    lines = ["time of all cells by routine", *(f"  {row}" for row in rows)]
    if costs.bytes:
        lines.append(f"per cell, round {_moved(costs, costs.cell_rounds)}")
        lines.append(f"in all          {_moved(costs, 1)}")
    return lines


def _moved(costs: Costs, parts: int) -> str:
    names = sorted(costs.bytes, key=lambda name: (name != "published", name))
    return ", ".join(f"{size(costs.bytes[name] / parts)} {name}" for name in names)


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit, digits in (("B", 0), ("kB", 1), ("MB", 1), ("GB", 1)):
        if count < 999.95:
            return f"{count:.{digits}f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _share(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
