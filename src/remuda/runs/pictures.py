"""Sheets of samples as PNG: images in a grid, points as a scatter."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

_GAP = 2
_GREY = 96
_LETTERS = 14
_SCATTER_SIDE = 480


def sheet(
    samples: npt.NDArray[np.float32], columns: int | None = None, names: Sequence[str] = ()
) -> bytes:
    """A PNG of images (NCHW in [0, 1]), with optional names for the rows, or of 2-D points."""
    picture = _scatter(samples) if samples.ndim == 2 else _named(_grid(samples, columns), names)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def _grid(images: npt.NDArray[np.float32], columns: int | None) -> Image.Image:
    count, channels, height, width = images.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    # Small images are enlarged by whole pixels, so that the sheet needs no zooming.
    zoom = max(1, 64 // max(height, width))
    pixels = (images.clip(0, 1) * 255).round().astype(np.uint8).transpose(0, 2, 3, 1)
    pixels = pixels.repeat(zoom, axis=1).repeat(zoom, axis=2)
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
