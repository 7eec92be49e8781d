"""Which generators a cellular run ends with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuda.gan.parcels import Parcel, parcel_assessment
from remuda.methods.base import Mixture
from tests.tiny import Population, pixel_scorer, tiny_config, tiny_dataset


def ended(ensemble: str, *, scored: bool = True) -> tuple[Population, Mixture]:
    dataset = tiny_dataset()
    scorer = pixel_scorer(dataset) if scored else None
    method = {"name": "cellular", "ensemble": ensemble, "selection": False}
    population = Population(tiny_config(method=method), dataset, scorer)
    population.play()
    return population, population.method.ensemble(population.parcels(), scorer)


def test_best_is_the_cell_with_the_best_score() -> None:
    population, found = ended("best")
    scores = {}
    for cell, parcel in population.parcels().items():
        assessment = parcel_assessment(parcel)
        assert assessment is not None
        scores[cell] = assessment.score
    best = min(scores, key=lambda cell: scores[cell])
    assert dict(found.weights) == {best: 1.0}
    assert found.score is not None
    assert found.score.value == scores[best]
    assert found.reason == f"cell {best} has the best score"
    assert not found.merged


@pytest.mark.parametrize("scored", [True, False])
def test_uniform_is_all_cells_alike(scored: bool) -> None:
    _, found = ended("uniform", scored=scored)
    assert dict(found.weights) == dict.fromkeys(range(4), 0.25)
    assert (found.score is not None) == scored
    assert not found.merged


def test_neighbourhood_is_as_the_articles_have_it() -> None:
    population, found = ended("neighbourhood")
    assert len(found.weights) == 3
    assert found.reason.startswith("the neighbourhood of cell")
    assert population.config.method == type(population.config.method)(selection=False)  # type: ignore[call-arg]


def families(population: Population, ancestors: dict[int, str]) -> dict[int, Parcel]:
    """The population's parcels as if some cells descended from others."""
    return {
        cell: replace(
            parcel,
            meta={
                **parcel.meta,
                "memory": {**parcel.meta["memory"], "ancestor": ancestors.get(cell, str(cell))},
            },
        )
        for cell, parcel in population.parcels().items()
    }


@pytest.mark.parametrize(
    ("ancestors", "cells"),
    [
        ({}, [0]),  # all strangers: nothing to average
        ({3: "1"}, [1, 3]),
        ({0: "2", 1: "2"}, [0, 1, 2]),
        ({1: "0", 3: "2"}, [0, 1]),  # of two families as large, that of the first cell
    ],
)
def test_average_is_the_largest_family_in_one_where_nothing_is_scored(
    ancestors: dict[int, str], cells: list[int]
) -> None:
    population, _ = ended("average", scored=False)
    found = population.method.ensemble(families(population, ancestors), None)
    assert dict(found.weights) == dict.fromkeys(cells, 1 / len(cells))
    assert found.merged
    assert found.leader is None
    who = f"{len(cells)} relatives" if len(cells) > 1 else f"cell {cells[0]} alone"
    assert found.reason == f"the average of the weights of {who} among 4 cells"


def test_average_is_the_family_of_the_best_cell_even_if_another_is_larger() -> None:
    population, _ = ended("average")
    scorer = population.cells[0].scorer
    alone = population.method.ensemble(population.parcels(), scorer)
    (best,) = alone.weights  # all strangers: the best of them
    others = [cell for cell in range(4) if cell != best]
    related = dict.fromkeys(others, str(others[0]))
    found = population.method.ensemble(families(population, related), scorer)
    assert dict(found.weights) == {best: 1.0}
    assert found.leader == alone.leader == best
    assert found.reason == (
        f"the average of the weights of cell {best} alone among 4 cells; "
        f"cell {best} has the best score"
    )
