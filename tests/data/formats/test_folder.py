from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from PIL import Image

from remuda.errors import ConfigError, DataError
from tests.data.samples import load, random_bytes


def _save(path: Path, width: int = 8, height: int = 8, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random_bytes(height, width, 3)).convert(mode).save(path)


def test_sub_folders_are_the_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/2.png", "a/1.png", "b/1.png", "a/notes.txt", ".hidden/1.png", "b/.x.png"):
        _save(tmp_path / name) if name.endswith("png") else (tmp_path / name).touch()
    dataset = load(tmp_path)
    assert dataset.items.shape == (3, 3, 8, 8)
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [0, 1, 1]
    assert dataset.label_names == ("a", "b")
    raw = (dataset.items[0] * 127.5 + 127.5).round().byte().numpy()
    assert np.array_equal(raw, random_bytes(8, 8, 3).transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("colour", [None, True, False])
def test_colour_decides_the_channels_and_null_keeps_them(
    tmp_path: Path, mode: str, colour: bool | None
) -> None:
    _save(tmp_path / "a" / "1.png", mode=mode)
    channels = (3 if mode in ("P", "RGB", "RGBA") else 1) if colour is None else 1 + 2 * colour
    assert load(tmp_path, colour=colour).shape == (channels, 8, 8)


def test_a_palette_with_transparency_raises_no_warning(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    image = Image.fromarray(random_bytes(8, 8, 3)).convert("P")
    image.save(tmp_path / "a" / "1.png", transparency=bytes(range(256)))
    assert load(tmp_path).shape == (3, 8, 8)


def test_size_cuts_the_middle_square_and_resizes_it(tmp_path: Path) -> None:
    pixels = np.zeros((8, 24), np.uint8)
    pixels[:, 8:16] = 255
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels).save(tmp_path / "a" / "wide.png")
    _save(tmp_path / "a" / "x.jpg", 30, 40, "L")
    dataset = load(tmp_path, size=4)
    assert dataset.items.shape == (2, 1, 4, 4)
    assert (dataset.items[:][0, :, :, 1:-1] == 1).all()  # the filter reaches over the cut's edge


def test_limit_reads_no_more_files_than_it_needs(tmp_path: Path) -> None:
    _save(tmp_path / "a" / "1.png")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.png").write_bytes(b"broken")
    dataset = load(tmp_path, limit=1)
    assert len(dataset) == 1
    assert dataset.label_names == ("a", "b")


@pytest.mark.parametrize(
    ("limit", "labels"),
    [
        (1, [0]),
        (2, [0, 1]),
        (3, [0, 1, 2]),
        (5, [0, 0, 1, 2, 2]),
        (7, [0, 0, 0, 1, 2, 2, 2]),  # the class of a single image is used up
        (100, [0, 0, 0, 0, 1, 2, 2, 2]),
    ],
)
def test_limit_takes_of_every_class_by_turns(
    tmp_path: Path, limit: int, labels: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, count in (("a", 4), ("b", 1), ("c", 3)):
        for number in range(count):
            _save(tmp_path / name / f"{number}.png")
    read: set[Path] = set()
    opened = Image.open

    def spied(file: BinaryIO, formats: list[str]) -> Image.Image:
        read.add(Path(f"/proc/self/fd/{file.fileno()}").readlink())
        return opened(file, formats=formats)

    monkeypatch.setattr(Image, "open", spied)
    dataset = load(tmp_path, limit=limit)
    assert dataset.labels is not None
    assert dataset.labels.tolist() == labels
    assert dataset.label_names == ("a", "b", "c")
    # The first images of each class, in the order of their names.
    places = [labels[:place].count(label) for place, label in enumerate(labels)]
    wanted = ["abc"[label] + f"/{place}.png" for label, place in zip(labels, places, strict=True)]
    assert sorted(str(path.relative_to(tmp_path)) for path in read) == wanted


@pytest.mark.parametrize(
    ("width", "mode", "says"),
    [(9, "RGB", "9x8 colour, but .*1.png is 8x8 colour"), (8, "L", "8x8 grey, but")],
)
def test_the_first_image_that_differs_is_named(
    tmp_path: Path, width: int, mode: str, says: str
) -> None:
    for number in (1, 2, 4):
        _save(tmp_path / "a" / f"{number}.png")
    for number in (3, 5):
        _save(tmp_path / "a" / f"{number}.png", width, mode=mode)
    with pytest.raises(DataError, match=f"3.png: {says}"):
        load(tmp_path)


def _png(width: int) -> bytes:
    import io

    buffer = io.BytesIO()
    Image.fromarray(random_bytes(8, width, 3)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("content", [b"", b"no image", _png(8)[:60], _png(8)[:-40]])
def test_a_damaged_image_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(content)
    with pytest.raises(DataError, match=r"1\.png: damaged"):
        load(tmp_path)


def test_deep_pixels_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(tmp_path / "a" / "1.png")
    with pytest.raises(DataError, match=r"1\.png: pixels of mode I;16"):
        load(tmp_path)


def test_a_folder_without_classes_or_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sub-folders"):
        load(tmp_path)
    _save(tmp_path / "a" / "1.png")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: holds no images"):
        load(tmp_path)


@pytest.mark.parametrize("setting", [{"size": 8}, {"colour": True}])
@pytest.mark.parametrize("source", ["digits", "points.csv"])
def test_resizing_what_is_no_image_folder_is_refused(
    tmp_path: Path, source: str, setting: dict[str, object]
) -> None:
    (tmp_path / "points.csv").write_text("1,2\n3,4\n")
    with pytest.raises(
        ConfigError, match=r"does not apply to .*, only to a folder with one sub-folder"
    ):
        load(source, dir=str(tmp_path), **setting)
