"""Selection by score: who is taken over, beyond which doubt, and what of them comes along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from remuda.clock import Clock
from remuda.config import Config, validate
from remuda.errors import ConfigError
from remuda.gan.cell import Cell
from remuda.gan.learner import Gan
from remuda.gan.parcels import Parcel, role_tensors, strip_prefix
from remuda.methods import CellState, RoundReport, ancestor, lineage
from remuda.methods.base import Match
from remuda.metrics import Assessment, MixtureScore, Scorer
from remuda.runs.prepare import Run
from tests.tiny import (
    Letters,
    Population,
    gan_tensors,
    labelled,
    pixel_scorer,
    same,
    tiny_config,
    tiny_dataset,
)

AVERAGED = {"average": 4.0, "average_ramp": 0.5, "r1_every": 1}


def by_score(cells: int = 3, **changes: Any) -> Config:
    method = {"name": "cellular", "exchange": "score", **changes.pop("method", {})}
    return tiny_config(
        **{
            "grid": {"shape": f"1x{cells}"},
            "training": {**AVERAGED, **changes.pop("training", {})},
            "method": method,
            **changes,
        }
    )


class Told:
    """A scorer that believes what assessments say: their score and, as duplicates, its error."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    def assess(self, images: Any) -> Assessment:
        return self._scorer.assess(images)

    def mixture(self, parts: Sequence[Assessment], weights: Sequence[float]) -> MixtureScore:
        value = sum(part.score * weight for part, weight in zip(parts, weights, strict=True))
        return MixtureScore(value, value)

    def standard_error(self, part: Assessment) -> float:
        return part.duplicates


def begun(config: Config) -> Population:
    """A population after a round in which nobody was taken over."""
    dataset = tiny_dataset()
    population = Population(config, dataset, cast("Scorer", Told(pixel_scorer(dataset))))
    tell(population, dict.fromkeys(range(config.cells), (5.0, 0.0)))
    population.play()
    return population


def tell(population: Population, figures: Mapping[int, tuple[float, float]]) -> None:
    """Let cells have published these scores, with these standard errors."""
    for index, (score, error) in figures.items():
        cell = population.cells[index]
        assert cell.assessment is not None
        cell.assessment = replace(cell.assessment, score=score, duplicates=error)
    publish_again(population)


def publish_again(population: Population) -> None:
    population.comm = Letters()
    for cell in population.cells:
        cell.round = population.round
        population.comm.publish(cell.parcel())


def looked(population: Population, index: int, round: int | None = None) -> Match:
    """What a cell decides to train with in the next round."""
    cell = population.cells[index]
    cell.round = population.round + 1 if round is None else round
    peers = population.method.peers(index, population.round + 1)
    parcels = population.comm.collect(peers, population.round)
    return population.method.adapt(cell, parcels, Clock())


def parent(match: Match) -> int:
    found = set(match.details["parents"].values())
    assert len(found) == 1
    return int(found.pop())


def whole(parcel: Parcel) -> dict[str, Any]:
    return {k: v for k, v in parcel.tensors.items() if not k.startswith("assessment.")}


def genes(gan: Gan) -> dict[str, Any]:
    return {role: learner.genes() for role, learner in gan.roles}


# ---------------------------------------------------------------------------- families


def family_of_two() -> Population:
    """Cell 0 has taken over cell 2 unchanged, and both have trained since; cell 1 is alone."""
    population = begun(by_score(method={"mutation": False, "relatives": "average"}))
    population.cells[1].gan.discriminator.r1 = 0.7
    tell(population, {0: (5.0, 0.1), 1: (1.1, 0.1), 2: (1.0, 0.1)})
    report = population.play()[0]
    assert report.details["parents"] == {"generator": 2, "discriminator": 2}
    tell(population, dict.fromkeys(range(3), (5.0, 0.1)))
    return population


def test_cells_of_one_ancestor_and_equal_genes_average() -> None:
    population = family_of_two()
    parcels = population.parcels()
    match = looked(population, 0)
    assert parent(match) == 0
    assert match.details["averaged_with"] == [2]
    for role, learner in match.gan.roles:
        parts = [role_tensors(parcels[cell], role) for cell in (0, 2)]
        for name, value in learner.tensors().items():
            if value.is_floating_point() and ".step." not in name:
                torch.testing.assert_close(value, (parts[0][name] + parts[1][name]) / 2)
    assert looked(population, 1).details["averaged_with"] == []


def test_cells_of_one_ancestor_with_other_genes_do_not() -> None:
    population = family_of_two()
    population.cells[0].gan.discriminator.r1 = 0.9
    publish_again(population)
    match = looked(population, 0)
    assert match.details["averaged_with"] == []
    assert same(gan_tensors(match.gan), gan_tensors(population.cells[0].gan))


def test_families_compete_and_their_members_do_not() -> None:
    """A much better relative of the same genes is averaged with; a better stranger takes over."""
    population = family_of_two()
    tell(population, {0: (5.0, 0.1), 1: (6.0, 0.1), 2: (1.0, 0.1)})
    match = looked(population, 0)
    assert (parent(match), match.details["averaged_with"]) == (0, [2])
    tell(population, {0: (5.0, 0.1), 1: (2.0, 0.1), 2: (1.0, 0.1)})
    match = looked(population, 0)
    assert (parent(match), match.details["averaged_with"]) == (1, [])


def test_relatives_belong_to_selection_by_score() -> None:
    with pytest.raises(ConfigError) as caught:
        tiny_config(method={"name": "cellular", "relatives": "average"})
    assert str(caught.value) == (
        "method.relatives=average is for method.exchange=score, not loss; allowed: compete, or "
        "that exchange"
    )


# ---------------------------------------------------------------------------- what is taken


def test_a_better_neighbour_is_taken_over_whole() -> None:
    """Both networks, moments, average and genes; without mutation, to the bit."""
    population = begun(by_score(method={"mutation": False}))
    other = population.cells[2].gan
    other.generator.learning_rate, other.discriminator.learning_rate = 0.02, 0.03
    other.discriminator.r1, other.generator.half_life = 0.7, 9.0
    tell(population, {0: (5.0, 0.1), 1: (4.9, 0.1), 2: (1.0, 0.1)})
    parcel = population.parcels()[2]
    match = looked(population, 0)
    assert parent(match) == 2
    assert same(gan_tensors(match.gan), whole(parcel))
    assert any(".adam.exp_avg" in name for name in parcel.tensors)
    assert any("generator.average." in name for name in parcel.tensors)
    assert genes(match.gan) == parcel.meta["genes"] == genes(other)
    assert match.gan.cell == 0
    assert not match.rivals.generators
    assert match.details["mutations"] == {}
    # A copy: what trains here leaves the neighbour alone.
    before = gan_tensors(other)
    population.cells[0].train(match.gan)
    assert same(gan_tensors(other), before)


def test_only_those_who_take_over_mutate() -> None:
    ranges = {"learning_rate": [1e-3, 1e-1], "r1": [0.1, 10], "average": [2, 50]}
    config = by_score(method={"mutation_probability": 1.0, "genes": ranges})
    population = begun(config)
    tell(population, {0: (5.0, 0.1), 1: (5.0, 0.1), 2: (1.0, 0.1)})
    taken, kept = looked(population, 0), looked(population, 2)
    assert (parent(taken), parent(kept)) == (2, 2)
    assert kept.details["mutations"] == {}
    assert genes(kept.gan) == genes(population.cells[2].gan)
    mutations = taken.details["mutations"]
    assert set(mutations) == {"lr_generator", "lr_discriminator", "r1", "average"}
    source = population.cells[2].gan
    assert mutations["r1"] == [source.discriminator.r1, taken.gan.discriminator.r1]
    assert mutations["average"] == [source.generator.half_life, taken.gan.generator.half_life]
    assert all(old != new for old, new in mutations.values())
    assert same(gan_tensors(taken.gan), gan_tensors(source))


def test_nothing_is_taken_from_those_who_are_worse_or_as_good() -> None:
    population = begun(by_score(method={"margin": 0.0}))
    tell(population, {0: (5.0, 0.1), 1: (5.0, 0.1), 2: (6.0, 0.0)})
    before = gan_tensors(population.cells[0].gan)
    match = looked(population, 0)
    assert parent(match) == 0
    assert same(gan_tensors(match.gan), before)


@pytest.mark.parametrize(("own", "others"), [(0.3, 0.4), (0.5, 0.0), (0.0, 0.5)])
@pytest.mark.parametrize(("margin", "taken"), [(1.99, True), (2.01, False), (0.0, True)])
def test_the_margin_counts_standard_errors_of_the_difference(
    own: float, others: float, margin: float, taken: bool
) -> None:
    population = begun(by_score(method={"margin": margin}))
    tell(population, {0: (5.0, own), 1: (6.0, 0.0), 2: (4.0, others)})  # 0.5 are one of them
    assert parent(looked(population, 0)) == (2 if taken else 0)


def test_the_best_of_the_clearly_better_is_taken() -> None:
    """A neighbour with a better but doubtful score does not stand in the way."""
    population = begun(by_score(5, grid={"shape": "1x5", "neighbourhood": "moore"}))
    tell(population, {0: (5.0, 0.1), 1: (2.0, 0.1), 4: (1.0, 9.0)})
    assert parent(looked(population, 0)) == 1
    tell(population, {1: (2.0, 0.1), 4: (1.0, 0.1)})
    assert parent(looked(population, 0)) == 4
    tell(population, {1: (2.0, 0.1), 4: (1.0, float("nan"))})
    assert parent(looked(population, 0)) == 1


def test_a_cell_with_a_broken_score_takes_any_sound_one() -> None:
    population = begun(by_score())
    nan = float("nan")
    tell(population, {0: (nan, nan), 1: (nan, nan), 2: (99.0, 1.0)})
    assert parent(looked(population, 0)) == 2
    tell(population, {2: (nan, nan)})
    assert parent(looked(population, 0)) == 0
    tell(population, {0: (5.0, 0.1)})
    assert parent(looked(population, 0)) == 0


def test_without_an_estimate_of_the_error_nothing_is_taken() -> None:
    """With fewer than ten samples there are no groups to estimate it from."""
    dataset = tiny_dataset()
    config = by_score(score={"samples": 9})
    population = Population(config, dataset, pixel_scorer(dataset))
    population.cells[0].assessment = population.cells[0].scorer.assess(dataset.items[:9] + 9)  # type: ignore[union-attr]
    assert parent(looked(population, 0, 2)) == 0


@pytest.mark.parametrize("metric", ["fid", "is"])
def test_with_real_scores_the_better_is_better_and_noise_is_noise(metric: str) -> None:
    dataset = tiny_dataset(200)
    scorer = pixel_scorer(dataset, metric)
    good, again = (scorer.assess(tiny_dataset(100, seed=seed).items[:]) for seed in (4, 5))
    bad = scorer.assess(0.05 * tiny_dataset(100, seed=6).items[:])
    population = Population(by_score(score={"samples": 100}), dataset, scorer)
    for cell, found in zip(population.cells, (bad, good, bad), strict=True):
        cell.assessment = found
    publish_again(population)
    assert parent(looked(population, 0, 2)) == 1
    assert parent(looked(population, 1, 2)) == 1
    difference = abs(good.score - again.score)
    doubt = (scorer.standard_error(good) ** 2 + scorer.standard_error(again) ** 2) ** 0.5
    for margin, taken in ((0.99 * difference / doubt, True), (1.01 * difference / doubt, False)):
        population = Population(
            by_score(2, method={"margin": margin}, score={"samples": 100}), dataset, scorer
        )
        for cell, found in zip(population.cells, (good, again), strict=True):
            cell.assessment = found
        publish_again(population)
        assert {parent(looked(population, cell, 2)) for cell in (0, 1)} == (
            {0 if scorer.mixture([good], [1]).loss < scorer.mixture([again], [1]).loss else 1}
            if taken
            else {0, 1}
        )


# ---------------------------------------------------------------------------- when


def test_cells_look_every_so_many_rounds_but_not_before_the_first() -> None:
    population = begun(by_score(method={"select_every": 3}))
    tell(population, {0: (5.0, 0.1), 1: (1.0, 0.1), 2: (5.0, 0.1)})
    found = [parent(looked(population, 0, round)) for round in range(1, 9)]
    assert found == [0, 0, 0, 1, 0, 0, 1, 0]


def test_nor_before_the_first_round_that_is_scored() -> None:
    population = begun(by_score(score={"every": 3}))
    tell(population, {0: (5.0, 0.1), 1: (1.0, 0.1), 2: (5.0, 0.1)})
    found = [parent(looked(population, 0, round)) for round in range(1, 7)]
    assert found == [0, 0, 0, 1, 1, 1]


def test_a_founder_with_enough_relatives_spreads_no_further() -> None:
    def taken(most: int | None, ancestors: Sequence[str]) -> int:
        population = begun(by_score(4, method={"most_relatives": most}, grid={"shape": "2x2"}))
        for cell, name in zip(population.cells, ancestors, strict=True):
            assert isinstance(cell.state, CellState)
            cell.state.ancestor = name
        # Cell 0 sees 1, the best, and 2; of cell 3 it knows nothing.
        tell(population, {0: (5.0, 0.1), 1: (1.0, 0.1), 2: (2.0, 0.1), 3: (0.1, 0.1)})
        return parent(looked(population, 0))

    assert taken(None, ["0", "7", "7", "7"]) == 1
    assert taken(3, ["0", "7", "7", "7"]) == 1
    assert taken(2, ["0", "7", "7", "7"]) == 0
    assert taken(2, ["0", "7", "8", "7"]) == 1
    assert taken(1, ["0", "7", "8", "7"]) == 0
    assert taken(2, ["7", "7", "7", "7"]) == 1  # it is one of them already
    assert taken(1, ["7", "7", "8", "8"]) == 1  # and stays one


# ---------------------------------------------------------------------------- what follows


def test_ancestors_and_lineages_follow_those_who_are_taken_over() -> None:
    population = begun(by_score())
    tell(population, {0: (5.0, 0.1), 1: (5.0, 0.1), 2: (1.0, 0.1)})
    population.play()
    parcels = population.parcels().values()
    assert [ancestor(parcel) for parcel in parcels] == ["2", "2", "2"]
    assert [lineage(parcel) for parcel in parcels] == ["2", "2", "2"]


def test_a_cell_that_diverges_falls_back_to_its_own_last_gan() -> None:
    population = begun(by_score(method={"mutation": False}))
    population.cells[2].gan.discriminator.learning_rate = 1e38
    tell(population, {0: (5.0, 0.1), 1: (1.0, 0.1), 2: (0.5, 0.1)})
    before = [whole(parcel) for parcel in population.parcels().values()]
    reports = population.play()
    assert [report.details["parents"]["generator"] for report in reports] == [2, 2, 2]
    assert all(report.diverged for report in reports)
    for cell, own in zip(population.cells, before, strict=True):
        assert same(gan_tensors(cell.gan), own)
        parcel = cell.parcel()
        assert (ancestor(parcel), lineage(parcel)) == (str(cell.index), str(cell.index))
    rates = [cell.gan.discriminator.learning_rate for cell in population.cells]
    assert rates == [0.01, 0.01, 1e38]


def scored_at_the_third_round() -> Population:
    population = begun(by_score(score={"samples": 12, "every": 3}, rounds=20))
    population.play()
    population.play()
    return population


def test_between_two_scores_a_gan_that_was_taken_over_has_the_score_of_its_original() -> None:
    """Otherwise its cell would look as bad as before, and take over and mutate round by round."""
    population = scored_at_the_third_round()
    tell(population, {0: (5.0, 0.1), 1: (5.0, 0.1), 2: (1.0, 0.1)})
    taken = [[report.details["parents"]["generator"] for report in population.play()]]
    assert [cell.assessment.score for cell in population.cells if cell.assessment] == [1.0] * 3
    taken += [[report.details["parents"]["generator"] for report in population.play()]]
    assert taken == [[2, 2, 2], [0, 1, 2]]


def test_a_cell_that_diverged_keeps_its_own_score() -> None:
    population = scored_at_the_third_round()
    population.cells[2].gan.discriminator.learning_rate = 1e38
    tell(population, {0: (5.0, 0.1), 1: (4.0, 0.1), 2: (1.0, 0.1)})
    assert all(report.diverged for report in population.play())
    found = [cell.assessment.score for cell in population.cells if cell.assessment]
    assert found == [5.0, 4.0, 1.0]


def test_a_taken_over_cell_trains_on_its_own_batches() -> None:
    population = begun(by_score(method={"mutation": False}))
    tell(population, {0: (5.0, 0.1), 1: (5.0, 0.1), 2: (1.0, 0.1)})
    population.play()
    ends = [gan_tensors(cell.gan) for cell in population.cells]
    assert not same(ends[0], ends[2])
    assert not same(ends[0], ends[1])


# ---------------------------------------------------------------------------- off


def played(config: Config) -> tuple[Population, list[RoundReport]]:
    dataset = tiny_dataset()
    population = Population(config, dataset, pixel_scorer(dataset))
    return population, [report for _ in range(3) for report in population.play()]


@pytest.mark.parametrize("off", [{"communication": False}, {"selection": False}])
def test_without_neighbours_or_selection_it_is_independent_bit_for_bit(off: dict[str, Any]) -> None:
    ours, reports = played(by_score(method={"mutation": False, "margin": 0.0, **off}))
    theirs, _ = played(
        tiny_config(method={"name": "independent"}, grid={"shape": "1x3"}, training=AVERAGED)
    )
    for one, other in zip(ours.parcels().values(), theirs.parcels().values(), strict=True):
        assert same(one.tensors, other.tensors)
        assert one.meta["genes"] == other.meta["genes"]
    assert all(report.details["parents"]["generator"] == report.cell for report in reports)
    # With both on, somebody is taken over.
    _, reports = played(by_score(method={"margin": 0.0}))
    assert any(report.details["parents"]["generator"] != report.cell for report in reports)


# ---------------------------------------------------------------------------- what it needs


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ({"name": "cellular", "exchange": "score"}, "method.exchange"),
        (
            {
                "name": "class_parallel",
                "replicas": 2,
                "within": {"name": "cellular", "exchange": "score"},
            },
            "method.within.exchange",
        ),
    ],
    ids=["cellular", "within"],
)
def test_data_that_nothing_scores_are_refused(method: dict[str, Any], key: str) -> None:
    def config(changes: dict[str, Any]) -> Config:
        return tiny_config(method=changes, score={"extractor": "none"})

    dataset = labelled(tiny_dataset())
    with pytest.raises(ConfigError) as caught:
        Run.prepare(config(method), dataset)
    assert str(caught.value) == (
        f"{key}=score: nothing scores {dataset.name} (score.extractor=none); allowed: another "
        f"extractor, or {key}=loss"
    )
    within = method.get("within")
    unselective = {**method, "selection": False}
    if within is not None:
        unselective = {**method, "within": {**within, "selection": False}}
    assert Run.prepare(config(unselective), dataset).scorer is None


@pytest.mark.parametrize("exchange", ["score", "average"])
def test_opponents_from_the_neighbourhood_are_refused(exchange: str) -> None:
    method = {"name": "cellular", "exchange": exchange, "opponents": "subpopulation"}
    with pytest.raises(ConfigError) as caught:
        validate({"method": method})
    assert str(caught.value) == (
        f"method.opponents=subpopulation does not go with method.exchange={exchange}, which keeps "
        "the pairs that train; allowed: partner"
    )


def test_replicas_of_a_label_take_each_other_over_and_nobody_else() -> None:
    within = {"name": "cellular", "exchange": "score", "margin": 0.0}
    method = {"name": "class_parallel", "replicas": 2, "within": within}
    dataset = labelled(tiny_dataset(48), 2)
    population = Population(tiny_config(method=method), dataset, pixel_scorer(dataset))
    found = set()
    for _ in range(4):
        for report in population.play():
            found.add((report.cell, report.details["parents"]["generator"]))
    assert {(cell % 2, other % 2) for cell, other in found} == {(0, 0), (1, 1)}
    assert any(cell != other for cell, other in found)


def test_a_cell_keeps_what_it_is_when_it_is_restored() -> None:
    population = begun(by_score())
    cell = population.cells[0]
    tell(population, {0: (5.0, 0.1), 1: (5.0, 0.1), 2: (1.0, 0.1)})
    population.play()
    twin: Cell = population.method.cell(0, population.dataset, cell.view, None)
    twin.restore(cell.parcel())
    assert twin.state == cell.state
    assert genes(twin.gan) == genes(cell.gan)
    assert strip_prefix("generator.", cell.parcel().tensors)
