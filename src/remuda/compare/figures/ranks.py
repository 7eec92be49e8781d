"""Mean ranks over data sets, and which of them differ: the diagram of Demšar (2006)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from remuda.analysis.figures import INK, literal
from remuda.compare.figures.style import (
    COLUMN,
    LINE,
    PAGE,
    Array,
    Form,
    file_of,
    folded,
    inches,
    paper,
    sheet,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: the widest name, room around all, what is above the axis, rows of bars that join groups.
_NAME, _MARGIN, _ABOVE, _BAR = 1.45, 0.1, 0.62, 0.09


def critical_difference(
    names: Sequence[str],
    mean_ranks: Array | Sequence[float],
    distance: float,
    groups: Sequence[Sequence[str]],
    datasets: int,
    blocks: str = "data sets",
    form: Form = "png",
) -> bytes:
    """Mean ranks (1 is best) on an axis; bars join the groups of names which do not differ.

    `distance` is the critical difference, NaN where there is none; `datasets` of what `blocks`
    says are ranked.
    """
    with paper():
        figure = ranks_figure(
            names, mean_ranks, distance, groups, f"{blocks} (N = {datasets}, 1 is best)"
        )
        return file_of(figure, form)


def ranks_figure(
    names: Sequence[str],
    mean_ranks: Array | Sequence[float],
    distance: float,
    groups: Sequence[Sequence[str]],
    over: str,
) -> Figure:
    """As `critical_difference`, before it is a file; inside `paper()`."""
    order = [int(place) for place in np.argsort(mean_ranks, kind="stable")]
    ranks = [float(mean_ranks[place]) for place in order]
    texts = [
        folded(f"{names[place]}  {float(mean_ranks[place]):.2f}", _NAME) or "" for place in order
    ]
    side = max(map(inches, [*texts, _ruler_label(distance)])) + _MARGIN + 0.1
    width = COLUMN if COLUMN - 2 * side >= 0.22 * len(names) + 0.4 else PAGE
    step = LINE * (1.15 + max(text.count("\n") for text in texts))
    bars = _bars([[ranks[order.index(list(names).index(one))] for one in all] for all in groups])
    first = _ABOVE + _BAR * (1.5 + len(bars)) + step / 2
    half = math.ceil(len(names) / 2)
    height = first + step * (half - 0.5) + _MARGIN
    figure = sheet(width, height)
    figure.set_layout_engine("none")
    # One unit is an inch, from the upper left corner.
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)

    def across(rank: float) -> float:
        return side + (rank - 1) / (len(names) - 1) * (width - 2 * side)

    _axis(axes, [across(rank) for rank in range(1, len(names) + 1)], over, width)
    _ruler(axes, across(1), across(1 + distance), distance, width)
    for row, (low, high) in enumerate(bars):
        down = _ABOVE + _BAR * (row + 1.2)
        axes.plot(
            [across(low) - 0.04, across(high) + 0.04],
            [down, down],
            color=INK,
            linewidth=2.4,
            solid_capstyle="butt",
            gid="group",
        )
    for place, (rank, text) in enumerate(zip(ranks, texts, strict=True)):
        left = place < half
        row = place if left else len(names) - 1 - place
        _name(axes, across(rank), side if left else width - side, first + row * step, text)
    return figure


def _bars(groups: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """From the best to the worst rank of each group of two or more, the best group first."""
    return sorted((min(ranks), max(ranks)) for ranks in groups if len(ranks) > 1)


def _axis(axes: Axes, ticks: Sequence[float], over: str, width: float) -> None:
    axes.text(
        *(width / 2, _MARGIN, f"mean rank over {literal(over)}"),
        ha="center",
        va="center",
    )
    axes.plot([ticks[0], ticks[-1]], [_ABOVE, _ABOVE], color=INK, linewidth=0.9)
    for rank, across in enumerate(ticks, 1):
        axes.plot([across, across], [_ABOVE - 0.05, _ABOVE], color=INK, linewidth=0.9)
        axes.text(across, _ABOVE - 0.07, str(rank), ha="center", va="bottom")


def _ruler_label(distance: float) -> str:
    return f"CD = {distance:.2f}"


def _ruler(axes: Axes, start: float, end: float, distance: float, width: float) -> None:
    """The critical difference over the axis, as a number only if it is too long."""
    if not math.isfinite(distance):
        return
    down = _MARGIN + 0.2
    axes.text(start - 0.07, down, _ruler_label(distance), ha="right", va="center")
    if end > width - _MARGIN:
        axes.text(start, down, "(too long to draw)", ha="left", va="center")
        return
    axes.plot([start, end], [down, down], color=INK, linewidth=0.9, gid="ruler")
    for across in (start, end):
        axes.plot([across, across], [down - 0.035, down + 0.035], color=INK, linewidth=0.9)


def _name(axes: Axes, across: float, edge: float, down: float, text: str) -> None:
    """A name at its side, and the line from it to its rank."""
    axes.plot([across, across, edge], [_ABOVE, down, down], color=INK, linewidth=0.7, gid="elbow")
    left = edge < across or (edge == across and across < axes.get_xlim()[1] / 2)
    axes.text(
        *(edge - 0.05 if left else edge + 0.05, down, literal(text)),
        ha="right" if left else "left",
        va="center",
        multialignment="right" if left else "left",
        linespacing=1.05,
    )
