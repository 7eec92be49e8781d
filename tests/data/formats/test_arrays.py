from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from remuda.data import Scaling, dataset_from_array
from remuda.errors import DataError
from tests.data.samples import load, random_bytes

Array = npt.NDArray[Any]
UNIT = np.random.default_rng(0).random((6, 4, 5))


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (random_bytes(6, 4, 5), (1, 4, 5)),
        (random_bytes(6, 1, 4, 5), (1, 4, 5)),
        (random_bytes(6, 3, 4, 5), (3, 4, 5)),
        (random_bytes(6, 4, 5, 1), (1, 4, 5)),
        (random_bytes(6, 4, 5, 3), (3, 4, 5)),
    ],
)
def test_channels_come_first_whatever_the_layout(array: Array, shape: tuple[int, ...]) -> None:
    dataset = dataset_from_array(array)
    assert dataset.shape == shape
    assert dataset.is_images
    assert dataset.items.stored.is_contiguous()


@pytest.mark.parametrize(
    ("array", "raw"),
    [
        (random_bytes(6, 4, 5), random_bytes(6, 4, 5) / 255),
        (UNIT, UNIT),
        (UNIT.astype(np.float32), UNIT),
        (UNIT * 2 - 1, UNIT),
    ],
    ids=["bytes", "unit", "unit32", "symmetric"],
)
def test_the_scaling_gives_back_raw_pixels(array: Array, raw: Array) -> None:
    dataset = dataset_from_array(array)
    restored = dataset.scaling.to_raw(dataset.items[:])
    assert np.allclose(restored[:, 0], raw, atol=1e-6)
    assert dataset.items[:].dtype == torch.float32


def test_the_extremes_of_bytes_become_exactly_the_ends_of_the_range() -> None:
    ends = np.array([0, 255], dtype=np.uint8).reshape(2, 1, 1)
    assert dataset_from_array(ends).items[:].flatten().tolist() == [-1.0, 1.0]


def test_the_callers_array_is_neither_changed_nor_shared() -> None:
    array = (UNIT * 2 - 1).astype(np.float32)
    before = array.copy()
    dataset = dataset_from_array(array)
    dataset.items.stored.zero_()
    assert np.array_equal(array, before)


_POINTS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(-1e6, 1e6, width=32),
)


@given(_POINTS)
def test_points_fill_the_range_and_come_back(points: Array) -> None:
    dataset = dataset_from_array(points)
    assert dataset.items[:].abs().max() <= 1
    restored = dataset.scaling.to_raw(dataset.items[:].double()).numpy()
    smallest = float(np.finfo(np.float32).tiny)  # scales are float32 tensors
    assert np.allclose(
        restored, points, rtol=1e-5, atol=1e-5 * max(dataset.scaling.scale) + smallest
    )
    for column in range(points.shape[1]):
        if np.ptp(points[:, column]) > 1e-3:
            assert dataset.items[:][:, column].min() == -1
            assert dataset.items[:][:, column].max() == 1


def test_a_constant_coordinate_becomes_zero_and_comes_back() -> None:
    dataset = dataset_from_array(np.array([[1.0, 7.0], [3.0, 7.0]]))
    assert dataset.items[:].tolist() == [[-1, 0], [1, 0]]
    assert dataset.scaling == Scaling((1, 1), (2, 7))


WRONG_ARRAYS: list[tuple[Array, str]] = [
    (np.zeros((0, 4, 5), np.uint8), "no items"),
    (np.zeros((2, 0), np.float32), "no items"),
    (np.array(3.0), r"shape \(\)|no items"),
    (np.zeros(5), r"shape \(5,\)"),
    (np.zeros((2, 2, 4, 5)), r"shape \(2, 2, 4, 5\)"),
    (np.zeros((2, 1, 1, 4, 5)), "shape"),
    (np.zeros((2, 65)), "65 coordinates; allowed: at most 64"),
    (np.full((2, 4, 5), np.nan), r"NaN or infinity, first at index \[0, 0, 0\]"),
    (np.array([[1.0, np.inf]]), "NaN"),
    (UNIT * 255, "from 0.* to 2.*; allowed"),
    (UNIT - 1.5, "from -1.* to -0.*; allowed"),
    (np.full((2, 4, 5), 255, np.int64), "int64 pixels from 255 to 255"),
    (np.full((2, 4, 5), "a"), "expected numbers"),
    (np.zeros((2, 4, 5), complex), "expected numbers"),
]


@pytest.mark.parametrize(("array", "says"), WRONG_ARRAYS)
def test_an_unusable_array_is_named_with_what_is_wrong(array: Array, says: str) -> None:
    with pytest.raises(DataError, match=f"^mine: .*({says})"):
        dataset_from_array(array, name="mine")


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.zeros(5, int), "5 labels for 6 items"),
        (np.zeros((6, 2), int), "shape"),
        (np.zeros(6), "expected integers"),
        (np.array([0, 0, -1, 0, 0, 0]), "label -1 of item 2"),
    ],
)
def test_unusable_labels_are_named_with_what_is_wrong(labels: Array, says: str) -> None:
    with pytest.raises(DataError, match=f"^mine: .*{says}"):
        dataset_from_array(random_bytes(6, 4, 5), labels, name="mine")


@pytest.mark.parametrize("key", ["x", "X", "images", "data", "arr_0"])
@pytest.mark.parametrize("label_key", [None, "y", "labels"])
def test_npz_is_read_under_the_usual_keys(tmp_path: Path, key: str, label_key: str | None) -> None:
    arrays = {key: random_bytes(6, 4, 5)}
    if label_key is not None:
        arrays[label_key] = np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8)
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]  # the stubs mistake keys for options
    dataset = load(path, limit=4)
    assert dataset.items.shape == (4, 1, 4, 5)
    assert (None if dataset.labels is None else dataset.labels.tolist()) == (
        None if label_key is None else [0, 1, 2, 0]
    )


def test_labels_may_be_words(tmp_path: Path) -> None:
    images = np.zeros((4, 8, 8), np.uint8)
    np.savez(tmp_path / "named.npz", x=images, y=np.array(["dog", "cat", "dog", "ant"]))
    found = load(str(tmp_path / "named.npz"))
    assert found.label_names == ("ant", "cat", "dog")
    assert found.labels is not None
    assert found.labels.tolist() == [2, 1, 2, 0]


def test_npy_is_read_whatever_its_name(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", UNIT)
    (tmp_path / "a.npy").rename(tmp_path / "b.array")
    assert load(tmp_path / "b.array").shape == (1, 4, 5)


def _npy(array: Array) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _npz(**arrays: Array) -> bytes:
    import io

    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stubs mistake keys for options
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.npy", b"", "empty"),
        ("a.npy", b"hello", "not an npy file"),
        ("a.npy", _npy(UNIT)[:-1], "truncated"),
        ("a.npy", _npy(UNIT)[:20], "not an array of numbers"),
        ("a.npy", _npy(np.array([{}])), "type .O; expected numbers"),
        ("a.npy", _npy(np.full((2, 3, 3), np.nan)), "NaN"),
        ("a.npy", _npy(UNIT * 9), "allowed: uint8"),
        ("a.npz", b"", "empty"),
        ("a.npz", b"hello", "not an npz file"),
        ("a.npz", _npz(x=UNIT)[:-30], "damaged"),
        ("a.npz", _npz(x=np.array([{}])), "type .O; expected numbers"),
        ("a.npz", _npz(z=UNIT, w=UNIT), "holds z, w; expected the items under one of x, X"),
        ("a.npz", _npz(x=UNIT, y=np.zeros(5, int)), "5 labels for 6 items"),
        ("a.npz", _npz(x=np.zeros((0, 3))), "no items"),
        ("a.csv", b"", "empty"),
        ("a.csv", b"\n\n# nothing\n", "no points"),
        ("a.csv", b"x,y\n", "no points"),
        ("a.csv", b"1,2\n3\n", "line 2 has 1 columns; expected 2"),
        ("a.csv", b"x,y\n1,2\n3,four\n", "line 3 holds 'four'"),
        ("a.txt", b"1 2\n3 nan\n", "NaN"),
        ("a.txt", b"1.5 2.5 1\n3.5 4.5 -1\n", "label -1 of item 1"),
        ("a.txt", b"1.5 2.5 99999999999999999999\n", "too large"),
        ("a.txt", b"\xff\xfe1\xff", "damaged"),
        ("a.pdf", b"%PDF-1.7", "not a known format; allowed: .npz, .npy"),
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
    ("text", "shape", "labels"),
    [
        ("0 0 1\n2.5 4 2\n5 8 1\n", (2,), [0, 1, 0]),
        ("x, y, class\n0,0,1\n2.5,4,2\n5,8,1\n", (2,), [0, 1, 0]),
        ("0,0\n2.5,4\n\n5,8\n", (2,), None),
        ("0 0 1.0\n2.5 4 2\n5 8 1\n", (3,), None),
        ("# four\n0\t0\t1\t7\n1\t2\t3\t4\n5\t6\t7\t8\n", (4,), None),
    ],
)
def test_points_are_read_from_text(
    tmp_path: Path, text: str, shape: tuple[int, ...], labels: list[int] | None
) -> None:
    path = tmp_path / "points.txt"
    path.write_text(text)
    dataset = load(path)
    assert len(dataset) == 3
    assert dataset.shape == shape
    assert not dataset.is_images
    assert (None if dataset.labels is None else dataset.labels.tolist()) == labels
    if labels is not None:
        assert dataset.label_names == ("1", "2")


@pytest.mark.real_data
def test_r15_has_fifteen_clusters_under_their_own_numbers(real_data: Path) -> None:
    dataset = load(real_data / "r15" / "R15.txt")
    assert dataset.items.shape == (600, 2)
    assert dataset.labels is not None
    assert dataset.labels.bincount().tolist() == [40] * 15
    assert dataset.label_names == tuple(str(number) for number in range(1, 16))
