from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from remuda.data.formats.idx import parse_idx
from remuda.errors import DataError
from tests.data.samples import Bytes, idx_bytes, load, random_bytes

IMAGES = idx_bytes(random_bytes(4, 5, 6))
LABELS = idx_bytes(np.array([3, 7, 3, 9], dtype=np.uint8))


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=3, max_dims=3, max_side=6)))
def test_what_is_written_is_read(array: Bytes) -> None:
    assert np.array_equal(parse_idx(idx_bytes(array), "memory", 3), array)


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_but_a_data_error(data: bytes) -> None:
    for dimensions in (1, 3):
        with suppress(DataError):
            parse_idx(data, "memory", dimensions)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("compress_labels", [False, True])
def test_labels_are_found_beside_the_images(
    tmp_path: Path, compress: bool, compress_labels: bool
) -> None:
    images = tmp_path / f"my-images-idx3-ubyte{'.gz' if compress else ''}"
    labels = tmp_path / f"my-labels-idx1-ubyte{'.gz' if compress_labels else ''}"
    images.write_bytes(gzip.compress(IMAGES, mtime=0) if compress else IMAGES)
    labels.write_bytes(gzip.compress(LABELS, mtime=0) if compress_labels else LABELS)
    dataset = load(images)
    assert dataset.shape == (1, 5, 6)
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [0, 1, 0, 2]
    assert dataset.label_names == ("3", "7", "9")


def test_images_under_any_name_need_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "pictures"
    path.write_bytes(IMAGES)
    dataset = load(path)
    assert dataset.labels is None
    assert dataset.label_names == ()
    assert np.allclose(dataset.items[:][:, 0] * 0.5 + 0.5, random_bytes(4, 5, 6) / 255, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a-idx3-ubyte", b"", "empty"),
        ("a-idx3-ubyte.gz", b"", "empty"),
        ("a-idx3-ubyte.gz", gzip.compress(b"", mtime=0), "empty"),
        ("a-idx3-ubyte.gz", gzip.compress(IMAGES[:-1], mtime=0), "truncated"),
        ("a-idx3-ubyte.gz", IMAGES, "not a gzip file"),
        ("a-idx3-ubyte.gz", b"<html>not found</html>", "not a gzip file"),
        ("a-idx3-ubyte.gz", gzip.compress(IMAGES, mtime=0)[:-9], "damaged"),
        ("a-idx3-ubyte.gz", gzip.compress(IMAGES, mtime=0)[:12] + b"\xff" * 30, "damaged"),
        ("a-idx3-ubyte", b"hello, world", "not an idx file"),
        ("a-idx3-ubyte", b"\0\0\x08", "not an idx file"),
        ("a-idx3-ubyte", LABELS, r"holds labels \(idx1\); expected images"),
        ("a-idx3-ubyte", b"\0\0\x08\x02" + bytes(8), "2-dimensional"),
        ("a-idx3-ubyte", b"\0\0\x0d\x03" + bytes(12), "type 0x0d"),
        ("a-idx3-ubyte", IMAGES[:10], "truncated within the header"),
        ("a-idx3-ubyte", IMAGES[:-1], "truncated"),
        ("a-idx3-ubyte", IMAGES + b"\0", "too long"),
        ("a-idx3-ubyte", idx_bytes(random_bytes(0, 5, 6)), "no items"),
        ("a-idx3-ubyte", b"\0\0\x08\x03" + b"\xff" * 12, "truncated"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        load(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (idx_bytes(np.zeros(3, dtype=np.uint8)), "3 labels for 4 items"),
        (IMAGES, r"holds images \(idx3\); expected labels"),
        (b"", "empty"),
    ],
)
def test_wrong_labels_are_named(tmp_path: Path, labels: bytes, says: str) -> None:
    (tmp_path / "a-images-idx3-ubyte").write_bytes(IMAGES)
    (tmp_path / "a-labels-idx1-ubyte").write_bytes(labels)
    with pytest.raises(DataError, match=f"a-labels-idx1-ubyte: .*{says}"):
        load(tmp_path / "a-images-idx3-ubyte")
