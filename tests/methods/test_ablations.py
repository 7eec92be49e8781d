"""Switching a part of `cellular` off takes away that part and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from remuda.config import Config
from remuda.gan.cell import Cell
from remuda.gan.game import Losses, Rivals
from remuda.gan.learner import Gan
from remuda.methods import Genes, RoundReport
from tests.tiny import DCGAN, Population, pixel_scorer, same, tiny_config, tiny_dataset

OFF: dict[str, Any] = {"selection": False, "mutation": False, "communication": False}
INDEPENDENT = {"name": "independent"}
ROUNDS = 3


def cellular(**settings: Any) -> dict[str, Any]:
    # The default rates would hardly show in networks this small.
    return {"name": "cellular", "mutation_rate": 3e-3, "mixture_scale": 0.1, **settings}


def played(config: Config, rounds: int = ROUNDS) -> tuple[Population, list[RoundReport]]:
    dataset = tiny_dataset()
    population = Population(config, dataset, pixel_scorer(dataset))
    reports = [report for _ in range(rounds) for report in population.play()]
    return population, reports


def equal(left: Population, right: Population) -> bool:
    """Weights, buffers, Adam moments, scores and genes of all cells."""
    return all(
        same(one.tensors, other.tensors) and one.meta["genes"] == other.meta["genes"]
        for one, other in zip(left.parcels().values(), right.parcels().values(), strict=True)
    )


def parents(reports: Sequence[RoundReport]) -> list[tuple[int, int]]:
    """(cell, cell of the parent) for every report and role."""
    return [
        (report.cell, parent) for report in reports for parent in report.details["parents"].values()
    ]


def origins(reports: Sequence[RoundReport]) -> list[int | str]:
    return [centre["from"] for report in reports for centre in report.details["centre"].values()]


# ---------------------------------------------------------------------------- everything off


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "more"),
    [
        ({}, {}),
        ({}, {"training": {"objective": "relativistic", "skip_n_disc_steps": 1}}),
        ({}, {"training": {"objective": "wasserstein", "n_critic": 2, "batches_per_round": 7}}),
        ({}, {"network": DCGAN}),
        ({}, {"network": {**DCGAN, "spectral_norm": True}}),
        ({}, {"data": {"view": "share", "share": 0.5}}),
        ({"replacement": "comma", "opponents": "partner", "fitness": "worst"}, {}),
        ({"losses": ["minimax", "least_squares"], "fitness_loss": "minimax"}, {}),
        ({"mixture_scale": 0.0, "tournament_size": 3}, {}),
    ],
)
def test_cellular_with_everything_off_is_independent_bit_for_bit(
    method: dict[str, Any], more: dict[str, Any]
) -> None:
    ours, _ = played(tiny_config(method=cellular(**OFF, **method), **more))
    theirs, _ = played(tiny_config(method=INDEPENDENT, **more))
    assert any("adam.exp_avg_sq" in name for name in ours.parcels()[0].tensors)
    assert equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["communication", "mutation"])
def test_a_switch_left_on_makes_a_difference(switch: str) -> None:
    method = cellular(**{**OFF, switch: True}, opponents="subpopulation")
    ours, _ = played(tiny_config(method=method))
    theirs, _ = played(tiny_config(method=INDEPENDENT))
    assert not equal(ours, theirs)


# ---------------------------------------------------------------------------- one at a time


def test_without_communication_no_peers_are_asked() -> None:
    config = tiny_config(method=cellular(communication=False))
    population, reports = played(config)
    for cell in range(4):
        for round in range(1, 10):
            assert population.method.peers(cell, round) == ()
    assert all(cell == parent for cell, parent in parents(reports))
    for report in reports:
        assert report.details["mixture"]["weights"] == {str(report.cell): 1.0}
    mixture = population.method.ensemble(population.parcels(), population.cells[0].scorer)
    assert list(mixture.weights.values()) == [1.0]


def test_without_communication_a_cell_is_alone_in_the_world() -> None:
    """Its neighbours, however many, change nothing."""
    small, _ = played(tiny_config(method=cellular(communication=False)))
    large, _ = played(tiny_config(method=cellular(communication=False), grid={"shape": "2x3"}))
    for cell in range(4):
        assert same(small.parcels()[cell].tensors, large.parcels()[cell].tensors)


def test_with_communication_the_peers_are_the_neighbours_of_the_round() -> None:
    changes = [{"round": 2, "neighbourhood": "ring"}]
    grid = {"shape": "3x3", "schedule": changes}
    method = Population(tiny_config(method=cellular(), grid=grid)).method
    assert method.peers(4, 1) == (3, 1, 5, 7)
    assert method.peers(4, 2) == method.peers(4, 9) == (3, 5)


def test_without_selection_every_cell_trains_and_keeps_its_own() -> None:
    population, reports = played(tiny_config(method=cellular(selection=False)))
    assert all(cell == parent for cell, parent in parents(reports))
    assert set(origins(reports)) == {"offspring"}
    # Mutation and communication are still on.
    assert any(report.details["mutations"] for report in reports)
    assert all(len(report.details["mixture"]["weights"]) == 3 for report in reports)
    assert population.method.peers(0, 1) == (1, 2)


@pytest.mark.slow
def test_with_selection_parents_come_from_the_neighbourhood_and_from_nowhere_else() -> None:
    population, reports = played(tiny_config(method=cellular(), grid={"shape": "3x3"}), 4)
    grid = population.method.grid.at(1)
    found = parents(reports)
    assert all(parent in grid.subpopulation(cell) for cell, parent in found)
    assert {cell == parent for cell, parent in found} == {True, False}
    roles = [tuple(report.details["parents"].values()) for report in reports]
    assert any(generator != discriminator for generator, discriminator in roles)


def test_without_mutation_learning_rates_and_losses_stay() -> None:
    losses = ["minimax", "least_squares"]
    _, reports = played(tiny_config(method=cellular(mutation=False, losses=losses)))
    for report in reports:
        assert report.details["mutations"] == {}
        assert report.genes == Genes(0.01, 0.01, "heuristic")
    assert any(cell != parent for cell, parent in parents(reports))


@pytest.mark.parametrize(("probability", "mutates"), [(0.0, False), (1.0, True)])
def test_the_chance_of_mutation_is_what_is_asked_for(probability: float, mutates: bool) -> None:
    _, reports = played(tiny_config(method=cellular(mutation_probability=probability)))
    for report in reports:
        assert len(report.details["mutations"]) == (2 if mutates else 0)


@pytest.mark.parametrize(
    ("opponents", "communication", "rivals"),
    [("subpopulation", True, 2), ("partner", True, 0), ("subpopulation", False, 0)],
)
def test_whom_a_clone_plays(
    opponents: str, communication: bool, rivals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    train = Cell.train

    def spy(cell: Cell, gan: Gan, opposed: Rivals) -> Losses:
        seen.append((len(opposed.generators), len(opposed.discriminators)))
        # Frozen: playing changes neither weights nor batch statistics.
        networks = [*opposed.generators, *opposed.discriminators]
        assert not any(network.training for network in networks)
        return train(cell, gan, opposed)

    monkeypatch.setattr(Cell, "train", spy)
    method = cellular(opponents=opponents, communication=communication)
    played(tiny_config(method=method), 1)
    assert seen == [(rivals, rivals)] * 4


def test_a_mixture_scale_of_zero_leaves_the_mixture_alone() -> None:
    _, reports = played(tiny_config(method=cellular(mixture_scale=0.0)))
    for report in reports:
        assert report.details["mixture"]["weights"].values() == pytest.approx([1 / 3] * 3)


# ---------------------------------------------------------------------------- 1x1


@pytest.mark.parametrize("replacement", ["elitist", "comma"])
def test_a_single_cell_with_everything_on_behaves(replacement: str) -> None:
    method = cellular(replacement=replacement, tournament_size=1, losses=["minimax", "heuristic"])
    population, reports = played(tiny_config(method=method, grid={"shape": "1x1"}), 5)
    assert population.method.peers(0, 1) == ()
    assert set(parents(reports)) == {(0, 0)}
    assert set(origins(reports)) <= {"offspring", 0}
    assert all(report.details["mixture"]["weights"] == {"0": 1.0} for report in reports)
    assert not any(report.diverged for report in reports)
    assert len({report.genes.lr_generator for report in reports}) > 1
    mixture = population.method.ensemble(population.parcels(), population.cells[0].scorer)
    assert dict(mixture.weights) == {0: 1.0}


def test_a_single_cell_that_always_accepts_is_one_ordinary_gan() -> None:
    one = {"shape": "1x1"}
    method = cellular(replacement="comma", mutation=False, tournament_size=1)
    ours, _ = played(tiny_config(method=method, grid=one))
    theirs, _ = played(tiny_config(method=INDEPENDENT, grid=one))
    assert equal(ours, theirs)


def test_elitism_in_a_single_cell_keeps_the_better_of_old_and_new() -> None:
    method = cellular(mutation=False, tournament_size=1, fitness="worst")
    config = tiny_config(
        method=method,
        grid={"shape": "1x1"},
        training={"learning_rate": 0.3, "skip_n_disc_steps": 1},
    )
    dataset = tiny_dataset()
    population = Population(config, dataset, pixel_scorer(dataset))
    seen = set()
    for _ in range(8):
        before = population.parcels()[0]
        (report,) = population.play()
        after = population.parcels()[0]
        for role, centre in report.details["centre"].items():
            seen.add(centre["from"])
            kept = all(
                after.tensors[name].equal(value)
                for name, value in before.tensors.items()
                if name.startswith(f"{role}.network.")
            )
            assert kept == (centre["from"] == 0)
            assert centre["fitness"] <= report.details["fitness"][role]
    assert seen == {"offspring", 0}


def test_seconds_are_reported_for_every_routine() -> None:
    """The article's four routines, ours for scoring, and what is left."""
    dataset = tiny_dataset()
    population = Population(tiny_config(), dataset, pixel_scorer(dataset))
    (report, *_) = population.play()
    routines = {"gather", "update_genomes", "mutate", "train", "assess", "mixture", "other"}
    assert set(report.seconds) == routines
