"""One picture of a stranger's: opened as what its name may hold, and decoded if it fits."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from remuda.data.reading import CHUNK, reading
from remuda.errors import DataError
from remuda.files import check_memory, open_regular

# Pillow goes by content, whatever a file is called, and others of its formats start programs (EPS).
# Those first that need none of its rarer modules.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP", "TIFF")
_GREY = frozenset({"1", "L", "LA"})
_COLOUR = frozenset({"P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})
_PIXEL_BYTES = 16  # while an image is decoded and converted: four copies of four channels
_ROW_BYTES = 512  # per pixel of width: a packed bitmap may skip 255 rows at once
_TAG_BYTES = 8  # per byte of a file: what Pillow makes of the tags in it
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # tags of a TIFF, whose tiles may be larger than the image
# What a sound picture never has so many of, and Pillow or its libraries take too long over.
_MOST_READS = 100_000  # parts before the pixels
_MOST_SCANS = 100  # of a progressive JPEG
_MOST_COMMENTS = 1000  # in an image that is written as text
_SCAN = re.compile(rb"\xff\xda\x00(\x08\x01|\x0a\x02|\x0c\x03|\x0e\x04)")
_COMMENT = re.compile(rb"#")


@dataclass(frozen=True)
class Look:
    """What all images of a set are made to be; null leaves them as they are."""

    size: int | None  # of the side, of the square that is cut from the middle
    colour: bool | None


class Picture:
    """An image whose header has been read and whose pixels have not."""

    def __init__(self, image: Image.Image, look: Look) -> None:
        self._image, self._size = image, look.size
        self._to_colour = image.mode in _COLOUR if look.colour is None else look.colour

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of its pixels."""
        width, height = self._image.size if self._size is None else (self._size, self._size)
        return 3 if self._to_colour else 1, height, width

    def pixels(self) -> npt.NDArray[np.uint8]:
        """As (C, H, W); resizing crops to the central square, which distorts nothing."""
        image = self._image
        # Via RGBA, because Pillow warns when a palette image loses its transparency directly.
        opened = image.convert("RGBA") if image.mode in ("P", "PA") else image
        picture = opened.convert("RGB" if self._to_colour else "L")
        if self._size is not None:
            picture = ImageOps.fit(picture, (self._size, self._size), Image.Resampling.LANCZOS)
        pixels = np.asarray(picture, dtype=np.uint8)
        return pixels.transpose(2, 0, 1) if self._to_colour else pixels[None]


@contextmanager
def opened_image(path: Path, look: Look) -> Iterator[Picture]:
    """An image that is known to fit into memory; errors of decoding it name the file, too."""
    with reading(path), warnings.catch_warnings(), open_regular(path) as opened:
        warnings.simplefilter("ignore")  # about notes in a picture that nobody looks at
        file = _Counted(opened)
        _check_content(file, path)
        with Image.open(file, formats=_FORMATS) as image:
            file.is_counting = False
            if image.mode not in _GREY | _COLOUR:
                raise DataError(f"{path}: pixels of mode {image.mode}; allowed: 8 bits per channel")
            _check_size(path, *_decoded_size(image))
            yield Picture(image, look)


class _Counted(io.BufferedReader):
    """A file that is not read in too many parts: some formats take quadratic time over them."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(io.FileIO(file.fileno(), closefd=False))
        self.is_counting, self._reads = True, 0
        self.length = self.seek(0, os.SEEK_END)
        self.seek(0)

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads += self.is_counting
        if self._reads > _MOST_READS:
            raise ValueError(f"over {_MOST_READS} parts before the pixels")
        # What is asked for is allocated, and a part of four gigabytes takes a few bytes to promise.
        return super().read(size if size is None else min(size, self.length))


def _check_content(file: _Counted, path: Path) -> None:
    """Refuse what costs too much before, or without, its declared size being looked at."""
    head = file.peek(30)[:30]
    check_memory(path, _TAG_BYTES * file.length, "an image file of this length")
    if head.startswith(b"\xff\xd8") and _count(file, _SCAN) > _MOST_SCANS:
        raise DataError(f"{path}: a JPEG of over {_MOST_SCANS} scans")
    if head[:2] in (b"P1", b"P2", b"P3") and _count(file, _COMMENT) > _MOST_COMMENTS:
        raise DataError(f"{path}: over {_MOST_COMMENTS} comments in an image")
    if head.startswith(b"RIFF"):  # whose reader allocates the canvas when it is opened
        _check_size(path, *_webp_size(head))
    file.seek(0)


def _count(file: _Counted, pattern: re.Pattern[bytes]) -> int:
    return sum(len(pattern.findall(part)) for part in iter(lambda: file.read(CHUNK), b""))


def _check_size(path: Path, width: int, height: int) -> None:
    needed = width * (_PIXEL_BYTES * height + _ROW_BYTES)
    check_memory(path, needed, f"an image of {width}x{height}")


def _decoded_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of what is decoded at once."""
    tags = getattr(image, "tag_v2", {})
    tile = (_largest(tags.get(_TILE_WIDTH)), _largest(tags.get(_TILE_LENGTH)))
    return max(image.width, tile[0]), max(image.height, tile[1])


def _largest(value: object) -> int:
    """A number in a TIFF, of which there should be one."""
    values = value if isinstance(value, tuple) else (value,)
    return max((number for number in values if isinstance(number, int)), default=0)


def _webp_size(head: bytes) -> tuple[int, int]:
    """The canvas that the first chunk of a WebP file declares."""
    if head[12:16] == b"VP8X":
        sides = head[24:27], head[27:30]
        return int.from_bytes(sides[0], "little") + 1, int.from_bytes(sides[1], "little") + 1
    start, plus = (21, 1) if head[12:16] == b"VP8L" else (26, 0)
    bits = int.from_bytes(head[start : start + 4], "little")
    return (bits & 0x3FFF) + plus, (bits >> (16 - 2 * plus) & 0x3FFF) + plus
