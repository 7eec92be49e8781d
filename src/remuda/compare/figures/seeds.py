"""Every run as a dot: one panel per score, one column per arm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from remuda.analysis.figures import FAINT, INK
from remuda.compare.figures.style import (
    COLUMN,
    LINE,
    PAGE,
    SMALL,
    TEXT,
    Array,
    Form,
    Interval,
    Scale,
    add_legend,
    colour,
    file_of,
    finite,
    marker,
    names_below,
    paper,
    sheet,
    stars,
    thin_axes,
    with_direction,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: the labels of a panel, the least width of an arm, the height of a panel and of each row of
# brackets or crosses above its dots.
_LABELS, _SLOT, _HEIGHT, _LANE = 0.62, 0.27, 1.5, 0.15
_MOST_JOINED = 4  # arms; between more, lines are a tangle


@dataclass(frozen=True)
class Bracket:
    """Two arms that differ, and the adjusted p-value that says so."""

    first: str
    second: str
    adjusted_p: float


@dataclass(frozen=True)
class DotPanel:
    """One score of all runs."""

    label: str
    # By arm, a value per seed; not finite where a run collapsed.
    values: Mapping[str, Array]
    # None where neither direction is better.
    higher_is_better: bool | None = False
    # By arm, the mean and its interval.
    means: Mapping[str, Interval] = field(default_factory=dict)
    brackets: Sequence[Bracket] = ()
    # Whether the same place is the same seed in every arm: lines join them, up to four arms.
    paired: bool = False


def dots(panels: Sequence[DotPanel], form: Form = "png") -> bytes:
    """Every seed a dot, with medians, quartiles, means where given, and stars between pairs."""
    with paper():
        return file_of(dots_figure(panels), form)


def dots_figure(panels: Sequence[DotPanel]) -> Figure:
    """As `dots`, before it is a file; inside `paper()`."""
    arms = list(dict.fromkeys(name for panel in panels for name in panel.values))
    need = _LABELS + _SLOT * len(arms)
    width = COLUMN if need * len(panels) <= COLUMN else PAGE
    columns = min(4, len(panels), max(1, int(width / need)))
    rows = math.ceil(len(panels) / columns)
    columns = math.ceil(len(panels) / rows)
    slot = (width / columns - _LABELS) / len(arms)
    names = names_below(arms, slot)
    lines = 0 if names is None else 1 + max(name.count("\n") for name in names)
    lanes = [max((lane + 1 for lane, _ in _lanes(one.brackets, arms)), default=0) for one in panels]
    heights = [
        _HEIGHT + _LANE * max(lanes[row * columns : (row + 1) * columns]) for row in range(rows)
    ]
    figure = sheet(width, sum(heights) + rows * (0.25 + lines * LINE))
    grid = figure.subplots(
        rows, columns, squeeze=False, gridspec_kw={"height_ratios": heights}
    ).flat
    for place, axes in enumerate(grid):
        if place < len(panels):
            _panel(axes, panels[place], arms, slot, heights[place // columns])
            axes.set_xticks(range(len(arms)), names or [""] * len(arms))
        else:
            axes.set_visible(False)
    handles, labels = _key(panels)
    add_legend(figure, handles, labels, "outside lower center" if names else "outside upper center")
    if names is None:
        add_legend(figure, [_mark(place) for place in range(len(arms))], arms)
    return figure


def _panel(
    axes: Axes, panel: DotPanel, arms: Sequence[str], slot: float, inches_high: float
) -> None:
    """One score; all heights are shares of the axes, which are about so many inches high."""
    ends = [end for one in panel.means.values() for end in (one.value, one.low, one.high)]
    scale = Scale.of(finite(*panel.values.values(), ends))
    lost = any(not np.isfinite(values).all() for values in panel.values.values())
    up = panel.higher_is_better is not True  # the worse side is above
    lanes = _lanes(panel.brackets, arms)
    step = _LANE / inches_high
    height = max((lane + 1 for lane, _ in lanes), default=0) * step
    strip = 1.4 * step if lost else 0.0
    scale.apply(axes, 0.0 if up else strip, height + (strip if up else 0.0))
    high = 72 * inches_high * (1 - height - strip)
    axes.set_xlim(-0.6, len(arms) - 0.4)
    thin_axes(axes, "y")
    axes.set_ylabel(with_direction(panel.label, panel.higher_is_better, inches_high))
    where: dict[str, tuple[Array, Array]] = {}
    for name, values in panel.values.items():
        points = scale.places(np.asarray(values, float)) * high
        size = 3.4 if len(values) <= 20 else 2.6
        offsets = swarm(points, size, 0.3 * slot * 72) / (slot * 72)
        where[name] = arms.index(name) + offsets, np.asarray(values, float)
        _arm(axes, arms.index(name), where[name], size, panel.means.get(name))
        _lost(axes, arms.index(name), values, 1 - height - strip / 2 if up else strip / 2, step)
    if panel.paired and len(where) <= _MOST_JOINED:
        _join(axes, [where[name] for name in arms if name in where])
    for lane, bracket in lanes:
        _bracket(axes, bracket, arms, 1 - height + (lane + 0.35) * step, step)


def swarm(points: Array, size: float, most: float) -> Array:
    """Sideways offsets that keep dots of this size apart, as near to the middle as they can be.

    Where the room of `most` on each side is too small for that, all move closer. Not finite points
    stay in the middle.
    """
    offsets = np.zeros(len(points))
    order = [place for place in np.argsort(points, kind="stable") if np.isfinite(points[place])]
    for number, place in enumerate(order):
        near = [one for one in order[:number] if points[place] - points[one] < size]
        step = 0
        # 0, 1, -1, 2, -2, ... half dots from the middle
        while any(
            math.hypot(points[place] - points[one], offsets[place] - offsets[one]) < size
            for one in near
        ):
            step = 1 - step if step <= 0 else -step
            offsets[place] = step * size / 2
    # Dots that touch nobody else's move together, so that two at one height flank the middle.
    heights = points[order]
    for group in np.split(np.array(order, int), np.nonzero(np.diff(heights) >= size)[0] + 1):
        if len(group):
            offsets[group] -= (offsets[group].min() + offsets[group].max()) / 2
    widest = np.abs(offsets).max(initial=0.0)
    return offsets * (most / widest) if widest > most else offsets


def _arm(
    axes: Axes, place: int, dots: tuple[Array, Array], size: float, mean: Interval | None
) -> None:
    """One arm's dots, the box of its quartiles, its median and its mean."""
    kept = np.isfinite(dots[1])
    if kept.any():
        low, middle, high = np.quantile(dots[1][kept], [0.25, 0.5, 0.75])
        axes.bar(
            *(place, high - low),
            *(0.64, low),
            color=colour(place),
            alpha=0.18,
            linewidth=0,
            zorder=1.5,
        )
        axes.plot(
            [place - 0.32, place + 0.32],
            [middle, middle],
            color=INK,
            linewidth=1.5,
            solid_capstyle="butt",
            zorder=4,
            gid="median",
        )
    axes.scatter(
        dots[0][kept],
        dots[1][kept],
        s=size**2,
        color=colour(place),
        marker=marker(place),
        linewidths=0,
        alpha=0.85,
        zorder=3,
        gid="seeds",
    )
    if mean is not None and math.isfinite(mean.value):
        x = place + 0.43
        axes.plot([x, x], [mean.low, mean.high], color=INK, linewidth=0.9, zorder=4, gid="interval")
        axes.plot(
            [x],
            [mean.value],
            marker="D",
            markersize=3,
            color=INK,
            markerfacecolor="white",
            markeredgewidth=0.8,
            zorder=5,
            gid="mean",
        )


def _lost(axes: Axes, place: int, values: Array, height: float, step: float) -> None:
    """Seeds that are not finite: crosses at the worse edge, and how many they are."""
    count = int((~np.isfinite(values)).sum())
    if not count:
        return
    beside = axes.get_xaxis_transform()
    spread = min(0.3, 0.06 * (count - 1))
    axes.scatter(
        np.linspace(place - spread, place + spread, count),
        np.full(count, height + 0.2 * step),
        s=9,
        marker="x",
        color=colour(place),
        linewidths=0.8,
        transform=beside,
        zorder=3,
        gid="lost",
    )
    axes.text(
        *(place, height - 0.1 * step, f"{count}/{len(values)}"),
        transform=beside,
        ha="center",
        va="top",
        fontsize=SMALL,
        color=FAINT,
    )


def _join(axes: Axes, arms: Sequence[tuple[Array, Array]]) -> None:
    """Thin lines between the values of the same seed."""
    most = min(len(values) for _, values in arms)
    for seed in range(most):
        axes.plot(
            [across[seed] for across, _ in arms],
            [values[seed] for _, values in arms],
            color=FAINT,
            linewidth=0.4,
            alpha=0.55,
            zorder=2,
            gid="pair",
        )


def _lanes(brackets: Sequence[Bracket], arms: Sequence[str]) -> list[tuple[int, Bracket]]:
    """The brackets that have stars, short ones first, each with the lowest row that is free."""
    spans: list[tuple[int, int, Bracket]] = []
    for one in brackets:
        if stars(one.adjusted_p):
            left, right = sorted((arms.index(one.first), arms.index(one.second)))
            spans.append((left, right, one))
    placed: list[tuple[int, int, int, Bracket]] = []
    for left, right, one in sorted(spans, key=lambda span: (span[1] - span[0], span[0])):
        taken = {lane for lane, start, end, _ in placed if start < right and left < end}
        lane = min(set(range(len(spans))) - taken)
        placed.append((lane, left, right, one))
    return [(lane, one) for lane, _, _, one in placed]


def _bracket(axes: Axes, bracket: Bracket, arms: Sequence[str], height: float, step: float) -> None:
    left, right = sorted((arms.index(bracket.first), arms.index(bracket.second)))
    beside = axes.get_xaxis_transform()
    axes.plot(
        [left + 0.06, left + 0.06, right - 0.06, right - 0.06],
        [height - 0.2 * step, height, height, height - 0.2 * step],
        color=INK,
        linewidth=0.7,
        transform=beside,
        gid="bracket",
    )
    axes.text(
        *((left + right) / 2, height + 0.06 * step, stars(bracket.adjusted_p)),
        transform=beside,
        ha="center",
        va="baseline",
        fontsize=TEXT,
    )


def _mark(place: int) -> Artist:
    from matplotlib.lines import Line2D

    return Line2D(
        *([], []),
        linestyle="none",
        marker=marker(place),
        color=colour(place),
        markersize=4.5,
        markeredgewidth=0,
    )


def _key(panels: Sequence[DotPanel]) -> tuple[list[Artist], list[str]]:
    """What the marks mean that are in use."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Line2D([], [], color=INK, linewidth=1.5),
        Patch(facecolor=FAINT, alpha=0.3, linewidth=0),
    ]
    labels = ["median", "quartiles"]
    if any(panel.means for panel in panels):
        handles.append(
            Line2D([], [], color=INK, linewidth=0.9, marker="D", markersize=3, mfc="white", mew=0.8)
        )
        labels.append("mean with interval")
    if any(not np.isfinite(one).all() for panel in panels for one in panel.values.values()):
        handles.append(Line2D([], [], linestyle="none", marker="x", color=FAINT, markersize=3.5))
        labels.append("seeds without a value")
    return handles, labels
