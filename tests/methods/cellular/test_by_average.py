"""Averaging among neighbours of the grid: with whom, with which genes, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from remuda.clock import Clock
from remuda.config import CellularSettings, Config
from remuda.errors import ConfigError
from remuda.gan.parcels import role_tensors
from remuda.methods import ancestor, lineage
from remuda.methods.cellular.by_average import ByAverage
from remuda.runs.prepare import Run
from tests.tiny import Population, gan_tensors, pixel_scorer, same, tiny_config, tiny_dataset


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


def scored(config: Config) -> Population:
    dataset = tiny_dataset()
    return Population(config, dataset, pixel_scorer(dataset))


def test_only_the_better_part_of_a_neighbourhood_is_averaged() -> None:
    """Against the plainest reference: rank by score, take the first, mean the tensors."""
    population = scored(by_average(method={"parents": 0.7, "mutation": False}))
    for _ in range(3):
        population.play()
    parcels, settings = population.parcels(), population.config.method
    assert isinstance(settings, CellularSettings)
    scorer = population.cells[0].scorer
    assert scorer is not None
    losses = {
        cell.index: scorer.mixture([cell.assessment], [1.0]).loss
        for cell in population.cells
        if cell.assessment is not None
    }
    assert len(set(losses.values())) == 5
    outsiders = 0
    for cell in population.cells:
        places = [(cell.index - 1) % 5, cell.index, (cell.index + 1) % 5]
        parents = sorted(sorted(places, key=losses.__getitem__)[:2])
        cell.round += 1
        match = ByAverage(settings).adapt(
            cell, [parcels[place] for place in places if place != cell.index], Clock()
        )
        for role, learner in match.gan.roles:
            parts = [role_tensors(parcels[place], role) for place in parents]
            for name, value in learner.tensors().items():
                if value.is_floating_point() and ".step." not in name:
                    wanted = (parts[0][name] + parts[1][name]) / 2
                    torch.testing.assert_close(value, wanted)
        own = cell.index in parents
        outsiders += not own
        heir_of = match.details["genes_of"]
        assert heir_of == cell.index if own else heir_of in parents
    assert outsiders > 0


def test_the_better_keep_their_genes_and_the_others_take_theirs_and_mutate() -> None:
    genes = {"learning_rate": [1e-3, 1e-1]}
    method = {"genes": genes, "mutation_probability": 1.0, "parents": 0.5}
    population = scored(by_average(method=method))
    population.play()
    for _ in range(4):
        before = [cell.gan.generator.learning_rate for cell in population.cells]
        kept = 0
        for cell, report in enumerate(population.play()):
            heir_of, rate = report.details["genes_of"], report.genes.lr_generator
            if heir_of == cell:
                kept += 1
                assert rate == before[cell]
                assert report.details["mutations"] == {}
            else:
                assert report.details["mutations"]["lr_generator"] == [before[heir_of], rate]
        assert 0 < kept < 5


def test_without_scores_all_are_averaged_at_first() -> None:
    population = Population(by_average(method={"parents": 0.5}))
    for cell, report in enumerate(population.play()):
        assert set(report.details["averaged_with"]) == {(cell - 1) % 5, (cell + 1) % 5}
        assert report.details["genes_of"] == cell


def test_parents_are_chosen_by_score_so_there_must_be_one() -> None:
    config = by_average(method={"parents": 0.5}, score={"extractor": "none"})
    with pytest.raises(ConfigError, match=r"method.parents=0.5: nothing scores"):
        Run.prepare(config, tiny_dataset())


def test_parents_belong_to_averaging() -> None:
    with pytest.raises(ConfigError) as caught:
        tiny_config(method={"name": "cellular", "parents": 0.5})
    assert str(caught.value) == (
        "method.parents=0.5 is for method.exchange=average, not loss; allowed: 1, or that exchange"
    )


def test_replicas_of_a_label_cannot_be_averaged() -> None:
    within = {"name": "cellular", "exchange": "average"}
    with pytest.raises(ConfigError) as caught:
        tiny_config(method={"name": "class_parallel", "replicas": 2, "within": within})
    assert str(caught.value) == (
        "method.within.exchange=average: replicas do not have a common start; allowed: loss, score"
    )
