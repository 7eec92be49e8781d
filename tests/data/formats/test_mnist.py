from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from remuda.config import DataSettings
from remuda.data.formats import mnist
from remuda.data.formats.mnist import load_mnist
from remuda.errors import DataError
from tests.data.samples import idx_bytes, load, random_bytes, write_mnist

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
MNIST = DataSettings.model_validate({"source": "mnist"})


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mirror on this machine whose training split is the official one, as far as MD5s tell."""
    folder = tmp_path / "served"
    write_mnist(folder)
    for name in (IMAGES, LABELS):
        monkeypatch.setitem(mnist.MD5, name, hashlib.md5((folder / name).read_bytes()).hexdigest())
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("sub", [".", "mnist"])
@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("by_environment", [True, False])
def test_files_are_found_in_the_data_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sub: str,
    compress: bool,
    by_environment: bool,
) -> None:
    folder = tmp_path / "data"
    images = write_mnist(folder / sub, compress=compress)
    if by_environment:
        monkeypatch.setenv("REMUDA_DATA", str(folder))
    dataset = load("mnist", dir=None if by_environment else str(folder))
    assert np.allclose(dataset.items[:][:, 0] * 0.5 + 0.5, images / 255, atol=1e-6)
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [*range(10), 0, 1]
    assert dataset.label_names == tuple("0123456789")
    assert dataset.name == "mnist"


def test_the_configured_folder_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "first", count=3)
    write_mnist(tmp_path / "second", count=5)
    monkeypatch.setenv("REMUDA_DATA", str(tmp_path / "second"))
    assert len(load("mnist", dir=str(tmp_path / "first"))) == 3
    assert len(load("mnist")) == 5


def test_only_the_wanted_split_is_needed(tmp_path: Path) -> None:
    write_mnist(tmp_path, part="t10k", count=4)
    assert len(load("mnist", dir=str(tmp_path), split="test")) == 4


def test_a_download_is_kept_and_used_again(mirror: str) -> None:
    first = load_mnist(MNIST, [mirror])
    again = load_mnist(MNIST, ["http://127.0.0.1:1"])
    assert len(first) == 12
    assert torch.equal(first.items[:], again.items[:])


def test_the_next_mirror_is_tried_when_one_fails(mirror: str) -> None:
    assert len(load_mnist(MNIST, ["http://127.0.0.1:1", f"{mirror}/none", mirror])) == 12


def test_a_damaged_cached_file_is_deleted_and_downloaded_again(
    tmp_path: Path, mirror: str, caplog: pytest.LogCaptureFixture
) -> None:
    cached = tmp_path / "cache" / "remuda" / "mnist" / IMAGES
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"half a fi")
    assert len(load_mnist(MNIST, [mirror])) == 12
    assert f"{cached} was damaged" in caplog.text
    assert hashlib.md5(cached.read_bytes()).hexdigest() == mnist.MD5[IMAGES]


def test_a_damaged_cached_file_does_not_stay_when_offline(tmp_path: Path) -> None:
    cached = tmp_path / "cache" / "remuda" / "mnist" / IMAGES
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"half a fi")
    with pytest.raises(DataError, match=r"was damaged .* has been deleted"):
        load_mnist(MNIST, [])
    assert not cached.exists()


def test_a_download_with_a_wrong_checksum_leaves_nothing(
    tmp_path: Path, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(mnist.MD5, IMAGES, "0" * 32)
    with pytest.raises(DataError, match=rf"{mirror}/{IMAGES}: wrong checksum"):
        load_mnist(MNIST, [mirror])
    assert list((tmp_path / "cache" / "remuda" / "mnist").iterdir()) == []


def test_a_download_that_does_not_end_is_given_up(
    tmp_path: Path, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.data.fetch._MOST_BYTES", 1000)
    with pytest.raises(DataError, match=rf"{mirror}/{IMAGES}: more than 1,000 bytes"):
        load_mnist(MNIST, [mirror])
    assert list((tmp_path / "cache" / "remuda" / "mnist").iterdir()) == []


@pytest.mark.parametrize("split", ["train", "test"])
def test_offline_says_which_files_to_put_where(split: str) -> None:
    settings = DataSettings.model_validate({"source": "mnist", "split": split})
    part = "train" if split == "train" else "t10k"
    with pytest.raises(DataError) as caught:
        load_mnist(settings, ["http://127.0.0.1:1"])
    said = str(caught.value)
    assert f"{part}-images-idx3-ubyte.gz and {part}-labels-idx1-ubyte.gz" in said
    assert "--data-dir or REMUDA_DATA" in said


def test_an_unwritable_cache_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DataError, match="could not be downloaded"):
        load_mnist(MNIST, [mirror])


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        (IMAGES, gzip.compress(idx_bytes(random_bytes(12, 32, 32)), mtime=0), r"\(32, 32\)"),
        (
            IMAGES,
            gzip.compress(idx_bytes(random_bytes(11, 28, 28)), mtime=0),
            "12 labels for 11 items",
        ),
        (
            LABELS,
            gzip.compress(idx_bytes(np.full(12, 10, np.uint8)), mtime=0),
            "label 10 of item 0",
        ),
        (LABELS, b"", "empty"),
        (IMAGES, b"<html>", "not a gzip file"),
    ],
)
def test_wrong_files_in_the_data_folder_are_named(
    tmp_path: Path, file: str, content: bytes, says: str
) -> None:
    write_mnist(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=f"{tmp_path}.*{says}"):
        load("mnist", dir=str(tmp_path))


@pytest.mark.slow
@pytest.mark.real_data
def test_the_real_files_have_the_official_checksums_and_sizes(real_data: Path) -> None:
    for name, md5 in mnist.MD5.items():
        assert hashlib.md5((real_data / "mnist" / name).read_bytes()).hexdigest() == md5
    test = load("mnist", dir=str(real_data), split="test")
    assert test.items.shape == (10_000, 1, 28, 28)
    assert test.labels is not None
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert len(load("mnist", dir=str(real_data), limit=60_001)) == 60_000
