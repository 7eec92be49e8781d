"""CIFAR-10 as lossless mosaics, unpacked once into the cache as the published binary files.

A mosaic `data_batch_1.webp` is 100 by 100 tiles of 32 pixels, row by row; `index.tsv.gz` says which
label each tile has. A third of the size of the published files, and nothing in it is a pickle.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from remuda.data.formats.cifar_pickle import read_pickle
from remuda.data.places import cache_dir
from remuda.data.reading import read_bytes, reading
from remuda.errors import DataError

INDEX = "index.tsv.gz"
TILES = 100  # along either side of a mosaic
SIDE = 32
# Of the binary files that the mosaics become, of which the pickles have the published checksums.
SHA256 = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_log = logging.getLogger(__name__)


def packed_names(folder: Path) -> list[str]:
    """The batches of which the folder holds mosaics, [] if it is no packed CIFAR-10."""
    with reading(folder):
        if not (folder / INDEX).is_file():
            return []
        return sorted(path.stem for path in folder.glob("*_batch*.webp"))


def unpacked(folder: Path) -> Path:
    """The folder in the cache with the binary files of a packed one; made where it is missing.

    It appears whole and under its final name, so several processes may ask at the same time.
    """
    labels = _labels(folder / INDEX)
    # By content: a changed index, a batch added later, or another folder of the same name, is
    # another cache entry.
    names = packed_names(folder)
    key = hashlib.sha256(read_bytes(folder / INDEX) + ",".join(names).encode()).hexdigest()[:16]
    target = cache_dir() / f"cifar10-{key}"
    if target.is_dir():
        return target
    _log.info("unpacking %s into %s", folder, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror or error}") from None
    try:
        for name in names:
            _check(folder, name, content := _records(folder, name, labels))
            (unfinished / f"{name}.bin").write_bytes(content)
        (unfinished / "batches.meta.txt").write_text(_names(folder))
        os.chmod(unfinished, 0o755)  # noqa: PTH101 - mkdtemp's are for the owner alone
        unfinished.rename(target)
    except OSError as error:
        # Somebody else was quicker: what they made is what we would have made.
        if not target.is_dir():
            raise DataError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _labels(index: Path) -> dict[str, npt.NDArray[np.uint8]]:
    found: dict[str, list[int]] = {}
    with reading(index), gzip.open(index, "rt", encoding="utf-8") as lines:
        for line in lines:
            batch, label, _ = line.split("\t", 2)
            found.setdefault(batch, []).append(int(label))
        return {batch: np.asarray(labels, np.uint8) for batch, labels in found.items()}


def _records(folder: Path, name: str, labels: Mapping[str, npt.NDArray[np.uint8]]) -> bytes:
    """One label byte and 3,072 pixels for each image, as the published binary files have them."""
    path = folder / f"{name}.webp"
    with reading(path), Image.open(path) as mosaic:
        if mosaic.size != (TILES * SIDE, TILES * SIDE):
            raise DataError(f"{path}: {mosaic.size} pixels; expected {TILES * SIDE} each way")
        pixels = np.asarray(mosaic.convert("RGB"))
    tiles = pixels.reshape(TILES, SIDE, TILES, SIDE, 3).transpose(0, 2, 4, 1, 3)
    own: Sequence[int] | npt.NDArray[np.uint8] = labels.get(name, ())
    if len(own) != TILES * TILES:
        raise DataError(f"{folder / INDEX}: {len(own)} labels of {name}; expected {TILES * TILES}")
    columns = (np.asarray(own, np.uint8)[:, None], tiles.reshape(TILES * TILES, -1))
    return np.concatenate(columns, axis=1).tobytes()


def _check(folder: Path, name: str, content: bytes) -> None:
    found = hashlib.sha256(content).hexdigest()
    if SHA256.get(name) != found:
        raise DataError(f"{folder / name}.webp: damaged: its images are not CIFAR-10's {name}")


def _names(folder: Path) -> str:
    path = folder / "batches.meta"
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    names = read_pickle(path).get("label_names", ())
    return "".join(f"{name}\n" for name in names)
