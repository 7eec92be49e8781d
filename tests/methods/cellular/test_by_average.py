"""Averaging among neighbours of the grid: with whom, with which genes, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from remuda.config import Config
from remuda.errors import ConfigError
from remuda.methods import ancestor, lineage
from tests.tiny import Population, gan_tensors, same, tiny_config


def by_average(**changes: Any) -> Config:
    method = {"name": "cellular", "exchange": "average", **changes.pop("method", {})}
    return tiny_config(**{"method": method, "grid": {"shape": "1x5"}, **changes})


def test_cells_start_alike_and_become_the_mean_of_their_neighbourhood() -> None:
    ours = Population(by_average(method={"mutation": False}))
    first = gan_tensors(ours.cells[0].gan)
    assert all(same(gan_tensors(cell.gan), first) for cell in ours.cells)
    theirs = Population(
        tiny_config(method={"name": "averaging", "peers": "neighbours"}, grid={"shape": "1x5"})
    )
    for _ in range(3):
        # Before the first round the mean of equals is theirs, but for rounding.
        reports = ours.play()
        theirs.play()
    for cell, report in enumerate(reports):
        assert set(report.details["averaged_with"]) == {(cell - 1) % 5, (cell + 1) % 5}
    for one, other in zip(ours.cells, theirs.cells, strict=True):
        mine, wanted = gan_tensors(one.gan), gan_tensors(other.gan)
        assert mine.keys() == wanted.keys()
        for name, value in mine.items():
            torch.testing.assert_close(value, wanted[name], rtol=1e-2, atol=1e-3)


def test_all_stay_relatives_of_the_first() -> None:
    population = Population(by_average())
    population.play()
    for parcel in population.parcels().values():
        assert (ancestor(parcel), lineage(parcel)) == ("0", "0")


@pytest.mark.parametrize(
    ("changes", "rounds"),
    [({"select_every": 2}, {1, 3}), ({"selection": False}, set()), ({}, {1, 2, 3, 4})],
)
def test_cells_average_in_the_rounds_in_which_they_select(
    changes: dict[str, Any], rounds: set[int]
) -> None:
    population = Population(by_average(method=changes))
    found = set()
    for number in (1, 2, 3, 4):
        counts = {len(report.details["averaged_with"]) for report in population.play()}
        assert counts == ({2} if number in rounds else {0})
        found |= {number} if counts == {2} else set()
    assert found == rounds


def test_genes_are_a_cells_own_and_mutate() -> None:
    genes = {"learning_rate": [1e-3, 1e-1]}
    population = Population(by_average(method={"genes": genes, "mutation_probability": 1.0}))
    before = [cell.gan.generator.learning_rate for cell in population.cells]
    assert len(set(before)) == 5
    for report, rate in zip(population.play(), before, strict=True):
        assert report.details["mutations"]["lr_generator"] == [rate, report.genes.lr_generator]


def test_replicas_of_a_label_cannot_be_averaged() -> None:
    within = {"name": "cellular", "exchange": "average"}
    with pytest.raises(ConfigError) as caught:
        tiny_config(method={"name": "class_parallel", "replicas": 2, "within": within})
    assert str(caught.value) == (
        "method.within.exchange=average: replicas do not have a common start; allowed: loss, score"
    )
