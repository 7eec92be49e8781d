"""The GANs of a run as they are asked: their weights, whom they met, and items they never saw."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from remuda.config import DataSettings, load_config
from remuda.data import load_dataset
from remuda.errors import ConfigError, DamagedError, StoreError
from remuda.gan.networks import draw_noise
from remuda.methods import build_method, linked_cells
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.population import held_out, load_population
from remuda.runs.store import RunFolder
from tests.populations import points_run
from tests.tiny_runs import tiny, write_data


def test_members_are_those_of_the_last_checkpoint(alone: Path) -> None:
    folder = RunFolder.open(alone)
    found = load_population(alone)
    parcels = folder.load_checkpoint(folder.checkpoints()[-1])
    assert found.round == 2
    assert [member.cell for member in found.members] == [0, 1]
    for member in found.members:
        assert not member.generator.training
        assert not member.discriminator.training
        for role, network in (
            ("generator", member.generator),
            ("discriminator", member.discriminator),
        ):
            for name, value in network.state_dict().items():
                assert torch.equal(value, parcels[member.cell].tensors[f"{role}.network.{name}"])


def test_isolated_gans_met_only_their_own_discriminator(alone: Path) -> None:
    found = load_population(alone)
    own = RunFolder.open(alone).id()
    assert found.id == own
    assert [member.lineage for member in found.members] == [f"{own}/0", f"{own}/1"]
    assert [member.met for member in found.members] == [{f"{own}/0"}, {f"{own}/1"}]
    assert found.is_isolated


def test_swapped_discriminators_keep_their_lineage(swapped: Path) -> None:
    found = load_population(swapped)
    own = found.id
    assert [member.lineage for member in found.members] == [f"{own}/1", f"{own}/0"]
    assert all(member.met == {f"{own}/0", f"{own}/1"} for member in found.members)
    assert not found.is_isolated


def test_gans_that_never_swap_are_isolated(runs: Path) -> None:
    assert load_population(points_run(runs / "still", "method=gap", "method.swap=none")).is_isolated


def test_in_a_grid_whoever_is_connected_has_met(runs: Path) -> None:
    path = points_run(runs / "cells", "method=cellular", "method.tournament_size=1", "rounds=1")
    found = load_population(path)
    assert all(member.met == {f"{found.id}/0", f"{found.id}/1"} for member in found.members)
    assert not found.is_isolated


def test_fine_tuned_discriminators_are_known_by_where_they_came_from(
    alone: Path, runs: Path
) -> None:
    more = ("method=cellular", "method.selection=false", f"init_from=[{alone}]", "rounds=1")
    path = points_run(runs / "tuned", *more)
    found, first = load_population(path), RunFolder.open(alone).id()
    assert {member.lineage for member in found.members} == {f"{first}/0", f"{first}/1"}
    assert all(member.met >= {f"{first}/0", f"{first}/1"} for member in found.members)


def test_a_single_gan_that_was_fine_tuned_counts_as_one_trained_alone(
    swapped: Path, runs: Path
) -> None:
    more = (f"init_from=['{swapped}:0']", "grid=1x1", "rounds=1")
    found = load_population(points_run(runs / "tuned-alone", "method=independent", *more))
    assert found.is_isolated
    first = RunFolder.open(swapped).id()
    assert found.members[0].met == {f"{first}/0", f"{first}/1"}


@pytest.mark.parametrize(
    ("overrides", "met"),
    [
        (["method=independent", "grid=1x3"], [{0}, {1}, {2}]),
        (["grid=1x4", "method.communication=false"], [{0}, {1}, {2}, {3}]),
        (["grid=3x3"], [set(range(9))] * 9),
        (
            ["grid={shape: 1x4, neighbourhood: table, table: [[1], [0], [3], [2]]}"],
            [{0, 1}, {0, 1}, {2, 3}, {2, 3}],
        ),
    ],
)
def test_cells_are_linked_through_others(overrides: list[str], met: list[set[int]]) -> None:
    config = load_config("cellular-digits", overrides)
    found = linked_cells(build_method(config), config.cells, rounds=1)
    assert [found[cell] for cell in range(config.cells)] == met


def test_linked_cells_share_one_set() -> None:
    # A set each would take memory with the square of the cells.
    config = load_config("cellular-digits", ["grid=6x6"])
    found = linked_cells(build_method(config), config.cells, rounds=1)
    assert len({id(group) for group in found.values()}) == 1


def test_samples_have_streams_of_their_own(alone: Path) -> None:
    found = load_population(alone)
    first, second = found.members
    drawn = found.draw(first, 600, 0, "test")
    assert torch.equal(drawn, found.draw(first, 600, 0, "test"))
    assert not torch.equal(drawn, found.draw(first, 600, 1, "test"))
    assert not torch.equal(drawn, found.draw(second, 600, 0, "test"))


def test_held_out_items_come_first(alone: Path) -> None:
    found = load_population(alone)
    items, what = held_out(found.dataset, found.config.data)
    assert (len(items), what) == (100, "held-out items of ring8")
    settings = DataSettings(source="ring8", limit=30)
    items, what = held_out(load_dataset(settings), settings)
    assert (len(items), what) == (30, "training items of ring8 (none are held out)")


@pytest.mark.real_data
def test_without_them_the_test_split_is_taken(real_data: Path) -> None:
    settings = DataSettings(source="mnist", dir=str(real_data), limit=30)
    items, what = held_out(load_dataset(settings), settings)
    assert (len(items), what) == (10_000, "test items of mnist")


def test_a_run_without_checkpoint_has_no_population(alone: Path, tmp_path: Path) -> None:
    path = tmp_path / "begun"
    shutil.copytree(alone, path)
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(StoreError, match="no complete checkpoint"):
        load_population(path)


def test_a_checkpoint_of_another_configuration_is_told(alone: Path, tmp_path: Path) -> None:
    path = tmp_path / "edited"
    shutil.copytree(alone, path)
    config = path / "config.yaml"
    config.write_text(config.read_text().replace("batch_norm: true", "batch_norm: false"))
    with pytest.raises(DamagedError, match="cell 0 does not fit the run's configuration"):
        load_population(path)


def test_events_say_what_each_round_cost_and_how_points_cover_their_modes(alone: Path) -> None:
    events = RunFolder.open(alone).events()
    rounds = [event for event in events if event["event"] == "round"]
    assert all(event["cpu_seconds"] > 0 and event["batches"] > 0 for event in rounds)
    covered = [event["coverage"] for event in events if event["event"] == "population"]
    assert len(covered) == 2
    assert all(0 <= one["modes_covered"] <= 15 for one in covered)
    result = json.loads((alone / "result.json").read_text())
    assert result["images"] == sum(event["images"] for event in rounds)
    assert result["batches"] == sum(event["batches"] for event in rounds)
    assert result["cpu_seconds"] == pytest.approx(
        sum(event["cpu_seconds"] for event in rounds), abs=0.002
    )


def test_conditional_members_draw_labels_as_the_data_have_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    data = write_data(tmp_path / "images.npz")
    words = [*tiny(data, run), "network.condition=auto", "rounds=1"]
    training.train(load_config(words[0], words[1:]), engine=Engine("local"))
    with pytest.raises(ConfigError, match="its networks are conditional"):
        load_population(run)
    found = load_population(run, conditional=True)
    member = found.members[0]
    drawn = member.draw(1200, torch.Generator().manual_seed(3), found.dataset.labels)
    assert drawn.shape == (1200, 1, 28, 28)
    # The same by hand: noise first, then the labels of random items, in parts of 500.
    rng = torch.Generator().manual_seed(3)
    noise = draw_noise(member.network, 1200, rng)
    assert found.dataset.labels is not None
    labels = found.dataset.labels[torch.randint(60, (1200,), generator=rng)]
    with torch.no_grad():
        wanted = member.generator(noise[1000:], labels[1000:])
    assert torch.equal(drawn[1000:], wanted)
