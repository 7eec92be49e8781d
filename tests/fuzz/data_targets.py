"""The readers of data sets."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from remuda.config import DataSettings
from remuda.data import Dataset, load_dataset
from tests.data.samples import CIFAR_PIXELS, idx_bytes, random_bytes
from tests.fuzz.target import Target

_PIXELS = random_bytes(3, 6, 5)
_LABELS = np.array([1, 0, 1])
_CIFAR = random_bytes(2, CIFAR_PIXELS)


def _load(path: Path, **settings: Any) -> Dataset:
    """What a run does with its data before it trains."""
    dataset = load_dataset(DataSettings(source=str(path), **settings))
    assert dataset.fingerprint
    return dataset


# ---------------------------------------------------------------------------- files


def _npy() -> list[bytes]:
    floats = np.random.default_rng(0).random((3, 4, 5))
    made = (
        *(_PIXELS, floats, floats.astype(np.float32) * 2 - 1, floats[:, :, 0] * 9),
        *(np.asfortranarray(_PIXELS), np.arange(6).reshape(3, 2), _PIXELS[:, None]),
    )
    return [_written(np.save, array) for array in made]


def _npz() -> list[bytes]:
    words = np.array(["cat", "dog", "cat"])
    made: list[dict[str, Any]] = [
        {"x": _PIXELS, "y": _LABELS},
        {"images": _PIXELS, "labels": words},
        {"arr_0": np.arange(6.0).reshape(3, 2)},
    ]
    return [_written(save, **each) for each in made for save in (np.savez, np.savez_compressed)]


def _written(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def _text() -> list[bytes]:
    return [
        b"x,y\n0.5,1\n2,3e2\n-4,5\n",
        b"# points\n1 2 1\n3.5 4 2\n\n5 6 1\n",
        b"\xef\xbb\xbf1\t2\t3\t4\r\n5\t6\t7\t8\r\n",
    ]


def _idx() -> list[bytes]:
    return [idx_bytes(_PIXELS), idx_bytes(random_bytes(1, 1, 1))]


def _read_idx_labels(path: Path) -> Dataset:
    """The file as labels beside sound images."""
    images = path.with_name("a-images-idx3-ubyte")
    images.write_bytes(idx_bytes(_PIXELS))
    path.rename(path.with_name("a-labels-idx1-ubyte.gz"))
    return _load(images)


# ---------------------------------------------------------------------------- folders


def _cifar_batch(label_key: str) -> list[bytes]:
    batch = {"batch_label": "1 of 5", label_key: [3, 9], "data": _CIFAR, "filenames": ["a", "b"]}
    return [pickle.dumps(batch, protocol) for protocol in (0, 1, 2, 3, 4)]


def _cifar_meta(label_key: str, classes: int) -> list[bytes]:
    meta = {label_key: [f"kind{number}" for number in range(classes)], "num_vis": 3072}
    return [pickle.dumps(meta, protocol) for protocol in (0, 2, 4)]


def _as(name: str, **beside: bytes) -> Callable[[Path], Dataset]:
    """Reads the folder in which the file has this name, with others beside it."""

    def read(path: Path) -> Dataset:
        folder = path.parent / "folder"
        folder.mkdir()
        path.rename(folder / name)
        for other, content in beside.items():
            (folder / other).write_bytes(content)
        return _load(folder)

    return read


def _images(kind: str, modes: tuple[str, ...], **options: Any) -> Callable[[], list[bytes]]:
    def make() -> list[bytes]:
        picture = Image.fromarray(random_bytes(7, 9, 3))
        return [_written(picture.convert(mode).save, format=kind, **options) for mode in modes]

    return make


def _gifs() -> list[bytes]:
    frames = [Image.fromarray(random_bytes(7, 9, 3)).convert("P") for _ in range(3)]
    animated = _written(frames[0].save, format="GIF", save_all=True, append_images=frames[1:])
    return [animated, _written(frames[0].save, format="GIF", comment=b"hello")]


def _tiffs() -> list[bytes]:
    made = []
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"):
        made += _images("TIFF", ("RGB", "L"), compression=compression)()
    return made + _images("TIFF", ("1",), compression="group4")()


def _portable() -> list[bytes]:
    plain = [b"P2\n# a comment\n3 2\n255\n0 1 2\n3 4 255\n", b"P1\n2 2\n1 0 0 1\n"]
    return [*_images("PPM", ("RGB", "L", "1"))(), *plain]


def _webps() -> list[bytes]:
    made = _images("WEBP", ("RGB", "RGBA"))() + _images("WEBP", ("RGB",), lossless=True)()
    frames = [Image.fromarray(random_bytes(7, 9, 3)) for _ in range(2)]
    return [*made, _written(frames[0].save, format="WEBP", save_all=True, append_images=frames)]


def _read_image(path: Path) -> list[Dataset]:
    folder = path.parent / "classes" / "a"
    folder.mkdir(parents=True)
    path.rename(folder / path.name)
    return [_load(folder.parent), _load(folder.parent, size=4, colour=True)]


def _tree() -> list[bytes]:
    """A folder as lines of JSON: a path, and what is there."""
    picture = base64.b64encode(_images("PNG", ("L",))()[0]).decode()
    entries = [
        ("a/1.png", picture),
        ("a/notes.txt", ""),
        ("b/1.png", picture),
        ("b/2.PNG", "link a/1.png"),
        (".c/1.png", "pipe"),
    ]
    return ["\n".join(json.dumps(entry) for entry in entries).encode()]


def _read_tree(path: Path) -> Dataset:
    folder = path.parent / "tree"
    folder.mkdir()
    for line in path.read_bytes().splitlines():
        try:
            _grow(folder, *json.loads(line))
        except (OSError, ValueError, TypeError, RecursionError, AttributeError):
            continue  # what no file system or JSON can hold
    return _load(folder, limit=100)


def _grow(folder: Path, name: str, content: str) -> None:
    path = folder / name
    if ".." in path.parts or Path(name).is_absolute():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    kind, _, target = content.partition(" ")
    if kind == "link":
        path.symlink_to(folder / target)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(base64.b64decode(content))


def _cifar_binary() -> list[bytes]:
    return [b"".join(struct.pack("B", label) + _CIFAR[label].tobytes() for label in (0, 1))]


_GOOD_BATCH = _cifar_batch("labels")[2]
_GOOD_TRAIN = _cifar_batch("fine_labels")[2]

TARGETS = [
    Target("npy", ".npy", _npy, _load),
    Target("npz", ".npz", _npz, _load),
    Target("csv", ".csv", _text, _load),
    Target("idx", "-idx3-ubyte", _idx, _load),
    Target("idx-gz", ".gz", lambda: [gzip.compress(seed, mtime=0) for seed in _idx()], _load),
    Target(
        "idx-labels",
        ".gz",
        lambda: [gzip.compress(idx_bytes(_LABELS.astype(np.uint8)), mtime=0)],
        _read_idx_labels,
    ),
    Target("cifar10-batch", "", lambda: _cifar_batch("labels"), _as("data_batch_1")),
    Target("cifar100-batch", "", lambda: _cifar_batch("fine_labels"), _as("train")),
    Target("cifar10-binary", ".bin", _cifar_binary, _as("data_batch_1.bin")),
    Target(
        "cifar10-meta",
        ".meta",
        lambda: _cifar_meta("label_names", 10),
        _as("batches.meta", data_batch_1=_GOOD_BATCH),
    ),
    Target(
        "cifar100-meta",
        "",
        lambda: _cifar_meta("fine_label_names", 100),
        _as("meta", train=_GOOD_TRAIN),
    ),
    Target("png", ".png", _images("PNG", ("1", "L", "LA", "P", "RGB", "RGBA")), _read_image),
    Target("jpeg", ".jpg", _images("JPEG", ("L", "RGB", "CMYK"), progressive=True), _read_image),
    Target("bmp", ".bmp", _images("BMP", ("1", "L", "P", "RGB")), _read_image),
    Target("gif", ".gif", _gifs, _read_image),
    Target("webp", ".webp", _webps, _read_image),
    Target("tiff", ".tiff", _tiffs, _read_image),
    Target("ppm", ".ppm", _portable, _read_image),
    Target("image-tree", ".jsonl", _tree, _read_tree),
]
