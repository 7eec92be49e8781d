"""Selection by loss, beyond the reference: items behind a fitness, rounds apart, and descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from torch import Tensor

from remuda.gan.cell import Cell
from remuda.gan.objectives import find_objective
from remuda.methods import RoundReport, ancestor, diversity, lineage
from remuda.methods.cellular import FitnessTable
from tests.tiny import (
    Population,
    gan_tensors,
    pixel_scorer,
    same,
    tiny_cell,
    tiny_config,
    tiny_dataset,
)


def played(rounds: int, **method: Any) -> tuple[Population, list[list[RoundReport]]]:
    config = tiny_config(
        method={"name": "cellular", **method}, grid={"shape": "3x3"}, training={"batch_size": 12}
    )
    dataset = tiny_dataset()
    population = Population(config, dataset, pixel_scorer(dataset))
    return population, [population.play() for _ in range(rounds)]


# ---------------------------------------------------------------------------- fitness


@pytest.mark.parametrize(("batches", "items"), [(1, 6), (3, 18), (4, 24), (99, 24)])
def test_fitness_is_the_loss_on_so_many_batches_of_items(batches: int, items: int) -> None:
    cell = tiny_cell()
    table = FitnessTable(cell, [cell.gan], find_objective("heuristic"), "mean", batches)
    assert len(table._real) == len(table._noise) == items
    assert len({item.numpy().tobytes() for item in table._real}) == items  # each but once


def test_the_settings_number_of_batches_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    found = Cell.real_batch

    def spy(cell: Cell, purpose: str, batches: int = 1) -> tuple[Tensor, Tensor | None]:
        asked.append(batches)
        return found(cell, purpose, batches)

    monkeypatch.setattr(Cell, "real_batch", spy)
    played(1, fitness_batches=5)
    assert set(asked) == {5}


def test_one_batch_is_what_fitness_always_was() -> None:
    """(test_cellular_reference.py says what that is.)"""
    cell = tiny_cell()
    table = FitnessTable(cell, [cell.gan], find_objective("heuristic"), "mean")
    real, _ = cell.real_batch("evaluation-batch")
    assert table._real.equal(real)
    assert table._noise.equal(cell.noise_batch("evaluation-noise"))
    default, other = played(2)[0], played(2, fitness_batches=1)[0]
    assert all(
        same(one.tensors, two.tensors)
        for one, two in zip(default.parcels().values(), other.parcels().values(), strict=True)
    )
    assert not all(
        same(one.tensors, two.tensors)
        for one, two in zip(
            default.parcels().values(),
            played(2, fitness_batches=2)[0].parcels().values(),
            strict=True,
        )
    )


# ---------------------------------------------------------------------------- rounds apart


@pytest.mark.parametrize("replacement", ["elitist", "comma"])
def test_between_selections_cells_train_and_keep_their_own(replacement: str) -> None:
    _, rounds = played(5, select_every=2, replacement=replacement)
    for number, reports in enumerate(rounds, 1):
        own = all(
            set(report.details["parents"].values()) == {report.cell}
            and {centre["from"] for centre in report.details["centre"].values()} == {"offspring"}
            for report in reports
        )
        assert own == (number % 2 == 0)


# ---------------------------------------------------------------------------- descent


@pytest.mark.parametrize("replacement", ["elitist", "comma"])
def test_ancestors_and_lineages_follow_parents_and_survivors(replacement: str) -> None:
    """Told from the events alone: who was whose parent, and who became the centre."""
    population, rounds = played(6, replacement=replacement)
    origin = {role: [str(cell) for cell in range(9)] for role in ("generator", "discriminator")}

    def followed(role: str, report: RoundReport) -> str:
        source = report.details["centre"][role]["from"]
        place = report.details["parents"][role] if source == "offspring" else source
        return origin[role][int(place)]

    for reports in rounds:
        origin = {role: [followed(role, report) for report in reports] for role in origin}
    parcels = population.parcels()
    assert [ancestor(parcel) for parcel in parcels.values()] == origin["generator"]
    assert [lineage(parcel) for parcel in parcels.values()] == origin["discriminator"]
    assert len(set(origin["generator"])) < 9  # some founders are lost
    found = diversity(parcels)
    assert found.generators == len(set(origin["generator"]))
    assert found.discriminators == len(set(origin["discriminator"]))
    assert found.spread is not None


def test_a_cell_that_diverges_keeps_its_ancestors() -> None:
    population, _ = played(2, selection=False)
    before: Mapping[str, Tensor] = gan_tensors(population.cells[4].gan)
    population.cells[4].gan.discriminator.learning_rate = 1e38
    reports = population.play()
    assert [report.diverged for report in reports] == [cell == 4 for cell in range(9)]
    parcel = population.parcels()[4]
    assert same(gan_tensors(population.cells[4].gan), before)
    assert (ancestor(parcel), lineage(parcel)) == ("4", "4")


# ---------------------------------------------------------------------------- diversity


def test_without_selection_every_founder_is_left() -> None:
    population, _ = played(2, selection=False)
    found = diversity(population.parcels())
    assert (found.generators, found.discriminators) == (9, 9)


def test_unscored_cells_have_no_spread() -> None:
    population = Population(tiny_config())
    population.play()
    assert diversity(population.parcels()).spread is None


def test_a_single_cell_has_no_spread() -> None:
    dataset = tiny_dataset()
    config = tiny_config(method={"name": "independent"}, grid={"shape": "1x1"})
    population = Population(config, dataset, pixel_scorer(dataset))
    assert diversity(population.parcels()).spread is None
