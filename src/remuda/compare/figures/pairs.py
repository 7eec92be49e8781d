"""Who beats whom: the matrix of one score's pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from remuda.analysis.figures import COLOURS, FAINT, GRID, INK, literal
from remuda.compare.figures.style import (
    COLUMN,
    LINE,
    PAGE,
    SIGNIFICANT,
    SMALL,
    TEXT,
    Array,
    Form,
    file_of,
    folded,
    inches,
    names_below,
    p_text,
    paper,
    sheet,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAME = 1.5  # inches, before it is folded
_LEAST, _MOST = 0.42, 0.62  # inches of a cell


def matrix(
    names: Sequence[str],
    probability: Array,
    adjusted_p: Array | None = None,
    score: str = "",
    form: Form = "png",
) -> bytes:
    """The probability that the row's arm beats the column's, by colour and figure, with its p.

    `probability` is Vargha and Delaney's A, `adjusted_p` the p-values after Holm, both by row and
    column of `names`; NaN where there is none. Diagonals are not looked at.
    """
    with paper():
        return file_of(matrix_figure(names, probability, adjusted_p, score), form)


def matrix_figure(
    names: Sequence[str], probability: Array, adjusted_p: Array | None, score: str
) -> Figure:
    """As `matrix`, before it is a file; inside `paper()`."""
    from matplotlib.colors import LinearSegmentedColormap

    count = len(names)
    # Where names do not fit over the columns, numbers stand for them.
    above = names_below(names, _MOST)
    beside = list(names) if above else [f"{name}  {n + 1}" for n, name in enumerate(names)]
    rows = [folded(name, _NAME) or name for name in beside]
    label = max(map(inches, rows)) + 0.25
    width = COLUMN if (COLUMN - label) / count >= _LEAST else PAGE
    cell = min(_MOST, (width - label) / count)
    title = "probability that the row beats the column" + (f", {score}" if score else "")
    if adjusted_p is not None:
        title += " (bold: p < 0.05)"
    heading = folded(title, width - 0.1, TEXT) or title
    lines = 2 + heading.count("\n") + max((name.count("\n") for name in above or ()), default=0)
    figure = sheet(width, count * cell + lines * LINE + 0.2)
    axes = figure.add_subplot()
    shades = LinearSegmentedColormap.from_list("", [COLOURS[1], "#ffffff", COLOURS[0]])
    shown = np.where(np.eye(count, dtype=bool), np.nan, np.asarray(probability, float))
    axes.imshow(np.ma.masked_invalid(shown), cmap=shades, vmin=0, vmax=1)
    for row, column in np.ndindex(shown.shape):
        if row != column:
            p = math.nan if adjusted_p is None else float(adjusted_p[row, column])
            _cell(axes, row, column, float(shown[row, column]), p)
    axes.set_xticks(range(count), above or [str(n + 1) for n in range(count)])
    axes.set_yticks(range(count), [literal(name) for name in rows])
    axes.tick_params(length=0, labeltop=True, labelbottom=False, labelcolor=INK)
    for edge in np.arange(count + 1) - 0.5:
        axes.axhline(edge, color=GRID, linewidth=0.6)
        axes.axvline(edge, color=GRID, linewidth=0.6)
    axes.spines[:].set_visible(False)
    figure.suptitle(literal(heading), fontsize=TEXT)
    return figure


def _cell(axes: Axes, row: int, column: int, chance: float, p: float) -> None:
    """One probability, bold where p < 0.05, and p under it."""
    if not math.isfinite(chance):
        axes.text(column, row, "–", ha="center", va="center", color=FAINT)
        return
    shade = "white" if abs(chance - 0.5) > 0.42 else INK
    tested = math.isfinite(p)
    axes.text(
        *(column, row - (0.12 if tested else 0), f"{chance:.2f}"),
        ha="center",
        va="center",
        color=shade,
        fontweight="bold" if p < SIGNIFICANT else "normal",
    )
    if tested:
        text = p_text(p)
        axes.text(
            *(column, row + 0.2, f"p{text}" if text[0] == "<" else f"p={text}"),
            ha="center",
            va="center",
            fontsize=SMALL,
            color=shade,
        )
