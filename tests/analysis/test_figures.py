"""Figures as PNG: that they show what they are given, and are the same for the same values."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from remuda.analysis.figures import (
    Curve,
    Panel,
    battle,
    class_bars,
    learning_curves,
    overlay,
    scatters,
)

pytestmark = pytest.mark.slow  # matplotlib takes its time

NAMES = ["a:0", "a:1", "b:0"]


def pixels(png: bytes) -> npt.NDArray[np.int64]:
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGB")).astype(np.int64)


def difference(one: bytes, other: bytes) -> float:
    """Share of pixels that differ; 1 where sizes do."""
    left, right = pixels(one), pixels(other)
    return 1.0 if left.shape != right.shape else float((left != right).any(-1).mean())


def test_a_battle_may_have_judges_of_other_runs() -> None:
    few = battle(np.full((2, 3), 0.1), np.ones((2, 3), bool), ["j:0", "k:0"], NAMES)
    many = battle(np.full((3, 3), 0.1), np.ones((3, 3), bool), NAMES, NAMES)
    (wide, low), (alike, high) = (pixels(one).shape[1::-1] for one in (few, many))
    assert wide == alike
    assert low <= high


def test_a_battle_shows_shares_and_who_may_not_judge() -> None:
    allowed = ~np.eye(3, dtype=bool)
    low = battle(np.full((3, 3), 0.1), allowed, NAMES, NAMES)
    high = battle(np.full((3, 3), 0.9), allowed, NAMES, NAMES)
    assert pixels(high).mean() < pixels(low).mean() - 20  # a larger share is darker
    barred = battle(np.full((3, 3), 0.9), np.zeros((3, 3), bool), NAMES, NAMES)
    assert pixels(barred).mean() > pixels(high).mean() + 20
    again = battle(np.full((3, 3), 0.9), allowed, NAMES, NAMES)
    assert again == high


def test_bars_are_as_high_as_shares() -> None:
    even = [0.25] * 4
    classes = ["0", "1", "2", "3"]
    one = class_bars(classes, even, even, "run")
    collapsed = class_bars(classes, even, [1.0, 0, 0, 0], "run")
    assert difference(one, collapsed) > 0.05
    wide = class_bars([str(number) for number in range(40)], [0.025] * 40, [0.025] * 40, "run")
    assert pixels(wide).shape[1] > pixels(one).shape[1]


def test_an_overlay_shows_every_set() -> None:
    rng = np.random.default_rng(0)
    data, here, there = (rng.normal(place, 1, (50, 2)) for place in (0, 0, 9))
    only = overlay(data, {"one": here}, "title")
    both = overlay(data, {"one": here, "two": there}, "title")
    assert difference(only, both) > 0.01


def test_scatters_keep_one_scale_and_mark_the_modes() -> None:
    modes = np.array([(0.0, 0.0), (4.0, 4.0)])
    data = Panel("data", modes.repeat(20, 0))
    inside, outside = Panel("run", modes.repeat(20, 0)), Panel("run", modes.repeat(20, 0) + 100)
    assert difference(scatters([data, inside], modes, 1.0), scatters([data, inside], None, 0)) > 0
    # What a run throws far away does not shrink the rest.
    empty = Panel("run", np.zeros((0, 2)))
    far, none = scatters([data, outside], modes, 1.0), scatters([data, empty], modes, 1.0)
    assert difference(far, none) == 0


def test_curves_have_a_panel_per_run_and_one_for_the_spreads() -> None:
    rounds = np.arange(1, 6)
    near = Curve("near", rounds, np.full((2, 5), 0.5), np.full((2, 5), 0.51))
    apart = Curve("apart", rounds, np.full((2, 5), 0.5), np.full((2, 5), 0.9))
    broken = Curve("broken", rounds, np.full((2, 5), np.nan), np.full((2, 5), 0.9))
    one, two = learning_curves([near]), learning_curves([near, apart])
    assert pixels(two).shape[1] > pixels(one).shape[1]
    assert difference(two, learning_curves([near, broken])) > 0.001
