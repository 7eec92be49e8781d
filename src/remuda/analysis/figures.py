"""Figures as PNG: battles of GANs, class histograms, overlays of samples, learning curves.

Plain values in, bytes out. matplotlib is loaded by the first figure, without pyplot, so it needs no
window system and leaves no state behind.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.extras import require
from remuda.errors import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]

INK, FAINT, GRID = "#1f2933", "#6b7785", "#e3e7ec"
REAL = "#9aa5b1"  # data, in every figure
# Told apart with most kinds of colour blindness (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


@dataclass(frozen=True)
class Curve:
    """A run's discriminator costs: rows are members, columns are rounds."""

    name: str
    rounds: Array
    train: Array
    validation: Array


def battle(
    shares: Array,
    allowed: Array,
    judges: Sequence[str],
    names: Sequence[str],
    legend: Sequence[str] = (),
) -> bytes:
    """The battle matrix: discriminators down, generators across; who may not judge is hatched.

    `judges` and `names` are what both are called, RUN:NUMBER; a gap separates the runs.
    """
    height, width = (max(3.6, 0.62 * count + 1.2) for count in shares.shape)
    figure = new_figure(width + 2.0, height + 0.9)
    axes = figure.add_subplot()
    picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for judge, maker in np.ndindex(shares.shape):
        _entry(axes, judge, maker, float(shares[judge, maker]), bool(allowed[judge, maker]))
    for line, members in ((axes.axhline, judges), (axes.axvline, names)):
        for edge in _borders(members):
            line(edge - 0.5, color="white", linewidth=4, zorder=4)
    columns, rows = map(literal, names), map(literal, judges)
    axes.set_xticks(range(len(names)), columns, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(judges)), rows)
    axes.set_xlabel("generator")
    axes.set_ylabel("discriminator")
    axes.set_title("share of samples called real", loc="left")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(picture, ax=axes, fraction=0.046, pad=0.03)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    notes = "   ".join((*legend, "hatched: may not judge"))
    figure.supxlabel(literal(notes), x=0.99, ha="right", fontsize=7.5, color=FAINT)
    return png(figure)


def _borders(members: Sequence[str]) -> list[int]:
    """Where the members of another run begin."""
    runs = [name.rpartition(":")[0] for name in members]
    return [place for place in range(1, len(runs)) if runs[place] != runs[place - 1]]


def _entry(axes: Axes, judge: int, maker: int, value: float, allowed: bool) -> None:
    """One figure of the battle matrix."""
    from matplotlib.patches import Rectangle

    axes.text(
        *(maker, judge, f"{value:.2f}"),
        ha="center",
        va="center",
        fontsize=8,
        color=FAINT if not allowed else ("white" if value > 0.55 else INK),
        zorder=3,
    )
    if not allowed:
        axes.add_patch(
            Rectangle(
                (maker - 0.5, judge - 0.5),
                *(1, 1),
                facecolor="#f4f5f7",
                edgecolor="#d3d9e0",
                hatch="////",
                linewidth=0,
                zorder=2,
            )
        )


def class_bars(
    classes: Sequence[str], real: Sequence[float], made: Sequence[float], title: str
) -> bytes:
    """How often each class appears, in the data and in samples."""
    figure = new_figure(min(16.0, max(6.4, 0.62 * len(classes) + 1)), 3.6)
    axes = figure.add_subplot()
    places = np.arange(len(classes))
    for shift, shares, colour, name in (
        (-0.2, real, REAL, "data"),
        (0.2, made, COLOURS[0], "samples"),
    ):
        axes.bar(places + shift, shares, 0.38, color=colour, label=name)
    axes.set_xticks(places, list(classes))
    axes.set_xlabel("class, as the classifier sees it")
    axes.set_ylabel("share")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title(literal(title), loc="left")
    plain_axes(axes)
    axes.grid(axis="x", visible=False)
    axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 0.99))
    return png(figure)


def overlay(data: Array, made: Mapping[str, Array], title: str) -> bytes:
    """Embedded data, and the samples of one run or several over it, in one plane."""
    figure = new_figure(7.2, 6.6)
    axes = figure.add_subplot()
    axes.scatter(
        data[:, 0],
        data[:, 1],
        s=13,
        color=REAL,
        linewidths=0,
        alpha=0.75,
        label=f"data ({len(data)})",
    )
    for place, (name, points) in enumerate(made.items()):
        axes.scatter(
            points[:, 0],
            points[:, 1],
            s=15,
            color=COLOURS[place % len(COLOURS)],
            marker=("o", "^", "s", "D", "v")[place % 5],
            linewidths=0,
            alpha=0.7,
            label=literal(f"{name} ({len(points)})"),
        )
    axes.set_title(literal(title), loc="left")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(GRID)
    legend = axes.legend(
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.01),
        ncols=min(3, len(made) + 1),
        markerscale=1.8,
    )
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    return png(figure)


@dataclass(frozen=True)
class Panel:
    """One scatter of points; `note` is what a reader should take from it."""

    name: str
    points: Array
    note: str = ""


def scatters(panels: Sequence[Panel], modes: Array | None, reach: float) -> bytes:
    """Points of the plane side by side under one scale, the known modes as rings of `reach`."""
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(3.5 * columns, 4.1 * rows)
    from matplotlib.patches import Circle

    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    seen = panels[0].points if modes is None else np.concatenate((panels[0].points, modes))
    low, high = seen.min(0), seen.max(0)
    margin = 0.12 * (high - low).max()
    for place, axes in enumerate(grid.flat):
        if place >= len(panels):
            axes.set_visible(False)
            continue
        panel = panels[place]
        for centre in () if modes is None else modes:
            axes.add_patch(
                Circle(tuple(centre), reach, facecolor="none", edgecolor="#c3cad3", linewidth=0.8)
            )
        colour = FAINT if place == 0 else COLOURS[(place - 1) % len(COLOURS)]
        axes.scatter(
            panel.points[:, 0], panel.points[:, 1], s=5, color=colour, linewidths=0, alpha=0.55
        )
        axes.set_title(literal(panel.name), loc="left")
        axes.set_xlabel(panel.note or " ", loc="left", fontsize=8, color=FAINT)
        axes.set_xlim(low[0] - margin, high[0] + margin)
        axes.set_ylim(low[1] - margin, high[1] + margin)
        axes.set_aspect("equal")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color(GRID)
    return png(figure)


def learning_curves(curves: Sequence[Curve]) -> bytes:
    """Discriminator costs on training and validation data, a panel per run, and their spreads."""
    count = len(curves)
    figure = new_figure(min(18.0, 3.6 * (count + 1)), 3.7)
    axes = figure.subplots(1, count + 1, squeeze=False)[0]
    costs = np.concatenate([np.ravel((one.train, one.validation)) for one in curves])
    finite = costs[np.isfinite(costs)]
    # Under one scale, which no single wild round decides.
    low, high = np.quantile(finite, [0.005, 0.995]) if len(finite) else (0.0, 1.0)
    for panel, one in zip(axes, curves, strict=False):
        for values, colour, label in (
            (one.train, COLOURS[0], "training"),
            (one.validation, COLOURS[1], "validation"),
        ):
            if len(values) > 1:
                panel.plot(one.rounds, values.T, color=colour, linewidth=0.7, alpha=0.28)
            panel.plot(one.rounds, values.mean(0), color=colour, linewidth=1.8, label=label)
        members = f"{len(one.train)} member{'s' if len(one.train) > 1 else ''}"
        panel.set_title(literal(f"{one.name}, {members}"), loc="left")
        panel.set_ylim(low - 0.06 * (high - low + 1e-9), high + 0.06 * (high - low + 1e-9))
        panel.set_xlabel("round")
        plain_axes(panel)
    axes[0].set_ylabel("discriminator cost")
    axes[0].legend(frameon=False)
    last = axes[-1]
    for place, one in enumerate(curves):
        gaps = np.abs(one.train - one.validation)
        colour = COLOURS[(place + 2) % len(COLOURS)]
        label = literal(f"{one.name}: {gaps.mean():.4f}")
        last.plot(one.rounds, gaps.mean(0), color=colour, linewidth=1.6, label=label)
    last.set_title("spread |training − validation|", loc="left")
    last.set_xlabel("round")
    last.set_ylim(bottom=0)
    plain_axes(last)
    last.legend(frameon=False, fontsize=8)
    return png(figure)


def new_figure(width: float, height: float, dpi: int = 130) -> Figure:
    """An empty figure of so many inches that lays itself out; without a window system."""
    require("matplotlib", "figures")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: Axes) -> None:
    """A faint grid behind the data, and no frame."""
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)


def literal(text: str) -> str:
    """Text of others in which matplotlib sees no formula, and nothing that has no shape."""
    return "\n".join(map(visible, text.split("\n"))).replace("$", r"\$")


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    # Without the version in it, equal figures are equal files.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
