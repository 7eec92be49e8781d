"""What all figures of a comparison share: sizes, marks, text that fits, axes, and the files."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from remuda.analysis.extras import require
from remuda.analysis.figures import COLOURS, FAINT, INK, literal, new_figure, plain_axes, png
from remuda.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]
Form = Literal["png", "pdf", "svg"]
FORMS: tuple[Form, ...] = get_args(Form)

COLUMN, PAGE = 3.4, 7.0  # inches: the width of a column and of a page
TEXT, SMALL = 7.0, 6.0  # points
LINE = 0.145  # inches from line to line of text
ARM_COLOURS = (*COLOURS, FAINT)
MARKERS = ("o", "s", "^", "D", "v", "P", "<", ">")
DASHES = ("-", (0, (5, 1.5)), (0, (5, 1.2, 1, 1.2)), (0, (1.2, 1.2)))
SIGNIFICANT = 0.05

# What would change the look from one machine to the next; the font comes with matplotlib. Fonts of
# type 42, since many publishers refuse type 3; without a salt, names inside an SVG file are random.
_SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "axes.titlesize": TEXT + 1,
    "axes.labelsize": TEXT,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "legend.fontsize": TEXT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.usetex": False,
    "axes.unicode_minus": True,
    "savefig.bbox": None,
    "savefig.dpi": "figure",
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "remuda",
}
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Creator": None, "Date": None},
}


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its interval, which are NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan


@contextmanager
def paper() -> Iterator[None]:
    """Inside, figures are built and drawn with the settings for print, whatever the user's are."""
    require("matplotlib", "figures")
    from matplotlib import rc_context

    with rc_context(_SETTINGS):
        yield


def sheet(width: float, height: float) -> Figure:
    """An empty figure, fine enough for print as PNG."""
    return new_figure(width, height, dpi=300)


def file_of(figure: Figure, form: Form) -> bytes:
    """The figure as a file, without dates and versions."""
    if form not in FORMS:
        raise ConfigError(f"figure as {form!r}: unknown kind of file; allowed: {', '.join(FORMS)}")
    if form == "png":
        return png(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, metadata=_METADATA[form])
    return buffer.getvalue()


# ---------------------------------------------------------------------------- text


def stars(p: float) -> str:
    """How significant: *** below 0.001, ** below 0.01, * below 0.05."""
    return "*" * sum(p < level for level in (0.001, 0.01, SIGNIFICANT))


def p_text(p: float) -> str:
    """A p-value with two figures, never as 0; a dash where there is none."""
    if not math.isfinite(p):
        return "–"
    if p < 0.001:
        return "<0.001"
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def inches(text: str, size: float = TEXT) -> float:
    """How wide the widest line of a text is."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=size)
    widths = (
        text_to_path.get_text_width_height_descent(line, font, ismath=False)[0]
        for line in text.split("\n")
    )
    return max(widths) / 72


def folded(text: str, width: float, size: float = TEXT, hard: bool = True) -> str | None:
    """The text in lines no wider than so many inches, broken after spaces and signs.

    Words that are too long are cut if `hard`, and otherwise the answer is None.
    """
    lines = [""]
    for word in re.findall(r"[^\s_/+,:=.-]*[\s_/+,:=.-]*", text):
        if lines[-1] and inches((lines[-1] + word).rstrip(), size) > width:
            lines.append("")
        if inches(word.rstrip(), size) <= width:
            lines[-1] += word
            continue
        if not hard:
            return None
        for letter in word:
            if lines[-1] and inches(lines[-1] + letter, size) > width:
                lines.append("")
            lines[-1] += letter
    return "\n".join(line.rstrip() for line in lines)


def names_below(names: Sequence[str], width: float) -> list[str] | None:
    """Names that fit beside each other in slots of so many inches, or None."""
    fitted = [folded(name, 0.92 * width, hard=False) for name in names]
    if any(name is None or name.count("\n") > 2 for name in fitted):
        return None
    return [literal(name or "") for name in fitted]


def with_direction(label: str, higher_is_better: bool | None, width: float) -> str:
    """The label of a score and which way is better, in lines of so many inches."""
    if higher_is_better is None:
        return literal(folded(label, width) or "")
    direction = f"({'higher' if higher_is_better else 'lower'} is better)"
    if inches(f"{label} {direction}") <= width:
        return literal(f"{label} {direction}")
    return literal(f"{folded(label, width)}\n{direction}")


# ---------------------------------------------------------------------------- axes


def colour(place: int) -> str:
    return ARM_COLOURS[place % len(ARM_COLOURS)]


def marker(place: int) -> str:
    return MARKERS[place % len(MARKERS)]


def finite(*values: Array | Sequence[float]) -> Array:
    """All finite values, flat."""
    flat = np.concatenate([np.ravel(np.asarray(one, float)) for one in values] or [np.zeros(0)])
    kept: Array = flat[np.isfinite(flat)]
    return kept


def wants_log(values: Array) -> bool:
    """Whether finite values are positive and spread over more than one and a half decades."""
    return bool(len(values) and values.min() > 0 and values.max() / values.min() > 30)


@dataclass(frozen=True)
class Scale:
    """An axis for scores: the limits of the data, as logarithms if `log`."""

    log: bool
    low: float
    high: float
    known: bool = True  # there are values

    @classmethod
    def of(cls, values: Array, padding: float = 0.06) -> Scale:
        log = wants_log(values)
        if not len(values):
            return cls(False, 0.0, 1.0, known=False)
        shown = np.log10(values) if log else values
        low, high = float(shown.min()), float(shown.max())
        spread = high - low
        # Values that differ by rounding only are one value.
        if spread <= 1e-9 * max(abs(low), abs(high)):
            spread = abs(high) or 1.0
        return cls(log, low - padding * spread, high + padding * spread)

    def places(self, values: Array) -> Array:
        """Where values are between the limits, from 0 to 1."""
        shown = np.log10(values) if self.log else np.asarray(values, float)
        result: Array = (shown - self.low) / (self.high - self.low)
        return result

    def apply(self, axes: Axes, below: float = 0.0, above: float = 0.0) -> None:
        """Put it on the y axis, with these shares of the height left free below and above."""
        unit = (self.high - self.low) / (1 - below - above)
        low, high = self.low - below * unit, self.high + above * unit
        if self.log:
            axes.set_yscale("log")
            low, high = 10**low, 10**high
        axes.set_ylim(low, high)
        axes.set_yticks(self.ticks())
        axes.minorticks_off()
        if self.log:
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")

    def ticks(self) -> list[float]:
        """Round numbers between the limits, none in what is left free; 1, 2, 5, 10 if `log`."""
        from matplotlib.ticker import LogLocator, MaxNLocator

        if not self.known:
            return []
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        subs = (1.0, 2.0, 5.0) if self.high - self.low < 3 else (1.0,)
        locator = (
            LogLocator(subs=subs, numticks=8)
            if self.log
            else MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
        )
        return [float(one) for one in locator.tick_values(low, high) if low <= one <= high]


def thin_axes(axes: Axes, grid: Literal["x", "y"]) -> None:
    """Plain axes with the lines of one direction only."""
    plain_axes(axes)
    axes.grid(linewidth=0.5)
    axes.grid(axis="x" if grid == "y" else "y", visible=False)


def add_legend(
    figure: Figure,
    handles: Sequence[Artist],
    labels: Sequence[str],
    place: Literal["outside lower center", "outside upper center"] = "outside lower center",
) -> None:
    """A key outside the axes; the figure grows by its height."""
    width, height = figure.get_size_inches()
    columns = max(1, int((width - 0.1) / (max(map(inches, labels)) + 0.42)))
    rows = math.ceil(len(labels) / columns)
    figure.set_size_inches(width, height + rows * LINE + 0.08)
    figure.legend(
        list(handles),
        # matplotlib leaves out labels that begin with an underscore.
        [literal(f" {label}" if label.startswith("_") else label) for label in labels],
        loc=place,
        ncols=math.ceil(len(labels) / rows),
        frameon=False,
        borderpad=0.1,
        labelspacing=0.35,
        handlelength=2.2,
        handletextpad=0.5,
        columnspacing=1.2,
    )
