"""Averaging against a plain reference: who is averaged with whom, what of them, what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from remuda.config import Config
from remuda.errors import ConfigError
from remuda.gan.cell import Cell
from remuda.gan.game import Losses, Rivals
from remuda.gan.learner import Gan
from remuda.gan.parcels import Parcel
from remuda.methods import ancestor, build_method, lineage, linked_cells, mean_tensors
from remuda.methods.averaging import averaged, relatives
from tests.tiny import (
    DCGAN,
    MLP,
    Population,
    gan_tensors,
    labelled,
    pixel_scorer,
    same,
    tiny_config,
    tiny_dataset,
)

AVERAGED = {"average": 4.0, "average_ramp": 0.5}
SETUPS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "moving average": {"network": DCGAN, "training": AVERAGED},
    "batch norm": {"network": DCGAN},
    "spectral norm": {"network": {**DCGAN, "spectral_norm": True}},
    "rmsprop": {"training": {"optimiser": "rmsprop", "objective": "wasserstein"}},
    "views": {"data": {"view": "share", "share": 0.5}},
    "conditional": {
        "network": {
            "family": "class_dcgan",
            "width": 4,
            "latent": 4,
            "condition": "projection",
            "classes": 4,
        }
    },
}
every_setup = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)


def averaging(cells: int = 3, **changes: Any) -> Config:
    method = {"name": "averaging", **changes.pop("method", {})}
    return tiny_config(**{"grid": {"shape": f"1x{cells}"}, "method": method, **changes})


def is_count(name: str) -> bool:
    return "num_batches_tracked" in name or "averaged_steps" in name or ".step." in name


def plain_mean(group: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of all that cells published, in float64; of counts the largest."""
    found = {}
    for name in group[0]:
        values = [one[name] for one in group]
        if is_count(name):
            found[name] = torch.tensor(max(float(value) for value in values))
        else:
            total = torch.zeros(values[0].shape, dtype=torch.float64)
            for value in values:
                total += value.double()
            found[name] = total / len(group)
    return found


def assert_mean(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        if is_count(name):
            assert float(value) == float(wanted[name]), name
        else:
            torch.testing.assert_close(value.double(), wanted[name].double(), rtol=1e-5, atol=1e-7)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, Tensor]]:
    """What the GAN of every cell is when it begins to train, in the round played last."""
    seen: dict[int, dict[str, Tensor]] = {}
    train = Cell.train

    def spy(cell: Cell, gan: Gan, rivals: Rivals) -> Losses:
        assert not rivals.generators
        seen[cell.index] = gan_tensors(gan)
        return train(cell, gan, rivals)

    monkeypatch.setattr(Cell, "train", spy)
    return seen


def published(population: Population) -> list[dict[str, Tensor]]:
    return [
        {k: v for k, v in parcel.tensors.items() if not k.startswith("assessment.")}
        for parcel in population.parcels().values()
    ]


# ---------------------------------------------------------------------------- a common start


@every_setup
def test_all_cells_start_with_the_weights_of_the_first(setup: dict[str, Any]) -> None:
    dataset = labelled(tiny_dataset())
    population = Population(averaging(**setup), dataset)
    alone = Population(tiny_config(method={"name": "independent"}, **setup), dataset)
    first = gan_tensors(alone.cells[0].gan)
    assert all(same(gan_tensors(cell.gan), first) for cell in population.cells)
    assert not same(gan_tensors(alone.cells[1].gan), first)
    for parcel in population.parcels().values():
        assert (ancestor(parcel), lineage(parcel)) == ("0", "0")


def test_in_the_first_round_cells_train_apart_on_their_own_batches() -> None:
    population = Population(averaging())
    reports = population.play()
    assert [report.details for report in reports] == [{"averaged_with": []}] * 3
    one, other = (gan_tensors(cell.gan) for cell in population.cells[:2])
    assert not same(one, other)


# ---------------------------------------------------------------------------- the reference


@every_setup
def test_a_round_is_the_mean_of_all_cells_and_then_plain_training(
    setup: dict[str, Any], starts: dict[int, dict[str, Tensor]]
) -> None:
    dataset = labelled(tiny_dataset())
    config = averaging(**setup)
    population = Population(config, dataset)
    population.play()
    for round in (2, 3):
        wanted = plain_mean(published(population))
        population.play()
        for cell in population.cells:
            assert_mean(starts[cell.index], wanted)
            # From there on it is one ordinary GAN.
            twin = population.method.probe(cell.index, dataset, cell.view)
            twin.round = round
            for role, learner in twin.gan.roles:
                own = {
                    name.removeprefix(f"{role}."): value
                    for name, value in starts[cell.index].items()
                    if name.startswith(f"{role}.")
                }
                learner.restore(own)
            started = gan_tensors(twin.gan)
            assert same(started, starts[cell.index])
            twin.train(twin.gan, Rivals())
            assert same(gan_tensors(twin.gan), gan_tensors(cell.gan))
    if setup.get("network") is DCGAN:
        assert any("running_var" in name for name in wanted)


@every_setup
def test_cells_with_the_same_peers_begin_a_round_with_the_same_bits(
    setup: dict[str, Any], starts: dict[int, dict[str, Tensor]]
) -> None:
    population = Population(averaging(**setup), labelled(tiny_dataset()))
    for _ in range(3):
        population.play()
        assert same(starts[0], starts[1])
        assert same(starts[1], starts[2])


def test_moments_that_are_kept_stay_with_their_cell(starts: dict[int, dict[str, Tensor]]) -> None:
    population = Population(averaging(method={"moments": "kept"}))
    population.play()
    before = published(population)
    wanted = plain_mean(before)
    population.play()
    for cell, own in enumerate(before):
        moments = {name for name in own if ".adam." in name}
        assert moments
        assert all(torch.equal(starts[cell][name], own[name]) for name in moments)
        rest = wanted.keys() - moments
        assert_mean({k: starts[cell][k] for k in rest}, {k: wanted[k] for k in rest})


def test_a_cell_keeps_its_own_genes(starts: dict[int, dict[str, Tensor]]) -> None:
    population = Population(averaging())
    population.cells[1].gan.generator.learning_rate = 0.02
    for _ in range(2):
        population.play()
    rates = [cell.gan.generator.learning_rate for cell in population.cells]
    assert rates == [0.01, 0.02, 0.01]
    assert same(starts[0], starts[1])


# ---------------------------------------------------------------------------- with whom


def test_with_neighbours_a_cell_is_averaged_with_those_beside_it(
    starts: dict[int, dict[str, Tensor]],
) -> None:
    population = Population(averaging(5, method={"peers": "neighbours"}))
    population.play()
    before = published(population)
    reports = population.play()
    for cell in range(5):
        group = sorted([(cell - 1) % 5, cell, (cell + 1) % 5])
        assert sorted([cell, *reports[cell].details["averaged_with"]]) == group
        assert_mean(starts[cell], plain_mean([before[one] for one in group]))


def test_with_a_partner_pairs_become_one_and_pairs_change(
    starts: dict[int, dict[str, Tensor]],
) -> None:
    population = Population(averaging(5, method={"peers": "partner"}))
    population.play()
    pairs = set()
    for _ in range(4):
        before = published(population)
        reports = population.play()
        partners = [report.details["averaged_with"] for report in reports]
        assert sum(partner == [] for partner in partners) == 1  # one of five is left over
        for cell, partner in enumerate(partners):
            group = [cell, *partner]
            assert all(partners[other] == [cell] for other in partner)
            assert_mean(starts[cell], plain_mean([before[one] for one in group]))
            assert all(same(starts[other], starts[cell]) for other in partner)
            pairs.add(tuple(sorted(group)))
    assert len(pairs) > 5


@pytest.mark.parametrize("peers", ["all", "neighbours", "partner"])
def test_every_third_round_is_every_third_round(
    peers: str, starts: dict[int, dict[str, Tensor]]
) -> None:
    population = Population(averaging(4, method={"every": 3, "peers": peers}))
    met = []
    for _ in range(8):
        before = [gan_tensors(cell.gan) for cell in population.cells]
        reports = population.play()
        met.append(any(report.details["averaged_with"] for report in reports))
        if not met[-1]:
            assert all(same(starts[cell], own) for cell, own in enumerate(before))
    assert met == [False, False, False, True, False, False, True, False]


@every_setup
def test_a_single_cell_is_an_independent_gan_bit_for_bit(setup: dict[str, Any]) -> None:
    dataset = labelled(tiny_dataset())
    ours, theirs = (
        Population(
            tiny_config(method={"name": name}, **{**setup, "grid": {"shape": "1x1"}}),
            dataset,
            pixel_scorer(dataset),
        )
        for name in ("averaging", "independent")
    )
    for _ in range(3):
        ours.play()
        theirs.play()
    one, other = ours.parcels()[0], theirs.parcels()[0]
    assert same(one.tensors, other.tensors)
    assert one.meta["genes"] == other.meta["genes"]


def test_cells_that_average_late_in_a_run_are_linked() -> None:
    """Otherwise their discriminators could judge generators that they trained."""
    method = Population(averaging(4, method={"every": 60})).method
    assert set(linked_cells(method, 4, 60).values()) == {frozenset([cell]) for cell in range(4)}
    assert set(linked_cells(method, 4, 61).values()) == {frozenset(range(4))}


def test_cells_that_never_meet_are_found_so_however_long_the_run() -> None:
    for config in (
        averaging(4, method={"name": "independent"}),
        averaging(4, method={"name": "gap", "swap": "none"}),
        tiny_config(grid={"shape": "1x1"}, method={"name": "cellular", "tournament_size": 1}),
    ):
        cells = config.cells
        alone = {frozenset([cell]) for cell in range(cells)}
        assert set(linked_cells(build_method(config), cells, 10**9).values()) == alone


# ---------------------------------------------------------------------------- strangers


def stranger(parcel: Parcel, **memory: str) -> Parcel:
    return replace(parcel, meta={**parcel.meta, "memory": {**parcel.meta["memory"], **memory}})


@pytest.mark.parametrize("role", ["ancestor", "lineage"])
def test_a_stranger_in_either_role_is_not_averaged(role: str) -> None:
    population = Population(averaging())
    population.play()
    cell, (_, friend, other) = population.cells[0], population.parcels().values()
    unknown = stranger(other, **{role: "elsewhere/0"})
    assert relatives(cell, [friend, unknown]) == [friend]
    alone, pair = (averaged(cell, some, moments=True) for some in ([unknown], [friend, unknown]))
    assert same(gan_tensors(alone), gan_tensors(cell.gan))
    assert_mean(gan_tensors(pair), plain_mean(published(population)[:2]))


def test_members_with_other_networks_are_refused() -> None:
    members = [{}, {"network": {**MLP, "hidden": [9]}}]
    with pytest.raises(ConfigError, match=r"members\[1\]: its networks differ .* method=averaging"):
        averaging(members=members)
    averaging(members=[{}, {"gradient_clip": 1.0}])


# ---------------------------------------------------------------------------- the arithmetic


def test_counts_are_the_largest_and_all_else_is_the_weighted_mean() -> None:
    parts = [
        {
            "network.weight": torch.tensor([1.0, 2.0]),
            "network.num_batches_tracked": torch.tensor(3),
            "adam.step.weight": torch.tensor(7.0),
            "adam.exp_avg.weight": torch.tensor([0.5, 0.5]),
        },
        {
            "network.weight": torch.tensor([5.0, 2.0]),
            "network.num_batches_tracked": torch.tensor(9),
            "adam.step.weight": torch.tensor(4.0),
            "adam.exp_avg.weight": torch.tensor([1.5, 0.5]),
        },
    ]
    found = mean_tensors(parts, [0.25, 0.75])
    assert found["network.weight"].tolist() == [4.0, 2.0]
    assert found["adam.exp_avg.weight"].tolist() == [1.25, 0.5]
    assert found["network.num_batches_tracked"].equal(torch.tensor(9))
    assert found["adam.step.weight"].equal(torch.tensor(7.0))
    assert mean_tensors(parts)["network.weight"].tolist() == [3.0, 2.0]
    assert parts[0]["network.weight"].tolist() == [1.0, 2.0]


def test_an_optimiser_counts_whole_steps_whatever_the_number_of_cells(
    starts: dict[int, dict[str, Tensor]],
) -> None:
    """A third of seven, thrice, is not seven."""
    population = Population(averaging(3, training={"batches_per_round": 7}))
    for before in (0, 7, 14):
        population.play()
        for start in starts.values():
            steps = {float(value) for name, value in start.items() if ".adam.step." in name}
            assert steps == ({float(before)} if before else set())


def test_a_cell_that_diverges_falls_back_to_its_own_last_gan() -> None:
    population = Population(averaging())
    population.play()
    cell = population.cells[1]
    before = gan_tensors(cell.gan)
    cell.gan.discriminator.learning_rate = 1e38
    reports = population.play()
    assert [report.diverged for report in reports] == [False, True, False]
    assert same(gan_tensors(cell.gan), before)


# ---------------------------------------------------------------------------- the ensemble


def test_the_ensemble_is_all_cells_in_one() -> None:
    dataset = tiny_dataset()
    population = Population(averaging(), dataset, pixel_scorer(dataset))
    population.play()
    found = population.method.ensemble(population.parcels(), population.cells[0].scorer)
    assert found.merged
    assert found.score is None  # the parcels do not tell it
    assert dict(found.weights) == {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}


@pytest.mark.parametrize("moments", [True, False])
def test_a_relative_without_moments_costs_nobody_his_own(moments: bool) -> None:
    """One that diverged in its first round goes on from first weights, which have none."""
    population = Population(averaging(2), tiny_dataset())
    (young,) = [parcel for parcel in population.parcels().values() if parcel.cell == 1]
    population.play()
    cell = population.cells[0]
    found = averaged(cell, [young], moments=moments)
    for (_, learner), (_, own) in zip(found.roles, cell.gan.roles, strict=True):
        assert learner.moments()
        assert same(learner.moments(), own.moments())
        weights = {name for name in learner.tensors() if name.startswith("network.")}
        assert not same(
            {name: learner.tensors()[name] for name in weights},
            {name: own.tensors()[name] for name in weights},
        )
