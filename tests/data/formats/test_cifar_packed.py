from __future__ import annotations

import gzip
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remuda.data.formats import cifar_packed
from remuda.data.places import cache_dir
from remuda.errors import DataError
from tests.data.samples import load, write_pickle

SIDE, BATCHES = 2, ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
NAMES = list("abcdefghij")
ONE_LABEL = gzip.compress(b"data_batch_1\t3\tx\n", mtime=0)


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A packed set of four images per batch instead of ten thousand."""
    monkeypatch.setattr(cifar_packed, "TILES", SIDE)
    folder = tmp_path / "data" / "cifar-10"
    folder.mkdir(parents=True)
    rng, sums, index = np.random.default_rng(0), {}, []
    for name in (*BATCHES, "test_batch"):
        pixels = rng.integers(0, 256, (SIDE * SIDE, 3, 32, 32), dtype=np.uint8)
        tiles = pixels.reshape(SIDE, SIDE, 3, 32, 32).transpose(0, 3, 1, 4, 2)
        image = Image.fromarray(tiles.reshape(SIDE * 32, SIDE * 32, 3))
        image.save(folder / f"{name}.webp", lossless=True)
        labels = rng.integers(0, 10, SIDE * SIDE)
        index += [f"{name}\t{label}\tfile\n" for label in labels]
        records = [
            bytes([label]) + item.tobytes() for label, item in zip(labels, pixels, strict=True)
        ]
        sums[name] = hashlib.sha256(b"".join(records)).hexdigest()
    (folder / "index.tsv.gz").write_bytes(gzip.compress("".join(index).encode(), mtime=0))
    write_pickle(folder / "batches.meta", {"label_names": NAMES})
    monkeypatch.setattr(cifar_packed, "SHA256", sums)
    return folder


def test_images_labels_and_names_come_out_of_the_mosaics(packed: Path) -> None:
    train = load("cifar10", dir=str(packed.parent))
    assert train.items.shape == (20, 3, 32, 32)
    assert train.label_names == tuple(NAMES)
    mosaic = np.asarray(Image.open(packed / "data_batch_1.webp"))
    second = mosaic[:32, 32:64].transpose(2, 0, 1)  # tiles go along the rows
    assert np.array_equal(((train.items[1] + 1) * 127.5).round().numpy(), second)
    assert len(load("cifar10", dir=str(packed), split="test")) == 4


def test_unpacking_happens_once(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("cifar10", dir=str(packed))
    monkeypatch.setattr(cifar_packed, "_records", None)  # would fail if it were asked again
    assert load("cifar10", dir=str(packed)).fingerprint == first.fingerprint


def test_a_batch_that_was_missing_is_found_when_it_comes(packed: Path) -> None:
    late = (packed / "data_batch_3.webp").rename(packed / "later")
    with pytest.raises(DataError, match="data_batch_3"):
        load("cifar10", dir=str(packed))
    late.rename(packed / "data_batch_3.webp")
    assert len(load("cifar10", dir=str(packed))) == 20


def test_many_at_once_find_one_whole_folder_and_leave_nothing_else(packed: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: cifar_packed.unpacked(packed), range(8)))
    assert list(cache_dir().iterdir()) == list(found)
    assert len(list(found.pop().iterdir())) == 7


def test_a_changed_mosaic_is_refused_and_nothing_is_cached(packed: Path) -> None:
    Image.new("RGB", (SIDE * 32, SIDE * 32)).save(packed / "data_batch_3.webp", lossless=True)
    with pytest.raises(DataError, match=r"data_batch_3.webp: damaged: its images are not CIFAR-10"):
        load("cifar10", dir=str(packed))
    assert list(cache_dir().iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("data_batch_1.webp", b"no picture", "data_batch_1.webp: damaged or of another kind"),
        ("index.tsv.gz", b"no gzip", "index.tsv.gz: damaged or of another kind"),
        ("index.tsv.gz", ONE_LABEL, "1 labels of data_batch_1; expected 4"),
        ("batches.meta", b"\x80\x02cos\nsystem\n(S'x'\ntR.", "asks for os.system"),
        ("batches.meta", None, "batches.meta: no such file"),
    ],
)
def test_damaged_files_are_named(packed: Path, name: str, content: bytes | None, says: str) -> None:
    (packed / name).unlink()
    if content is not None:
        (packed / name).write_bytes(content)
    with pytest.raises(DataError, match=says):
        load("cifar10", dir=str(packed))


def test_a_mosaic_of_another_size_is_refused(packed: Path) -> None:
    Image.new("RGB", (64, 32)).save(packed / "data_batch_2.webp", lossless=True)
    with pytest.raises(DataError, match=r"data_batch_2.webp: \(64, 32\) pixels; expected 64"):
        load("cifar10", dir=str(packed))


@pytest.mark.slow
@pytest.mark.real_data
def test_the_real_mosaics_are_the_official_images(real_data: Path) -> None:
    if not (real_data / "cifar-10" / "index.tsv.gz").is_file():
        pytest.skip("REMUDA_DATA has no packed cifar-10")
    train = load("cifar10", dir=str(real_data))
    assert train.items.shape == (50_000, 3, 32, 32)
    assert train.labels is not None
    assert train.labels.bincount().tolist() == [5000] * 10
    assert [train.label_names[label] for label in train.labels[:2]] == ["frog", "truck"]
