"""Scores over cost: what each arm reaches for how many images, or seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.analysis.figures import FAINT, INK, literal
from remuda.compare.figures.style import (
    COLUMN,
    DASHES,
    PAGE,
    Array,
    Form,
    Scale,
    add_legend,
    colour,
    file_of,
    finite,
    marker,
    paper,
    sheet,
    thin_axes,
    with_direction,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 2.3
_MARKS = 6  # on each median


@dataclass(frozen=True)
class ArmCurve:
    """One arm's score over what it cost so far."""

    name: str
    # Where the median and quartiles are known, ascending, and their values there.
    cost: Array
    median: Array
    q1: Array
    q3: Array
    # Of each run: its costs and its scores there.
    seeds: Sequence[tuple[Array, Array]] = ()


def curves(
    arms: Sequence[ArmCurve],
    xlabel: str,
    ylabel: str,
    target: float | None = None,
    higher_is_better: bool = False,
    form: Form = "png",
) -> bytes:
    """Score over cost: a line per seed, medians, quartiles, and who reaches the target when."""
    with paper():
        return file_of(curves_figure([(xlabel, arms)], ylabel, target, higher_is_better), form)


def cost_panels(
    over_images: Sequence[ArmCurve],
    over_seconds: Sequence[ArmCurve],
    ylabel: str,
    target: float | None = None,
    higher_is_better: bool = False,
    xlabels: tuple[str, str] = ("training images", "CPU seconds"),
    form: Form = "png",
) -> bytes:
    """The same score over images and over time, so that a slow method is seen to be slow."""
    panels = list(zip(xlabels, (over_images, over_seconds), strict=True))
    with paper():
        return file_of(curves_figure(panels, ylabel, target, higher_is_better), form)


def curves_figure(
    panels: Sequence[tuple[str, Sequence[ArmCurve]]],
    ylabel: str,
    target: float | None,
    higher_is_better: bool,
) -> Figure:
    """As `curves`, for one panel or more under one scale; inside `paper()`."""
    names = list(dict.fromkeys(arm.name for _, arms in panels for arm in arms))
    figure = sheet(COLUMN if len(panels) == 1 else PAGE, _HEIGHT)
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    shown = [one for _, arms in panels for arm in arms for one in _scores(arm)]
    scale = Scale.of(finite(*shown, [] if target is None else [target]), padding=0.04)
    reached = False
    for axes, (xlabel, arms) in zip(grid, panels, strict=True):
        scale.apply(axes)
        thin_axes(axes, "y")
        for arm in arms:
            place = names.index(arm.name)
            _arm(axes, arm, place, len(names))
            if target is not None:
                reached |= _reach(axes, arm, place, target, higher_is_better)
        if target is not None:
            axes.axhline(target, **_TARGET, gid="target")
        _costs(axes, arms, xlabel)
    grid[0].set_ylabel(with_direction(ylabel, higher_is_better, _HEIGHT - 0.4))
    handles = [_line(place) for place in range(len(names))]
    _add_key(figure, handles, names, target, reached)
    return figure


_TARGET: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (3, 2)), "zorder": 2.5}


def _scores(arm: ArmCurve) -> list[Array]:
    return [arm.median, arm.q1, arm.q3, *(scores for _, scores in arm.seeds)]


def _style(place: int) -> dict[str, Any]:
    return {
        "color": colour(place),
        "linestyle": DASHES[place % len(DASHES)],
        "linewidth": 1.6,
        "marker": marker(place),
        "markersize": 4,
        "markeredgewidth": 0.5,
        "markeredgecolor": "white",
    }


def _line(place: int) -> Artist:
    from matplotlib.lines import Line2D

    return Line2D([], [], **_style(place))


def _arm(axes: Axes, arm: ArmCurve, place: int, count: int) -> None:
    for costs, scores in arm.seeds:
        axes.plot(costs, scores, color=colour(place), linewidth=0.4, alpha=0.35, gid="seed")
    axes.fill_between(
        arm.cost, arm.q1, arm.q3, color=colour(place), alpha=0.15, linewidth=0, zorder=2
    )
    # Marks of different arms at different places, so that none hides another.
    step = max(1, len(arm.cost) // _MARKS)
    axes.plot(
        arm.cost,
        arm.median,
        **_style(place),
        markevery=(place * step // count, step),
        zorder=3,
        gid="median",
    )


def reaches(arm: ArmCurve, target: float, higher_is_better: bool) -> int | None:
    """The first place where the median is as good as the target."""
    good = arm.median >= target if higher_is_better else arm.median <= target
    return int(np.argmax(good)) if good.any() else None


def _reach(axes: Axes, arm: ArmCurve, place: int, target: float, higher_is_better: bool) -> bool:
    """A ring where the median first reaches the target, and a line down to its cost."""
    first = reaches(arm, target, higher_is_better)
    if first is None:
        return False
    cost, score = float(arm.cost[first]), float(arm.median[first])
    axes.vlines(
        *(cost, axes.get_ylim()[0], score),
        color=colour(place),
        linewidth=0.7,
        linestyle=(0, (1, 1.5)),
        zorder=2.5,
    )
    axes.plot([cost], [score], **_ring(colour(place)), zorder=5, gid="reached")
    return True


def _ring(shade: str) -> dict[str, Any]:
    return {
        "marker": "o",
        "markersize": 7,
        "markerfacecolor": "none",
        "markeredgecolor": shade,
        "markeredgewidth": 1.2,
        "linestyle": "none",
    }


def _costs(axes: Axes, arms: Sequence[ArmCurve], xlabel: str) -> None:
    """The axis of costs, from nothing to the most that any run spent."""
    spent = finite(*(one for arm in arms for one in (arm.cost, *(x for x, _ in arm.seeds))))
    axes.set_xlim(0, 1.02 * spent.max() if len(spent) and spent.max() > 0 else 1)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.set_xlabel(literal(xlabel))


def _short(value: float) -> str:
    """12000 as 12k, 3000000 as 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _add_key(
    figure: Figure,
    handles: Sequence[Artist],
    names: Sequence[str],
    target: float | None,
    reached: bool,
) -> None:
    from matplotlib.lines import Line2D

    if target is not None:
        more, labels = [Line2D([], [], **_TARGET)], [f"target: {target:g}"]
        if reached:
            more.append(Line2D([], [], **_ring(FAINT)))
            labels.append("median reaches it")
        add_legend(figure, more, labels, "outside upper center")
    add_legend(figure, handles, names)
