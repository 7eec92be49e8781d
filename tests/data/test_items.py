"""Pixels stay bytes in memory; what networks see of them has the bits it always had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.config import DataSettings
from remuda.data import (
    Dataset,
    StoredItems,
    dataset_from_array,
    load_dataset,
    open_shared_dataset,
    share_dataset,
)
from remuda.data.items import CHUNK
from remuda.errors import DataError

# Every value of a byte six times over, at other places in the image.
EVERY_BYTE = (np.arange(6 * 256) % 256).astype(np.uint8).reshape(24, 8, 8)


def as_before(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> torch.Tensor:
    """The conversion of a whole data set, as it was when floats were kept."""
    return torch.from_numpy(pixels.astype(np.float32)).div_(127.5).sub_(1)


def bits(items: torch.Tensor) -> bytes:
    return items.contiguous().numpy().tobytes()


def every_byte() -> Dataset:
    return dataset_from_array(EVERY_BYTE, np.arange(24) % 3)


@given(
    st.integers(1, 40).flatmap(lambda width: st.tuples(st.just(width), st.integers(0, 2**32 - 1))),
    st.lists(st.integers(0, 49), min_size=1, max_size=60),
)
def test_any_items_have_the_bits_of_a_conversion_of_all(
    drawn: tuple[int, int], chosen: list[int]
) -> None:
    width, seed = drawn
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (50, 1, width, 7), dtype=np.uint8)
    items, whole, picked = StoredItems(torch.from_numpy(pixels)), as_before(pixels), chosen
    assert bits(items[torch.tensor(picked)]) == bits(whole[picked])
    first = min(picked)
    assert bits(items[first:]) == bits(whole[first:])
    assert bits(items[first]) == bits(whole[first])
    mask = torch.zeros(50, dtype=torch.bool)
    mask[picked] = True
    assert bits(items[mask]) == bits(whole[mask])
    assert bits(items.take(mask)[:]) == bits(whole[mask])


def test_every_byte_has_the_bits_of_a_conversion_of_all() -> None:
    whole = as_before(EVERY_BYTE[:, None])
    items = every_byte().items
    assert bits(items[:]) == bits(whole)
    for place in range(24):
        assert bits(items[torch.tensor([place])]) == bits(whole[place])
    assert items[:].min() == -1
    assert items[:].max() == 1


def test_chunks_are_all_items_in_order() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2 * CHUNK + 1, 1, 2, 2), dtype=np.uint8)
    parts = list(StoredItems(torch.from_numpy(pixels)).chunks())
    assert [len(part) for part in parts] == [CHUNK, CHUNK, 1]
    assert bits(torch.cat(parts)) == bits(as_before(pixels))


def test_the_fingerprints_are_those_of_runs_that_kept_floats() -> None:
    """Taken from the code that did: with others, no old run could be resumed."""
    dataset = every_byte()
    assert dataset.fingerprint == "1fb8274f397cd25fc2023fa2fa169b8c"
    assert dataset.hold_out(5, 1).fingerprint == "7b47e7c9bbf39bab215b9664250e594f"
    digits = load_dataset(DataSettings(source="digits", limit=2500))
    assert digits.fingerprint == "d206842a66d691a77fed2046823d0881"


def test_pixels_stay_bytes_whatever_is_done_to_the_data_set(tmp_path: Path) -> None:
    dataset = every_byte()
    held = dataset.hold_out(5, seed=1)
    share_dataset(held, tmp_path)
    shared = open_shared_dataset(tmp_path)
    assert (tmp_path / "items").stat().st_size == 19 * 64
    assert (tmp_path / "validation").stat().st_size == 5 * 64
    for found in (dataset, dataset.first(7), dataset.take(torch.tensor([3, 1])), held, shared):
        assert found.items.stored.dtype == torch.uint8
        assert found.items.nbytes == 64 * len(found)
    for found in (held, shared):
        assert found.validation is not None
        assert found.validation.stored.dtype == torch.uint8
    assert bits(shared.items[:]) == bits(held.items[:])


def test_floats_are_stored_as_they_are_and_not_copied() -> None:
    points = StoredItems(torch.rand(9, 2, generator=torch.Generator().manual_seed(1)))
    assert points[:].data_ptr() == points.stored.data_ptr()
    assert torch.equal(points[torch.tensor([8, 0])], points.stored[[8, 0]])
    images = dataset_from_array(EVERY_BYTE.astype(np.float32) / 255)
    assert images.items.stored.dtype == torch.float32


@pytest.mark.parametrize("change", [-1, 1])
def test_shared_data_of_another_size_are_refused(tmp_path: Path, change: int) -> None:
    share_dataset(every_byte(), tmp_path)
    content = (tmp_path / "items").read_bytes()
    (tmp_path / "items").write_bytes((content + b"x")[: len(content) + change])
    with pytest.raises(DataError, match=f"{len(content) + change:,} bytes where"):
        open_shared_dataset(tmp_path)


@pytest.mark.parametrize("validation", [0, 5])
def test_who_opens_shared_data_need_not_read_them_for_the_fingerprint(
    tmp_path: Path, validation: int
) -> None:
    dataset = every_byte()
    if validation:
        dataset = dataset.hold_out(validation, seed=1)
    share_dataset(dataset, tmp_path)
    shared = open_shared_dataset(tmp_path)
    shared.items.stored.zero_()
    assert shared.fingerprint == dataset.fingerprint
    # Of other items it is another one.
    assert shared.first(3).fingerprint == shared.take(torch.arange(3)).fingerprint
    assert shared.first(3).fingerprint != dataset.fingerprint
