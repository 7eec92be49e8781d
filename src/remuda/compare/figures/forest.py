"""Differences between arms with their intervals: a forest plot, one panel per score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda.analysis.figures import COLOURS, FAINT, INK, literal
from remuda.compare.figures.style import (
    COLUMN,
    LINE,
    PAGE,
    SIGNIFICANT,
    Form,
    Interval,
    file_of,
    finite,
    folded,
    inches,
    p_text,
    paper,
    sheet,
    thin_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAME, _LABELS = 2.3, 0.55  # inches: the widest name, the labels under each panel
_COLUMNS = (42, 66)  # points from the axes to the right ends of p and A


@dataclass(frozen=True)
class Difference:
    """The first arm's score minus the second's."""

    score: str
    first: str
    second: str
    difference: Interval
    # After Holm; NaN where there was no test.
    adjusted_p: float = math.nan
    # Vargha and Delaney's A: the probability that a run of the first beats one of the second.
    probability: float = math.nan
    # None where neither direction is better.
    higher_is_better: bool | None = False

    @property
    def is_significant(self) -> bool:
        return self.adjusted_p < SIGNIFICANT


def intervals(rows: Sequence[Difference], form: Form = "png") -> bytes:
    """Per score and pair the difference and its interval, filled where p < 0.05, with p and A."""
    with paper():
        return file_of(intervals_figure(rows), form)


def intervals_figure(rows: Sequence[Difference]) -> Figure:
    """As `intervals`, before it is a file; inside `paper()`."""
    scores = {
        score: [row for row in rows if row.score == score]
        for score in dict.fromkeys(row.score for row in rows)
    }
    names = {row: _name(row, _NAME) for row in rows}
    label = max(map(inches, names.values()))
    width = COLUMN if label <= 1.1 else PAGE
    line = LINE * (1.3 + max(name.count("\n") for name in names.values()))
    heights = [line * len(group) for group in scores.values()]
    figure = sheet(width, sum(heights) + _LABELS * len(scores) + 0.2)
    grid = figure.subplots(
        len(scores), 1, squeeze=False, gridspec_kw={"height_ratios": heights}
    ).flat
    for place, (axes, group) in enumerate(zip(grid, scores.values(), strict=True)):
        _panel(axes, group, [names[row] for row in group])
        if place == 0:
            _beside(axes, None, ("p (Holm)", "A"), color=FAINT)
    return figure


def _beside(axes: Axes, row: int | None, texts: tuple[str, str], **look: Any) -> None:
    """The columns at the right of a row, or on top; as far from the axes however wide these are."""
    for points, text in zip(_COLUMNS, texts, strict=True):
        axes.annotate(
            *(text, (1, 1 if row is None else row)),
            xycoords="axes fraction" if row is None else axes.get_yaxis_transform(),
            xytext=(points, 3 if row is None else 0),
            textcoords="offset points",
            ha="right",
            va="bottom" if row is None else "center_baseline",
            annotation_clip=False,
            **look,
        )


def _name(row: Difference, width: float) -> str:
    """The pair on one line, or on two and more."""
    whole = f"{row.first} − {row.second}"
    if inches(whole) <= width:
        return whole
    return f"{folded(row.first, width)}\n{folded(f'− {row.second}', width)}"


def _panel(axes: Axes, rows: Sequence[Difference], names: Sequence[str]) -> None:
    thin_axes(axes, "x")
    axes.axvline(0, color=INK, linewidth=0.8, zorder=2)
    for place, row in enumerate(rows):
        _row(axes, place, row)
        weight = "bold" if row.is_significant else "normal"
        _beside(axes, place, _figures(row), fontweight=weight)
    axes.set_yticks(range(len(rows)), [literal(name) for name in names])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    ends = [(row.difference.value, row.difference.low, row.difference.high) for row in rows]
    far = max(map(abs, finite(*ends)), default=0.0) or 1.0
    low, high = min(0.0, *finite(*ends), -0.12 * far), max(0.0, *finite(*ends), 0.12 * far)
    axes.set_xlim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(_label(rows[0]), linespacing=1.1)


def _figures(row: Difference) -> tuple[str, str]:
    chance = f"{row.probability:.2f}" if math.isfinite(row.probability) else "–"
    return p_text(row.adjusted_p), chance


def _label(row: Difference) -> str:
    what = f"difference in {row.score}"
    if row.higher_is_better is None:
        return literal(what)
    side = "above" if row.higher_is_better else "below"
    return literal(f"{what}\n({side} 0: the first is better)")


def _row(axes: Axes, place: int, row: Difference) -> None:
    shade = COLOURS[0] if row.is_significant else FAINT
    found = row.difference
    if math.isfinite(found.low) and math.isfinite(found.high):
        axes.plot(
            [found.low, found.high],
            [place, place],
            color=shade,
            linewidth=1.3,
            solid_capstyle="butt",
            zorder=3,
            gid="interval",
        )
    if math.isfinite(found.value):
        axes.plot(
            [found.value],
            [place],
            marker="o",
            markersize=4.5,
            color=shade,
            markerfacecolor=shade if row.is_significant else "white",
            markeredgewidth=1.0,
            zorder=4,
            gid="difference",
        )
