from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from remuda.data import Dataset, dataset_from_array, open_shared_dataset, share_dataset
from remuda.errors import ConfigError, DataError
from tests.data.samples import load, random_bytes

MODES = {"r15": 15, "mog25": 25, "ring8": 8}


def raw(dataset: Dataset) -> Tensor:
    return dataset.scaling.to_raw(dataset.items[:])


@pytest.mark.parametrize("source", MODES)
def test_every_mode_holds_its_share_of_points_with_its_spread(source: str) -> None:
    dataset = load(source)
    assert dataset.modes is not None
    assert dataset.labels is not None
    centres, spread = dataset.modes.centres, dataset.modes.spread
    assert centres.shape == (MODES[source], 2)
    away = raw(dataset) - centres[dataset.labels]
    count = len(dataset) // MODES[source]
    assert dataset.labels.bincount().tolist() == [count] * MODES[source]
    assert away.std().item() == pytest.approx(spread, rel=0.05)
    assert away.abs().max() < 5 * spread
    assert dataset.items[:].abs().max() <= 1


def test_the_points_have_the_papers_geometry() -> None:
    grid, ring, r15 = load("mog25"), load("ring8"), load("r15")
    assert grid.modes is not None
    assert ring.modes is not None
    assert r15.modes is not None
    assert (len(grid), len(r15)) == (2500, 600)
    assert sorted(set(grid.modes.centres.flatten().tolist())) == [-4, -2, 0, 2, 4]
    assert grid.modes.spread == 0.05
    torch.testing.assert_close(ring.modes.centres.norm(dim=1), torch.full((8,), 2.0))
    radii = (r15.modes.centres - 10).norm(dim=1).sort().values
    torch.testing.assert_close(
        radii, torch.tensor([0.0] + [2.05] * 7 + [6.4] * 7), atol=1e-5, rtol=0
    )
    assert r15.name == "r15-drawn"


@pytest.mark.real_data
def test_r15_itself_is_read_from_the_data_folder(real_data: Path) -> None:
    dataset = load("r15", dir=str(real_data))
    drawn = load("r15")
    assert dataset.name == "r15"
    assert len(dataset) == 600
    assert dataset.modes is not None
    assert drawn.modes is not None
    # The geometry that is drawn where the file is not is the real one's.
    assert torch.cdist(dataset.modes.centres, drawn.modes.centres).min(1).values.max() < 0.25
    assert dataset.modes.spread == pytest.approx(drawn.modes.spread, rel=0.05)


def test_r15_in_a_data_folder_is_preferred_to_a_drawn_one(tmp_path: Path) -> None:
    (tmp_path / "R15.txt").write_text("0 0 1\n2 0 1\n10 0 2\n10 4 2\n")
    dataset = load("r15", dir=str(tmp_path))
    assert (dataset.name, len(dataset)) == ("r15", 4)
    assert dataset.modes is not None
    torch.testing.assert_close(dataset.modes.centres, torch.tensor([[1.0, 0.0], [10.0, 2.0]]))
    assert dataset.modes.spread == pytest.approx(math.sqrt((2 + 0 + 0 + 8) / 4))
    (tmp_path / "R15.txt").write_text("0 0\n2 0\n")
    with pytest.raises(DataError, match=r"R15\.txt: not R15"):
        load("r15", dir=str(tmp_path))


def test_the_data_seed_decides_the_points() -> None:
    assert torch.equal(load("mog25", seed=4).items[:], load("mog25", seed=4).items[:])
    assert not torch.equal(load("mog25", seed=4).items[:], load("mog25", seed=5).items[:])


def test_a_limit_of_points_is_a_random_choice_over_all_modes() -> None:
    whole, some, others = load("r15"), load("r15", limit=100), load("r15", limit=100, seed=1)
    assert some.items.shape == (100, 2)
    assert some.labels is not None
    assert (some.labels.bincount(minlength=15) > 0).all()
    assert torch.equal(some.items[:], load("r15", limit=100).items[:])
    assert not torch.equal(some.items[:], others.items[:])
    assert some.scaling == whole.scaling
    assert (some.items[:][:, None] == whole.items[:]).all(2).any(1).all()


def test_the_test_split_of_points_is_refused() -> None:
    with pytest.raises(
        DataError,
        match="ring8: has only the split train; digits, mnist, cifar10, cifar100 have both",
    ):
        load("ring8", split="test")


# ---------------------------------------------------------------------------------- validation


def test_held_out_items_are_not_trained_on_whatever_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=random_bytes(300, 5, 5), y=np.arange(300) % 7)
    whole, held = load(path), load(path, validation=100)
    assert held.validation is not None
    assert len(held) + len(held.validation) == len(whole)
    both = torch.cat((held.items[:], held.validation[:])).flatten(1)
    assert torch.equal(both.sum(1).sort().values, whole.items[:].flatten(1).sum(1).sort().values)
    few = load(path, validation=100, limit=50)
    assert few.validation is not None
    assert torch.equal(few.validation[:], held.validation[:])
    assert torch.equal(few.items[:], held.items[:50])
    assert held.labels is not None
    assert len(held.labels) == len(held)


def test_more_held_out_items_than_there_are_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    with pytest.raises(ConfigError, match=r"data\.validation=2: a\.csv has 2 items; allowed: 0 to"):
        load(tmp_path / "a.csv", validation=2)
    with pytest.raises(ValueError, match=r"data\.validation=5 holds out items of all labels"):
        load("digits", validation=5, view="label", label=3)


def test_held_out_items_are_part_of_the_fingerprint() -> None:
    dataset = dataset_from_array(random_bytes(20, 5, 5))
    assert dataset.hold_out(5, 0).fingerprint != dataset.hold_out(5, 1).fingerprint


def test_modes_and_held_out_items_are_shared_between_processes(tmp_path: Path) -> None:
    dataset = load("ring8", validation=10, limit=50)
    share_dataset(dataset, tmp_path)
    shared = open_shared_dataset(tmp_path)
    assert shared.fingerprint == dataset.fingerprint
    assert shared.modes is not None
    assert dataset.modes is not None
    assert torch.equal(shared.modes.centres, dataset.modes.centres)
    assert shared.modes.spread == dataset.modes.spread
