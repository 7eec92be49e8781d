from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from remuda.data import Dataset, dataset_from_array, open_shared_dataset, share_dataset
from tests.data.samples import load, random_bytes


def test_equal_data_have_equal_fingerprints_and_any_change_changes_them() -> None:
    images = random_bytes(4, 5, 5)
    labels = np.array([0, 1, 0, 1])
    original = dataset_from_array(images, labels).fingerprint
    assert dataset_from_array(images.copy(), labels, name="other").fingerprint == original
    assert dataset_from_array(images).fingerprint != original
    assert dataset_from_array(images, labels[::-1]).fingerprint != original
    images[0, 0, 0] ^= 1
    assert dataset_from_array(images, labels).fingerprint != original


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


def test_digits_are_balanced_labelled_shuffled_images_in_range(digits: Dataset) -> None:
    assert digits.items.shape == (10_000, 1, 28, 28)
    assert digits.items[:].dtype == torch.float32
    assert digits.items.stored.is_contiguous()
    assert digits.items[:].min() == -1
    assert digits.items[:].max() == 1
    assert digits.labels is not None
    assert digits.labels.bincount().tolist() == [1000] * 10
    assert digits.labels[:1000].bincount(minlength=10).min() > 50
    assert digits.label_names == tuple("0123456789")
    assert (digits.name, digits.shape, digits.is_images) == ("digits", (1, 28, 28), True)


def test_limit_keeps_the_first_items(digits: Dataset) -> None:
    some = load("digits", limit=7)
    assert len(some) == 7
    assert torch.equal(some.items[:], digits.items[:7])
    assert some.labels is not None
    assert digits.labels is not None
    assert torch.equal(some.labels, digits.labels[:7])


def test_a_limited_data_set_lets_go_of_the_rest() -> None:
    some = dataset_from_array(random_bytes(100, 5, 5)).first(3)
    assert some.items.stored.untyped_storage().nbytes() == 3 * 25


def test_held_out_items_keep_their_labels_also_where_they_are_shared(
    digits: Dataset, tmp_path: Path
) -> None:
    rest = digits.first(100).hold_out(30, seed=1)
    assert rest.validation is not None
    assert rest.validation_labels is not None
    assert digits.labels is not None
    for item, label in zip(rest.validation[:5], rest.validation_labels[:5], strict=True):
        place = (digits.items[:100] == item).flatten(1).all(1).nonzero().item()
        assert digits.labels[int(place)] == label
    share_dataset(rest, tmp_path)
    shared = open_shared_dataset(tmp_path)
    assert shared.validation_labels is not None
    assert torch.equal(shared.validation_labels, rest.validation_labels)
