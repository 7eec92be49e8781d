from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.config import DataSettings
from remuda.data import Dataset, dataset_from_array, view_indices
from remuda.errors import ConfigError, DataError

SEEDS = st.integers(0, 2**63 - 1)


def _points(count: int) -> Dataset:
    return dataset_from_array(np.arange(count, dtype=float)[:, None])


def _view(dataset: Dataset, cell: int = 0, cells: int = 4, seed: int = 0, **of: Any) -> list[int]:
    indices = view_indices(DataSettings(**of), dataset, seed=seed, cell=cell, cells=cells)
    assert indices.dtype == torch.int64
    return indices.tolist()


def test_all_is_everything_in_order() -> None:
    assert _view(_points(7)) == list(range(7))


@given(st.integers(1, 200), st.floats(0.001, 1), SEEDS)
def test_an_overlapping_share_has_its_size_and_no_item_twice(
    count: int, share: float, seed: int
) -> None:
    view = _view(_points(count), seed=seed, view="share", share=share)
    assert len(view) == len(set(view)) == max(1, int(share * count))
    assert set(view) <= set(range(count))


@given(st.integers(1, 9), st.integers(1, 30), st.floats(0.01, 1), SEEDS)
def test_shares_without_overlap_are_disjoint_and_of_one_size(
    cells: int, per_cell: int, fraction: float, seed: int
) -> None:
    count = cells * per_cell
    dataset = _points(count)
    of: dict[str, Any] = {"view": "share", "share": fraction / cells, "overlap": False}
    views = [_view(dataset, cell, cells, seed, **of) for cell in range(cells)]
    size = max(1, int(fraction / cells * count))
    assert [len(view) for view in views] == [size] * cells
    assert len(set().union(*views)) == size * cells


def test_cells_draw_different_shares_and_each_the_same_one_again() -> None:
    of: dict[str, Any] = {"view": "share", "share": 0.5}
    dataset = _points(100)
    first, second = _view(dataset, 0, **of), _view(dataset, 1, **of)
    assert set(first) != set(second)
    assert _view(dataset, 0, **of) == first
    assert set(_view(dataset, 0, seed=1, **of)) != set(first)


def test_disjoint_shares_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.share=0.5 .* 5 items for each of 4 cells"):
        _view(_points(10), view="share", share=0.5, overlap=False)
    with pytest.raises(ConfigError, match="1 items for each of 4 cells"):
        _view(_points(3), view="share", share=0.25, overlap=False)


def _labelled(*names: str, labels: tuple[int, ...]) -> Dataset:
    points = _points(len(labels))
    return Dataset(points.items, torch.tensor(labels), names, "pets", points.scaling)


@pytest.mark.parametrize("label", [1, "1", "dog"])
def test_a_label_is_given_by_number_or_name(label: int | str) -> None:
    pets = _labelled("cat", "dog", labels=(0, 1, 0, 1))
    assert _view(pets, view="label", label=label) == [1, 3]


def test_a_number_means_what_the_file_says_and_not_a_position() -> None:
    dataset = dataset_from_array(np.zeros((3, 2)), np.array([1, 2, 1]))
    assert _view(dataset, view="label", label=1) == [0, 2]
    with pytest.raises(ConfigError, match=r"data\.label=0 .* allowed: 1, 2"):
        _view(dataset, view="label", label=0)


@pytest.mark.parametrize(
    ("label", "hint"), [("dgo", "; did you mean dog?"), ("whale", ";"), (2, ";"), (-1, ";")]
)
def test_an_unknown_label_is_told_the_names_and_a_near_one(label: int | str, hint: str) -> None:
    pets = _labelled("cat", "dog", labels=(0, 1))
    with pytest.raises(ConfigError) as caught:
        _view(pets, view="label", label=label)
    assert str(caught.value) == f"data.label={label} is not a label of pets{hint} allowed: cat, dog"


def test_a_label_view_needs_labels_and_items() -> None:
    with pytest.raises(ConfigError, match="array has no labels"):
        _view(_points(3), view="label", label=0)
    with pytest.raises(DataError, match=r"no item has data\.label=dog"):
        _view(_labelled("cat", "dog", labels=(0, 0)), view="label", label="dog")


@pytest.mark.parametrize("overlap", [True, False])
def test_the_lists_of_many_cells_take_no_more_memory_than_their_indices(overlap: bool) -> None:
    dataset = dataset_from_array(np.random.default_rng(0).random((1000, 2)))
    settings = DataSettings(source="x", view="share", share=0.01, overlap=overlap)
    views = [view_indices(settings, dataset, seed=1, cell=cell, cells=20) for cell in range(20)]
    kept = {view.untyped_storage().data_ptr(): view.untyped_storage().nbytes() for view in views}
    # Without overlap all are parts of one order of all items.
    assert sum(kept.values()) == (20 * 10 * 8 if overlap else 1000 * 8)
