"""One GAN per label: who sees what, what the labels' shares are, and replicas that exchange."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remuda.config import validate
from remuda.data import Dataset, StoredItems
from remuda.errors import ConfigError, DataError
from remuda.gan.parcels import ASSESSMENT, parcel_assessment
from remuda.methods import build_method, resolved
from remuda.methods.class_parallel import ClassParallel
from remuda.metrics import Scorer
from remuda.parallel import engines
from remuda.parallel.engines import Engine
from remuda.runs.ensemble import Ensemble, Member
from remuda.runs.prepare import Run
from remuda.runs.scoring import score_ensemble
from remuda.runs.store import RunFolder
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

ALONE = {"name": "class_parallel"}
BIG_TOURNAMENT = {"name": "cellular", "tournament_size": 3}


def unequal(*counts: int) -> Dataset:
    """Items of which label k has counts[k], shuffled."""
    dataset = tiny_dataset(sum(counts))
    labels = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(0).shuffle(labels)
    names = tuple("abcdefgh"[: len(counts)])
    return replace(dataset, labels=torch.from_numpy(labels), label_names=names)


def class_parallel(**settings: Any) -> dict[str, Any]:
    return {**ALONE, **settings}


def test_the_grid_follows_from_the_labels() -> None:
    config = tiny_config(method=class_parallel(replicas=2), grid="5x5")
    found = resolved(config, unequal(6, 7, 8))
    assert found.grid.shape == (2, 3)
    assert resolved(found, unequal(6, 7, 8)) == found


def test_a_cell_sees_all_items_of_its_label_and_no_other() -> None:
    dataset = unequal(6, 7, 8)
    method = build_method(resolved(tiny_config(method=class_parallel(replicas=2)), dataset))
    assert dataset.labels is not None
    for cell in range(6):
        seen = method.view(dataset, cell)
        assert set(dataset.labels[seen].tolist()) == {cell % 3}
        assert len(seen) == (6, 7, 8)[cell % 3]


def test_what_other_labels_look_like_changes_nothing() -> None:
    dataset = labelled(tiny_dataset())
    assert dataset.labels is not None
    poisoned = dataset.items[:].clone()
    poisoned[dataset.labels != 1] = torch.nan
    found = []
    for items in (dataset.items, StoredItems(poisoned)):
        population = Population(tiny_config(method=ALONE), replace(dataset, items=items))
        cell = population.cells[1]
        cell.round = 1
        cell.train(cell.gan)
        found.append(gan_tensors(cell.gan))
    assert same(*found)


@pytest.mark.parametrize("network", [{}, DCGAN])
def test_with_a_single_label_it_is_independent_bit_for_bit(network: dict[str, Any]) -> None:
    dataset = labelled(tiny_dataset(), classes=1)
    changes: dict[str, Any] = {"grid": "1x1"} | ({"network": network} if network else {})
    own = Population(tiny_config(method=ALONE, **changes), dataset, pixel_scorer(dataset))
    other = Population(
        tiny_config(method={"name": "independent"}, **changes), dataset, pixel_scorer(dataset)
    )
    for _ in range(3):
        own.play(), other.play()
    assert same(gan_tensors(own.cells[0].gan), gan_tensors(other.cells[0].gan))
    scorer = pixel_scorer(dataset)
    assert own.method.ensemble(own.parcels(), scorer).weights == {0: 1.0}


def test_labels_are_drawn_as_often_as_in_the_data_or_as_configured() -> None:
    dataset = unequal(6, 12, 18)
    population = Population(tiny_config(method=ALONE), dataset)
    population.play()
    weights = population.method.ensemble(population.parcels(), None).weights
    assert weights == pytest.approx({0: 1 / 6, 1: 1 / 3, 2: 1 / 2})
    chosen = Population(tiny_config(method=class_parallel(prior=[2, 1, 1])), dataset)
    chosen.play()
    weights = chosen.method.ensemble(chosen.parcels(), None).weights
    assert weights == pytest.approx({0: 0.5, 1: 0.25, 2: 0.25})


def test_the_population_is_scored_as_the_mixture_and_a_cell_by_its_own_label() -> None:
    dataset = unequal(8, 16)
    scorer = pixel_scorer(dataset)
    population = Population(tiny_config(method=ALONE), dataset, scorer)
    reports = population.play()
    assert all(report.classes is None for report in reports)
    mixture = population.method.ensemble(population.parcels(), scorer)
    parts = [cell.assessment for cell in population.cells]
    assert mixture.score == scorer.mixture([part for part in parts if part], [1 / 3, 2 / 3])
    cell = population.cells[1]
    own = Scorer(scorer.extractor, dataset.items[cell.view], "fid")
    assert reports[1].score == own.assess(cell.images(12, "assess")).score
    assert [report.details["label"] for report in reports] == ["a", "b"]


def test_a_label_with_less_than_a_batch_trains_with_what_there_is() -> None:
    config = tiny_config(method=ALONE, training={"batch_size": 6, "learning_rate": 0.01})
    run = Run.prepare(config, unequal(4, 20))
    assert run.warnings == [
        "cell 0 sees 4 items, fewer than training.batch_size=6 (label a): "
        "it trains with batches of that many"
    ]
    population = Population(config, unequal(4, 20))
    losses = [report.losses for report in population.play()]
    assert [(one.batches, one.images) for one in losses] == [(1, 4), (3, 18)]


def test_a_cell_costs_what_it_trains_on_in_a_round() -> None:
    training = {"batch_size": 6, "learning_rate": 0.01}
    terms = Run.prepare(tiny_config(method=ALONE, training=training), unequal(4, 20))
    assert terms.costs == {0: 4.0, 1: 18.0}
    training["batches_per_round"] = 2
    fixed = Run.prepare(tiny_config(method=ALONE, training=training), unequal(4, 20, 100))
    assert fixed.costs == {0: 8.0, 1: 12.0, 2: 12.0}


def test_a_critic_counts_its_batches_across_rounds() -> None:
    """A label of one batch per round trains its generator in every third round."""
    training = {"batch_size": 6, "objective": "wasserstein", "n_critic": 3}
    config = tiny_config(method=ALONE, training=training, rounds=4)
    Run.prepare(config, unequal(6, 18))
    population = Population(config, unequal(6, 18))
    trained = []
    for _ in range(4):
        before = generator_weights(population)
        population.play()
        trained.append(not same(before, generator_weights(population)))
    assert trained == [False, False, True, False]
    with pytest.raises(ConfigError, match=r"batches of cell 0 in each of rounds=2.*1 to 2"):
        Run.prepare(tiny_config(method=ALONE, training=training, rounds=2), unequal(6, 18))


def generator_weights(population: Population) -> dict[str, torch.Tensor]:
    tensors = gan_tensors(population.cells[0].gan)
    return {name: value for name, value in tensors.items() if name.startswith("generator.network.")}


def test_held_out_items_of_other_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.validation=5 holds out items of all labels"):
        tiny_config(method=ALONE, data={"validation": 5})


@pytest.mark.parametrize("within", ["gap", "cellular"])
def test_replicas_that_exchange_must_have_equal_networks(within: str) -> None:
    config = tiny_config(
        method=class_parallel(replicas=2, within={"name": within}),
        members=[{}, {}, {"network": {**MLP, "hidden": [3]}}, {}],
    )
    with pytest.raises(ConfigError, match=f"cells 0 and 2, replicas.*method.within={within}"):
        Run.prepare(config, unequal(8, 8))


@pytest.mark.parametrize(("count", "says"), [(0, "label b has no images"), (1, "label b has 1 im")])
def test_an_empty_label_is_named(count: int, says: str) -> None:
    with pytest.raises(DataError, match=says):
        Run.prepare(tiny_config(method=ALONE), unequal(8, count, 8))


def test_data_without_labels_are_refused() -> None:
    with pytest.raises(DataError, match=r"has no labels.*allowed: data with labels, or method=ind"):
        Run.prepare(tiny_config(method=ALONE), tiny_dataset())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"method": class_parallel(within={"name": "gap"})},
            "allowed: method.replicas of at least",
        ),
        ({"data": {"view": "share"}}, r"data.view=share: .* allowed: all"),
        ({"grid": {"schedule": [{"round": 2, "neighbourhood": "ring"}]}}, "follows from the label"),
        ({"method": class_parallel(prior=[1, -1])}, r"method.*prior.*1"),
        ({"method": class_parallel(replicas=2, within=BIG_TOURNAMENT)}, "allowed: 1 to 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate({"method": ALONE, **changes})


def test_a_prior_for_another_number_of_labels_is_refused() -> None:
    config = tiny_config(method=class_parallel(prior=[1, 1]))
    with pytest.raises(ConfigError, match=r"method.prior has 2 shares and .* 3 labels"):
        resolved(config, unequal(6, 6, 6))


# ---------------------------------------------------------------------------- replicas


@pytest.mark.parametrize("within", ["cellular", "gap"])
def test_replicas_exchange_with_those_of_their_label_only(within: str) -> None:
    settings = class_parallel(replicas=3, within={"name": within})
    population = Population(tiny_config(method=settings), unequal(8, 8))
    met: set[tuple[int, int]] = set()
    for round in range(1, 12):
        for own in range(6):
            for peer in population.method.peers(own, round):
                assert peer % 2 == own % 2
                assert peer != own
                met.add((own, peer))
    assert len(met) == 6 * 2  # sooner or later, all of a label
    before = [gan_tensors(cell.gan) for cell in population.cells]
    population.play(), population.play()
    for cell, start in zip(population.cells, before, strict=True):
        assert not same(gan_tensors(cell.gan), start)


def test_replicas_without_exchange_never_meet() -> None:
    method = build_method(resolved(tiny_config(method=class_parallel(replicas=3)), unequal(8, 8)))
    assert all(method.peers(cell, round) == () for cell in range(6) for round in range(1, 5))


@pytest.mark.parametrize("metric", ["fid", "is"])
def test_the_best_replica_of_each_label_is_kept(metric: str) -> None:
    dataset = unequal(8, 8)
    scorer = pixel_scorer(dataset, metric)
    config = tiny_config(method=class_parallel(replicas=3), score={"metric": metric, "samples": 12})
    population = Population(config, dataset, scorer)
    scores = [report.score or 0.0 for report in population.play()]
    chosen = population.method.ensemble(population.parcels(), scorer).weights
    assert isinstance(population.method, ClassParallel)
    for label in range(2):
        cells = range(label, 6, 2)
        # Whatever ranks populations: inception score would praise a label for showing others.
        assert min(cells, key=lambda cell: scores[cell]) in chosen
    assert list(chosen.values()) == [0.5, 0.5]


def test_replicas_that_nobody_scores_are_all_kept() -> None:
    config = tiny_config(method=class_parallel(replicas=2))
    population = Population(config, unequal(6, 18))
    population.play()
    chosen = population.method.ensemble(population.parcels(), None)
    assert chosen.weights == pytest.approx({0: 0.125, 2: 0.125, 1: 0.375, 3: 0.375})
    assert chosen.score is None


def test_a_score_that_is_no_number_loses() -> None:
    dataset = unequal(12, 12)
    scorer = pixel_scorer(dataset)
    population = Population(tiny_config(method=class_parallel(replicas=2)), dataset, scorer)
    population.play()
    parcels = population.parcels()
    assessment = parcel_assessment(parcels[0])
    assert assessment is not None
    lost = replace(assessment, score=float("nan")).tensors()
    tensors = {**parcels[0].tensors, **{f"{ASSESSMENT}{key}": part for key, part in lost.items()}}
    parcels[0] = replace(parcels[0], tensors=tensors)
    assert 0 not in population.method.ensemble(parcels, scorer).weights


# ---------------------------------------------------------------------------- engines and scores


@pytest.mark.parametrize(("cores", "engine"), [(1, "local"), (4, "process")])
def test_the_engine_counts_the_cells_that_the_data_make(
    cores: int, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grid of one cell in the settings says nothing: there will be a cell per label."""
    for name in ("local", "process"):
        monkeypatch.setitem(engines.ENGINES, name, lambda *_, name=name: name)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    run = Run.prepare(tiny_config(method=ALONE, grid="1x1"), unequal(8, 8, 8))
    started: object = Engine("auto").start(run, RunFolder(tmp_path))
    assert started == engine


def test_the_extractor_of_the_data_says_how_often_samples_show_their_label() -> None:
    network = {"family": "class_dcgan", "width": 8, "latent": 4}
    data = {"source": "digits", "limit": 300}
    config = tiny_config(method=ALONE, network=network, data=data, score={"extractor": "auto"})
    run = Run.prepare(config)
    assert run.scorer is not None
    population = Population(run.config, run.dataset)
    members = [
        Member(cell.index, 0.1, cell.gan.generator.network.state_dict(), label=cell.index)
        for cell in population.cells
    ]
    ensemble = Ensemble(run.config.network, (1, 28, 28), tuple(members), labels=run.labels)
    found = score_ensemble(run, ensemble, samples=50, seed=1)
    samples, labels = ensemble.draw_labelled(50, 1)
    guesses = run.scorer.extractor(samples).logits.argmax(1)
    assert labels is not None
    assert found is not None
    assert found.values["accuracy"] == sum(map(int, guesses == labels)) / 50
