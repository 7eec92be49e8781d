"""Sheets of samples as PNG: images in a grid, points as a scatter."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from remuda.data import PIXELS
from remuda.errors import visible
from remuda.metrics import Pairs

_GAP = 2
_GREY = 96
_LETTERS = 14
_LONGEST_NAME = 40  # characters of a name beside its row
_SCATTER_SIDE = 480
_PAIR_COLUMNS = 10
_PAIR_GAP = 8


def sheet(
    samples: npt.NDArray[np.float32], columns: int | None = None, names: Sequence[str] = ()
) -> bytes:
    """A PNG of images (NCHW in [0, 1]), with optional names for the rows, or of 2-D points."""
    picture = _scatter(samples) if samples.ndim == 2 else _named(_grid(samples, columns), names)
    return _png(picture)


def pair_sheet(pairs: Pairs) -> bytes:
    """A PNG of samples, each above the training image nearest to it, with their distances."""
    count, height, width = len(pairs.samples), *pairs.samples.shape[2:]
    zoom = _zoom(height, width)
    size = (height * zoom, width * zoom)
    wide, tall, font = width * zoom + _PAIR_GAP, height * zoom, ImageFont.load_default(_LETTERS)
    high = 2 * tall + _GAP + _LETTERS + 2 * _PAIR_GAP
    rows, columns = -(-count // _PAIR_COLUMNS), min(count, _PAIR_COLUMNS)
    margin = math.ceil(font.getlength("nearest")) + 2 * _PAIR_GAP
    canvas = Image.new("RGB", (margin + columns * wide, _PAIR_GAP + rows * high), (_GREY,) * 3)
    pen = ImageDraw.Draw(canvas)
    for row in range(rows):
        top = _PAIR_GAP + row * high
        for place, lines in enumerate(("sample", "nearest\ntraining\nimage")):
            middle = top + place * (tall + _GAP) + tall / 2
            pen.text((margin - _PAIR_GAP, middle), lines, "white", font, anchor="rm", align="right")
    images = [PIXELS.to_raw(side).numpy() for side in (pairs.samples, pairs.training)]
    for number, distance in enumerate(pairs.distances.tolist()):
        row, column = divmod(number, _PAIR_COLUMNS)
        left, top = margin + column * wide, _PAIR_GAP + row * high
        for place, side in enumerate(images):
            pixels = np.broadcast_to(_bytes(side[number : number + 1], zoom)[0], (*size, 3))
            canvas.paste(Image.fromarray(pixels), (left, top + place * (tall + _GAP)))
        below = (left + width * zoom / 2, top + 2 * tall + _GAP + _PAIR_GAP / 2)
        pen.text(below, f"{distance:.2f}", "white", font, anchor="mt")
    return _png(canvas)


def _zoom(height: int, width: int) -> int:
    """Small images are enlarged by whole pixels, so that the sheet needs no zooming."""
    return max(1, 64 // max(height, width))


def _bytes(images: npt.NDArray[np.float32], zoom: int) -> npt.NDArray[np.uint8]:
    """Enlarged images with colours last."""
    pixels = (images.clip(0, 1) * 255).round().astype(np.uint8).transpose(0, 2, 3, 1)
    return pixels.repeat(zoom, axis=1).repeat(zoom, axis=2)


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def _grid(images: npt.NDArray[np.float32], columns: int | None) -> Image.Image:
    count, channels, height, width = images.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    zoom = _zoom(height, width)
    pixels = _bytes(images, zoom)
    tall, wide = height * zoom + _GAP, width * zoom + _GAP
    canvas = np.full((rows * tall + _GAP, columns * wide + _GAP, channels), _GREY, np.uint8)
    for number, image in enumerate(pixels):
        top, left = divmod(number, columns)
        y, x = top * tall + _GAP, left * wide + _GAP
        canvas[y : y + height * zoom, x : x + width * zoom] = image
    return Image.fromarray(canvas[..., 0] if channels == 1 else canvas)


def _named(picture: Image.Image, names: Sequence[str]) -> Image.Image:
    """The picture with names to the left of its rows, which are equally high."""
    if not names:
        return picture
    font = ImageFont.load_default(_LETTERS)
    names = [visible(name)[:_LONGEST_NAME] for name in names]
    margin = math.ceil(max(font.getlength(name) for name in names)) + 6 * _GAP
    grey = (_GREY,) * len(picture.getbands())
    wide = Image.new(picture.mode, (margin + picture.width, picture.height), grey)
    wide.paste(picture, (margin, 0))
    pen = ImageDraw.Draw(wide)
    for number, name in enumerate(names):
        middle = (number + 0.5) * picture.height / len(names)
        pen.text((margin - 3 * _GAP, middle), name, (255,) * len(grey), font, anchor="rm")
    return wide


def _scatter(points: npt.NDArray[np.float32]) -> Image.Image:
    picture = Image.new("RGB", (_SCATTER_SIDE, _SCATTER_SIDE), "white")
    pen = ImageDraw.Draw(picture)
    flat = (
        points[:, :2] if points.shape[1] > 1 else np.column_stack((points, np.zeros_like(points)))
    )
    low, high = flat.min(0), flat.max(0)
    span = np.where(high > low, high - low, 1.0)
    places = 20 + (flat - low) / span * (_SCATTER_SIDE - 40)
    for x, y in places:
        pen.ellipse((x - 2, _SCATTER_SIDE - y - 2, x + 2, _SCATTER_SIDE - y + 2), fill="#1f5fa8")
    return picture
