"""Sheets: every sample in its place, whatever the samples are."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from remuda.metrics import Pairs
from remuda.runs.pictures import pair_sheet, sheet


def opened(png: bytes) -> Image.Image:
    assert png.startswith(b"\x89PNG")
    return Image.open(io.BytesIO(png))


def flat(*values: float, channels: int = 1, side: int = 28) -> np.ndarray:
    """Images of one brightness each."""
    column = np.asarray(values, np.float32)[:, None, None, None]
    return np.broadcast_to(column, (len(values), channels, side, side)).copy()


def test_images_lie_in_rows_from_the_top_left() -> None:
    picture = opened(sheet(flat(0.0, 0.2, 0.4, 0.6, 1.0), columns=3))
    assert picture.mode == "L"
    # 28 px are doubled, with gaps of two around.
    assert picture.size == (3 * 58 + 2, 2 * 58 + 2)
    pixels = np.asarray(picture)
    centres = [(top * 58 + 30, left * 58 + 30) for top in (0, 1) for left in (0, 1, 2)]
    assert [pixels[place] for place in centres] == [0, 51, 102, 153, 255, 96]
    assert pixels[0, 0] == 96


def test_a_sheet_is_about_square_without_a_wish() -> None:
    assert opened(sheet(flat(*[0.5] * 64))).size == (8 * 58 + 2, 8 * 58 + 2)
    assert opened(sheet(flat(0.5))).size == (60, 60)


@pytest.mark.parametrize("channels", [1, 3])
def test_rows_have_their_names_to_the_left(channels: int) -> None:
    images = flat(0.0, 0.2, 0.4, 0.6, channels=channels)
    plain = np.asarray(opened(sheet(images, columns=2)))
    named = np.asarray(opened(sheet(images, columns=2, names=["cat", "aeroplane"])))
    margin = named.shape[1] - plain.shape[1]
    assert np.array_equal(named[:, margin:], plain)
    rows = np.split(named[:, :margin], 2)
    inks = [int((row > 96).sum()) for row in rows]
    assert inks[1] > inks[0] > 0


def test_colours_keep_their_places() -> None:
    image = np.zeros((1, 3, 64, 64), np.float32)
    image[0, 0] = 1.0
    picture = opened(sheet(image))
    assert picture.mode == "RGB"
    assert picture.getpixel((30, 30)) == (255, 0, 0)
    assert picture.size == (68, 68)  # 64 px are large enough as they are


def test_values_out_of_range_are_clipped_not_wrapped() -> None:
    pixels = np.asarray(opened(sheet(flat(-0.1, 1.1), columns=2)))
    assert pixels[30, 30] == 0
    assert pixels[30, 88] == 255


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_points_become_a_scatter(dimensions: int) -> None:
    points = np.random.default_rng(0).normal(size=(50, dimensions)).astype(np.float32)
    picture = opened(sheet(points))
    assert picture.size == (480, 480)
    assert len(picture.getcolors(100_000) or []) > 1


def test_points_are_drawn_upwards_to_the_right() -> None:
    picture = opened(sheet(np.array([[0, 0], [1, 1]], np.float32)))
    assert picture.getpixel((20, 460)) != (255, 255, 255)
    assert picture.getpixel((460, 20)) != (255, 255, 255)
    assert picture.getpixel((20, 20)) == (255, 255, 255)


def test_points_that_all_coincide_still_make_a_picture() -> None:
    assert opened(sheet(np.ones((5, 2), np.float32))).size == (480, 480)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_sample_is_above_its_training_image(channels: int) -> None:
    samples, training = (
        torch.from_numpy(flat(*values, channels=channels)) for values in ([-1.0] * 12, [1.0] * 12)
    )
    picture = opened(pair_sheet(Pairs(samples, training, torch.arange(12.0))))
    pixels = np.asarray(picture.convert("L"))
    black, white = (pixels == 0).astype(int), (pixels == 255).astype(int)
    assert black.sum() == 12 * 56 * 56
    assert white.sum() > 12 * 56 * 56  # and the letters
    # Ten in the first row, two in the second, white below black.
    for row, columns in ((0, 10), (1, 2)):
        part = pixels[row * picture.height // 2 : (row + 1) * picture.height // 2]
        tops = [np.flatnonzero(part[:, x] == 0) for x in range(part.shape[1])]
        assert sum(len(top) == 56 for top in tops) == columns * 56
        for x, top in enumerate(tops):
            if len(top) == 56:
                assert (part[top[-1] + 3 : top[-1] + 59, x] == 255).all()


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31m", "\ud800", "x" * 5000, ""])
def test_rows_may_be_called_anything(name: str) -> None:
    picture = sheet(np.zeros((2, 1, 8, 8), np.float32), 1, [name, "a"])
    with Image.open(io.BytesIO(picture)) as image:
        assert image.width < 700
