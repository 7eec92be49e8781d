"""Overlays: what is apart stays apart in the plane, and the picture fits the data."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remuda.analysis.overlays import embed, picture
from remuda.errors import ConfigError


@pytest.mark.slow
def test_sets_that_are_apart_stay_apart_and_mixed_ones_mix() -> None:
    rng = np.random.default_rng(0)
    here, also_here = (rng.normal(0, 1, (40, 1, 6, 6)).astype(np.float32) for _ in range(2))
    there = here[:30] + 50
    one, other, far = embed([here, also_here, there], seed=0)
    assert (one.shape, other.shape, far.shape) == ((40, 2), (40, 2), (30, 2))
    together, apart = (
        float(np.linalg.norm(one.mean(0) - found.mean(0))) / float(one.std())
        for found in (other, far)
    )
    assert apart > 3 * together
    again = embed([here, also_here, there], seed=0)
    assert np.array_equal(again[0], one)


def test_points_are_shown_as_they_are(alone: Path, swapped: Path) -> None:
    png, shown = picture([alone, swapped], count=50)
    assert "2-D" in shown
    with Image.open(io.BytesIO(png)) as image:
        assert image.width > 2 * image.height  # the data and two runs, side by side


@pytest.mark.slow
def test_images_are_embedded(images: Path) -> None:
    png, shown = picture([images], count=20)
    assert shown == "t-SNE of 20 samples each"
    with Image.open(io.BytesIO(png)) as image:
        assert len(image.convert("RGB").getcolors(10**6) or ()) > 20


def test_runs_on_other_items_are_refused(alone: Path, images: Path) -> None:
    with pytest.raises(ConfigError, match=r"1x28x28 and those of .* 2; allowed"):
        picture([alone, images], count=20)
