"""Figures of a comparison: they show what they are given, legibly, and the same twice."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from remuda.compare.figures import (
    FORMS,
    ArmCurve,
    Bracket,
    Difference,
    DotPanel,
    Form,
    Interval,
    cost_panels,
    critical_difference,
    curves,
    dots,
    intervals,
    matrix,
    p_text,
    stars,
)
from remuda.compare.figures.cost import curves_figure, reaches
from remuda.compare.figures.forest import intervals_figure
from remuda.compare.figures.pairs import matrix_figure
from remuda.compare.figures.ranks import ranks_figure
from remuda.compare.figures.seeds import dots_figure, swarm
from remuda.compare.figures.style import Scale, folded, inches, names_below, paper, wants_log
from remuda.errors import ConfigError, RemudaError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

pytestmark = pytest.mark.slow  # matplotlib takes its time

Array = npt.NDArray[np.float64]
NAN = float("nan")
LONG = ["cellular 3x3, mustangs, weights of the m", "independent_cells_that_exchange_nothing_"]


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with paper():
        yield


def scores(seeds: int, *centres: float) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.normal(centre, 8, seeds) for centre in centres]


def panel(names: list[str], seeds: int = 10, **more: Any) -> DotPanel:
    centres = [60 + 12 * place for place in range(len(names))]
    return DotPanel("FID", dict(zip(names, scores(seeds, *centres), strict=True)), **more)


def curve(name: str, end: float, seeds: int = 3, slow: float = 1.0) -> ArmCurve:
    cost = np.linspace(1e5, 2e6, 20)
    middle = end + 200 * np.exp(-cost / 4e5)
    runs = [(slow * cost, middle + shift) for shift in range(seeds)]
    return ArmCurve(name, slow * cost, middle, middle - 3, middle + 3, runs)


def ranked(count: int, names: list[str]) -> tuple[list[str], Array, float, list[list[str]], str]:
    ranks = np.linspace(1.3, count - 0.4, count)
    return names, ranks, 1.1, [names[: count // 2 + 1], names[count // 2 :]], "data sets (N = 9)"


def chances(count: int) -> Array:
    upper = np.triu(np.linspace(0.02, 0.98, count * count).reshape(count, count), 1)
    result: Array = upper + np.tril(1 - upper.T, -1)
    return result


DRAW: dict[str, Callable[[Form], bytes]] = {
    "dots": lambda form: dots([panel(["a", "b"])], form),
    "intervals": lambda form: intervals([Difference("FID", "a", "b", Interval(1, 0, 2))], form),
    "curves": lambda form: curves([curve("a", 40)], "images", "FID", 60, form=form),
    "cost_panels": lambda form: cost_panels([curve("a", 40)], [curve("a", 40)], "FID", form=form),
    "matrix": lambda form: matrix(["a", "b"], chances(2), np.full((2, 2), 0.01), "FID", form),
    "critical_difference": lambda form: critical_difference(
        ["a", "b"], [1.2, 1.8], 0.9, [["a", "b"]], 5, form=form
    ),
}


# ---------------------------------------------------------------------------- looking at figures


def marked(figure: Figure, gid: str) -> list[Any]:
    return [one for axes in figure.axes for one in axes.get_children() if one.get_gid() == gid]


def words(figure: Figure) -> list[Any]:
    """All texts that are seen."""
    from matplotlib.text import Text

    def is_text(artist: Artist) -> bool:
        return isinstance(artist, Text) and artist.get_visible() and bool(artist.get_text().strip())

    figure.draw_without_rendering()
    # An axis keeps the labels of ticks that are outside of it, or switched off altogether.
    hidden = [
        label
        for axes in figure.axes
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim()))
        for tick in axis.get_major_ticks()
        if not (axes.axison and min(limits) <= tick.get_loc() <= max(limits))
        for label in (tick.label1, tick.label2)
    ]
    found = [one for one in figure.findobj(is_text) if one not in hidden]
    return [one for one in found if one.axes is None or one.axes.get_visible()]


def assert_legible(figure: Figure) -> None:
    """Every text is inside the figure, and none is over another."""
    boxes = {(n, one.get_text()): one.get_window_extent() for n, one in enumerate(words(figure))}
    assert len(boxes) > 1
    whole = figure.bbox
    for (_, text), box in boxes.items():
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= whole.x1 and box.y1 <= whole.y1
        assert inside, (text, box, whole)
    for (one, here), (other, there) in combinations(boxes.items(), 2):
        apart = (
            here.x1 <= there.x0 + 1
            or there.x1 <= here.x0 + 1
            or here.y1 <= there.y0 + 1
            or there.y1 <= here.y0 + 1
        )
        assert apart, (one, other)


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DRAW)
def test_every_figure_is_a_file_of_each_form_and_the_same_twice(name: str, form: Form) -> None:
    content = DRAW[name](form)
    if name == "dots" or form == "svg":  # whose names inside are the most likely to differ
        assert content == DRAW[name](form)
    if form == "png":
        with Image.open(io.BytesIO(content)) as image:
            assert image.width in (1020, 2100)  # 3.4 and 7 inches at 300 dpi
            assert len(image.getcolors(1 << 20) or []) > 3
    elif form == "svg":
        root = ElementTree.fromstring(content)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("width") in ("244.8pt", "504pt")
        assert b"date>" not in content
    else:
        assert content.startswith(b"%PDF-")
        assert content.rstrip().endswith(b"%%EOF")
        assert b"CreationDate" not in content
        assert b"/Type3" not in content  # fonts that many publishers refuse


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'gif': unknown kind of file; allowed: png, pdf, svg$"):
        dots([panel(["a", "b"])], cast(Form, "gif"))


def test_without_matplotlib_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RemudaError, match=r"^figures need matplotlib, which is not installed"):
        dots([panel(["a", "b"])])


def test_the_user_s_settings_are_neither_used_nor_changed() -> None:
    from matplotlib import rc_context, rcParams

    wanted = DRAW["dots"]("svg")
    with rc_context({"font.size": 20, "font.family": "monospace", "svg.hashsalt": None}):
        assert DRAW["dots"]("svg") == wanted
        assert rcParams["font.size"] == 20


# ---------------------------------------------------------------------------- text and scales


def test_stars_and_p_values() -> None:
    levels = (0.0009, 0.001, 0.0499, 0.05, NAN)
    assert [stars(p) for p in levels] == ["***", "**", "*", "", ""]
    assert [p_text(p) for p in (*levels, 1.0)] == ["<0.001", "0.001", "0.050", "0.050", "–", "1.00"]


@pytest.mark.parametrize("text", [*LONG, "W" * 40, "a b", "x"])
def test_folded_text_keeps_every_letter_and_is_as_narrow_as_asked(text: str) -> None:
    lines = folded(text, 0.8)
    assert lines is not None
    assert lines.replace("\n", "").replace(" ", "") == text.replace(" ", "")
    assert inches(lines) <= 0.8
    assert folded("W" * 40, 0.8, hard=False) is None


def test_names_stand_below_only_where_they_fit() -> None:
    assert names_below(["cellular 3x3", "gap"], 0.6) == ["cellular\n3x3", "gap"]
    assert names_below(LONG, 0.6) is None


def test_a_scale_is_logarithmic_for_positive_values_far_apart() -> None:
    assert wants_log(np.array([1.0, 31.0]))
    assert not wants_log(np.array([1.0, 29.0]))
    assert not wants_log(np.array([0.0, 100.0]))
    assert not wants_log(np.zeros(0))
    assert Scale.of(np.array([1.0, 200.0])).ticks() == [1, 2, 5, 10, 20, 50, 100, 200]
    assert Scale.of(np.full(3, 60.0)).places(np.array([60.0])) == pytest.approx(0.5)


# ---------------------------------------------------------------------------- dots


@pytest.mark.parametrize("seeds", [1, 10, 50])
def test_every_seed_is_a_dot_at_its_value(seeds: int) -> None:
    shown = panel(["a", "b", "c"], seeds)
    found = marked(dots_figure([shown]), "seeds")
    for drawn, values in zip(found, shown.values.values(), strict=True):
        np.testing.assert_array_equal(drawn.get_offsets()[:, 1], values)
    middles = [line.get_ydata()[0] for line in marked(dots_figure([shown]), "median")]
    assert middles == pytest.approx([np.median(values) for values in shown.values.values()])


def test_a_swarm_keeps_dots_apart_and_within_its_room() -> None:
    points = np.random.default_rng(0).normal(0, 20, 50)
    offsets = swarm(points, 3.0, 1e9)
    where = np.stack((points, offsets), 1)
    gaps = np.linalg.norm(where[:, None] - where[None], axis=-1) + 9 * np.eye(50)
    assert gaps.min() >= 3.0
    assert np.abs(swarm(np.zeros(50), 3.0, 10.0)).max() == pytest.approx(10)
    np.testing.assert_allclose(np.sort(swarm(np.zeros(2), 3.0, 10.0)), [-1.5, 1.5])
    np.testing.assert_array_equal(swarm(np.array([NAN, 1, NAN]), 3.0, 10.0), [0, 0, 0])


@pytest.mark.parametrize("higher", [False, True])
def test_seeds_without_a_value_are_crosses_at_the_worse_edge_with_a_count(higher: bool) -> None:
    values = {"a": np.array([5.0, NAN, np.inf, 7.0]), "b": np.array([6.0, 7.0, 8.0, 9.0])}
    figure = dots_figure([DotPanel("IS", values, higher_is_better=higher)])
    (crosses,) = marked(figure, "lost")
    assert len(crosses.get_offsets()) == 2
    assert "2/4" in [text.get_text() for text in figure.axes[0].texts]
    axes = figure.axes[0]
    dots_there = axes.transLimits.transform([(0, 5), (0, 9)])[:, 1]
    edge = crosses.get_offsets()[0, 1]
    assert edge < dots_there.min() - 0.03 if higher else edge > dots_there.max() + 0.03
    assert_legible(figure)


def test_arms_that_all_collapsed_and_arms_that_do_not_vary() -> None:
    lost = DotPanel("FID", {"a": np.full(3, NAN), "b": np.full(2, NAN)})
    same = DotPanel("KID", {"a": np.full(50, 60.0), "b": np.full(1, 60.0)})
    figure = dots_figure([lost, same])
    assert [len(one.get_offsets()) for one in marked(figure, "lost")] == [3, 2]
    assert [len(one.get_offsets()) for one in marked(figure, "seeds")] == [0, 0, 50, 1]
    assert len(figure.axes[0].get_yticks()) == 0
    assert_legible(figure)


def test_lines_join_the_same_seed_up_to_four_arms() -> None:
    four, five = [list("abcd"), list("abcde")]
    assert len(marked(dots_figure([panel(four, 7, paired=True)]), "pair")) == 7
    assert marked(dots_figure([panel(four, 7)]), "pair") == []
    assert marked(dots_figure([panel(five, 7, paired=True)]), "pair") == []
    shown = panel(["a", "b"], 3, paired=True)
    ends = [tuple(line.get_ydata()) for line in marked(dots_figure([shown]), "pair")]
    assert ends == list(zip(shown.values["a"], shown.values["b"], strict=True))


def test_brackets_only_where_stars_are_and_never_over_each_other() -> None:
    names = list("abcdef")
    pairs = [Bracket(one, other, 0.0001) for one, other in combinations(names, 2)]
    figure = dots_figure([panel(names, brackets=[*pairs, Bracket("e", "f", 0.3)])])
    found = marked(figure, "bracket")
    assert len(found) == 15
    # However many they are, the dots keep their room, below them.
    (low, high), axes = figure.axes[0].get_ylim(), figure.axes[0]
    tops = [one.get_offsets()[:, 1].max() for one in marked(figure, "seeds")]
    figure.draw_without_rendering()
    inner = axes.transLimits.transform([(0, low), (0, max(tops))])[:, 1]
    assert high > low
    assert inner[1] * axes.get_window_extent().height > 1.1 * 300
    assert min(line.get_ydata().min() for line in found) > inner[1]
    spans = [(line.get_ydata().max(), *line.get_xdata()[[0, -1]]) for line in found]
    for (height, left, right), (other, start, end) in combinations(spans, 2):
        assert height != pytest.approx(other) or right < start or end < left
    assert marked(dots_figure([panel(names, brackets=[Bracket("a", "b", NAN)])]), "bracket") == []
    assert_legible(figure)


def test_means_have_their_intervals() -> None:
    figure = dots_figure([panel(["a", "b"], means={"a": Interval(61, 55, 67), "b": Interval(NAN)})])
    (interval,), (mean,) = marked(figure, "interval"), marked(figure, "mean")
    assert list(interval.get_ydata()) == [55, 67]
    assert list(mean.get_ydata()) == [61]


def test_a_score_over_decades_has_a_log_axis_of_plain_numbers() -> None:
    figure = dots_figure(
        [DotPanel("FID", {"a": np.array([1.0, 2.0]), "b": np.array([90.0, 40.0])})]
    )
    assert figure.axes[0].get_yscale() == "log"
    assert {"1", "10", "50", "FID (lower is better)"} <= {one.get_text() for one in words(figure)}


@pytest.mark.parametrize(
    ("names", "count"),
    [(["a", "b"], 12), (LONG, 1), ([f"{n} {LONG[0]}"[:40] for n in range(8)], 5)],
)
def test_panels_wrap_and_names_go_to_the_key_if_they_do_not_fit(
    names: list[str], count: int
) -> None:
    figure = dots_figure([panel(names)] * count)
    assert sum(axes.get_visible() for axes in figure.axes) == count
    assert figure.get_figwidth() in (3.4, 7.0)
    assert_legible(figure)
    texts = "".join("".join(one.get_text().split()) for one in words(figure))
    assert all("".join(name.split()) in texts for name in names)


def test_names_are_no_formulas() -> None:
    figure = dots_figure([panel(["$a_{$", "_b$$"])])
    assert_legible(figure)


# ---------------------------------------------------------------------------- intervals


def test_differences_are_filled_where_significant_with_p_and_a() -> None:
    figure = intervals_figure(
        [
            Difference("FID", "a", "b", Interval(-9, -12, -6), 0.0001, 0.91),
            Difference("FID", "a", "c", Interval(1, -2, 4), 0.4, 0.45),
            Difference("FID", "b", "c", Interval(5)),
            Difference("IS", "a", "b", Interval(NAN), higher_is_better=True),
        ]
    )
    points = marked(figure, "difference")
    assert [point.get_xdata()[0] for point in points] == [-9, 1, 5]
    assert [point.get_markerfacecolor() == "white" for point in points] == [False, True, True]
    assert [list(one.get_xdata()) for one in marked(figure, "interval")] == [[-12, -6], [-2, 4]]
    low, high = figure.axes[0].get_xlim()
    assert low < -12
    assert high > 5
    texts = [one.get_text() for one in words(figure)]
    assert {"<0.001", "0.91", "0.40", "0.45", "–", "a − c"} <= set(texts)
    assert "difference in FID\n(below 0: the first is better)" in texts
    assert "difference in IS\n(above 0: the first is better)" in texts
    assert_legible(figure)


@pytest.mark.parametrize("names", [["a", "b"], LONG])
def test_one_pair_is_enough_for_a_forest(names: list[str]) -> None:
    figure = intervals_figure(
        [Difference("FID", names[0], names[1], Interval(0.0, 0.0, 0.0), 0.03)]
    )
    assert_legible(figure)


# ---------------------------------------------------------------------------- curves


def test_curves_show_seeds_medians_and_where_they_reach_the_target() -> None:
    good, bad = curve("good", 40, seeds=4), curve("bad", 90, seeds=4)
    figure = curves_figure([("images", [good, bad])], "FID", 60.0, False)
    assert len(marked(figure, "seed")) == 8
    assert len(marked(figure, "median")) == 2
    (ring,) = marked(figure, "reached")
    first = int(np.flatnonzero(good.median <= 60)[0])
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (good.cost[first], good.median[first])
    assert reaches(bad, 60, higher_is_better=False) is None
    assert reaches(bad, 60, higher_is_better=True) == 0
    assert_legible(figure)


def test_no_key_covers_data() -> None:
    arms = [curve(name, 40 + 9 * place) for place, name in enumerate([*LONG, *"cdefgh"])]
    figure = curves_figure([("images", arms)], "FID", 60.0, False)
    assert_legible(figure)
    assert len(figure.legends) == 2
    inner = figure.axes[0].get_window_extent()
    assert not any(one.get_window_extent().overlaps(inner) for one in figure.legends)
    assert inner.height > 1.2 * 300  # however many names there are


def test_curves_with_gaps_and_a_single_point() -> None:
    short = ArmCurve("short", *np.array([[5.0], [60.0], [60.0], [60.0]]))
    gap = curve("gap", 40)
    gap.median[3:6] = NAN
    lost = ArmCurve("lost", gap.cost, *np.full((3, 20), NAN))
    assert reaches(lost, 60, higher_is_better=False) is None
    assert_legible(curves_figure([("CPU seconds", [short, gap, lost])], "FID", 50.0, False))


def test_over_seconds_a_slow_arm_goes_further_under_the_same_scale() -> None:
    images = [curve("quick", 40), curve("slow", 40)]
    seconds = [curve("slow", 40, slow=4e-3), curve("quick", 40, slow=1e-3)]
    figure = curves_figure([("images", images), ("CPU seconds", seconds)], "FID", None, False)
    left, right = figure.axes
    assert left.get_ylim() == right.get_ylim()
    ends = [
        {str(line.get_color()): np.asarray(line.get_xdata(), float)[-1] for line in axes.lines}
        for axes in (left, right)
    ]
    assert list(ends[0]) == list(reversed(ends[1]))  # colours go by name, not by place
    quick, slow = (ends[1][shade] for shade in ends[0])
    assert slow == pytest.approx(4 * quick)
    assert figure.get_figwidth() == 7
    assert_legible(figure)


# ---------------------------------------------------------------------------- pairs and ranks


@pytest.mark.parametrize("names", [["a", "b"], LONG, [f"{n} {LONG[0]}"[:40] for n in range(5)]])
def test_a_matrix_says_every_probability_off_its_diagonal(names: list[str]) -> None:
    count = len(names)
    p = np.full((count, count), 0.2)
    p[0, 1] = p[1, 0] = 0.01
    figure = matrix_figure(names, chances(count), p, "FID")
    texts = [(one.get_text(), one.get_fontweight()) for one in figure.axes[0].texts]
    bold = [text for text, weight in texts if weight == "bold"]
    assert bold == [f"{chances(count)[0, 1]:.2f}", f"{chances(count)[1, 0]:.2f}"]
    assert len(texts) == 2 * count * (count - 1)
    assert_legible(figure)


def test_a_matrix_without_tests_or_values() -> None:
    found = chances(3)
    found[0, 1] = found[1, 0] = NAN
    figure = matrix_figure(["a", "b", "c"], found, None, "")
    texts = [one.get_text() for one in figure.axes[0].texts]
    assert len(texts) == 6
    assert texts.count("–") == 2
    assert np.ma.getmaskarray(np.ma.asarray(figure.axes[0].images[0].get_array())).sum() == 5


@pytest.mark.parametrize("count", [2, 3, 6, 10])
@pytest.mark.parametrize("long", [False, True])
def test_names_of_a_diagram_of_ranks_do_not_overlap(count: int, long: bool) -> None:
    names = [f"{n} {LONG[n % 2]}"[:40] if long else f"arm {n}" for n in range(count)]
    figure = ranks_figure(*ranked(count, names))
    assert_legible(figure)
    elbows = marked(figure, "elbow")
    assert len(elbows) == count
    # Lines to the same side do not cross: who is further in hangs lower.
    left = [line for line in elbows if line.get_xdata()[-1] < line.get_xdata()[0]]
    across = [(line.get_xdata()[0], line.get_ydata()[-1]) for line in left]
    assert across == sorted(across)


def test_bars_and_ruler_are_as_long_as_what_they_stand_for() -> None:
    names = ["b", "a", "c", "d"]
    figure = ranks_figure(names, [2.0, 1.5, 3.0, 3.5], 1.2, [["a", "b"], ["d", "c"], ["a"]], "N")
    elbows = sorted(line.get_xdata()[0] for line in marked(figure, "elbow"))
    unit = (elbows[-1] - elbows[0]) / 2
    (ruler,) = marked(figure, "ruler")
    assert np.ptp(ruler.get_xdata()) == pytest.approx(1.2 * unit)
    bars = [line.get_xdata() for line in marked(figure, "group")]
    assert [(bar[0] + bar[1]) / 2 for bar in bars] == pytest.approx(
        [(elbows[0] + elbows[1]) / 2, (elbows[2] + elbows[3]) / 2]
    )


@pytest.mark.parametrize("distance", [NAN, 40.0])
def test_a_diagram_without_a_drawable_distance(distance: float) -> None:
    figure = ranks_figure(["a", "b"], [1.5, 1.5], distance, [["a", "b"]], "seeds (N = 2)")
    assert marked(figure, "ruler") == []
    assert any("CD = 40.00" in one.get_text() for one in words(figure)) == np.isfinite(distance)
    assert_legible(figure)
