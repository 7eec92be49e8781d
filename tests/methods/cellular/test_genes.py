"""Genes: drawn and mutated within their ranges, carried by parcels, and felt in training."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.config import CellularSettings, Config
from remuda.gan.cell import Cell
from remuda.gan.learner import Gan
from remuda.gan.parcels import Parcel, decode_parcel
from remuda.methods.cellular.genes import SMALLEST_LEARNING_RATE, draw_genes, mutate
from remuda.streams import Streams
from tests.tiny import (
    Population,
    gan_tensors,
    labelled,
    same,
    tiny_cell,
    tiny_config,
    tiny_dataset,
)

AVERAGED: dict[str, Any] = {"average": 4.0, "average_ramp": 0.5, "r1_every": 1}
RANGES: dict[str, Any] = {"learning_rate": [1e-4, 1e-2], "r1": [0.01, 10.0], "average": [2.0, 99.0]}
LIMITS = st.tuples(st.floats(1e-8, 1e4), st.floats(1e-8, 1e4)).map(sorted)


def cellular(**settings: Any) -> CellularSettings:
    return CellularSettings.model_validate({"name": "cellular", **settings})


def new_gan() -> Gan:
    return tiny_cell(tiny_config(training=AVERAGED)).gan


def genes(gan: Gan) -> dict[str, Any]:
    return {role: learner.genes() for role, learner in gan.roles}


def config_with(ranges: dict[str, Any], **method: Any) -> Config:
    return tiny_config(
        method={"name": "cellular", "genes": ranges, **method}, training=AVERAGED, rounds=3
    )


# ---------------------------------------------------------------------------- ranges


@given(
    limits=st.fixed_dictionaries({"learning_rate": LIMITS, "r1": LIMITS, "average": LIMITS}),
    seed=st.integers(0, 2**62),
    step=st.floats(0, 5),
)
def test_draws_and_mutations_stay_within_the_ranges(
    limits: dict[str, Any], seed: int, step: float
) -> None:
    settings = cellular(genes={**limits, "step": step}, mutation_probability=1.0)
    gan, streams = new_gan(), Streams(seed, 0, 0)
    for round in range(4):
        if round == 0:
            draw_genes(gan, settings, streams)
        else:
            assert mutate(gan, settings, Streams(seed, 0, round))
        for name, found in (
            ("learning_rate", gan.generator.learning_rate),
            ("learning_rate", gan.discriminator.learning_rate),
            ("r1", gan.discriminator.r1),
            ("average", gan.generator.half_life),
        ):
            assert found is not None
            assert limits[name][0] <= found <= limits[name][1], (name, found)


def test_both_networks_start_with_one_rate_and_cells_with_their_own() -> None:
    population = Population(config_with(RANGES))
    rates = [cell.gan.generator.learning_rate for cell in population.cells]
    assert rates == [cell.gan.discriminator.learning_rate for cell in population.cells]
    assert len(set(rates)) == 4
    assert len({cell.gan.discriminator.r1 for cell in population.cells}) == 4
    assert len({cell.gan.generator.half_life for cell in population.cells}) == 4
    # Of R1 the discriminator's counts, and of the average the generator's.
    assert {cell.gan.generator.r1 for cell in population.cells} == {0.0}
    assert {cell.gan.discriminator.half_life for cell in population.cells} == {None}


def test_first_values_are_even_in_the_logarithm() -> None:
    settings, gan, found = cellular(genes={"learning_rate": [1e-4, 1e-2]}), new_gan(), []
    for cell in range(600):
        draw_genes(gan, settings, Streams(3, cell, 0))
        found.append(math.log10(gan.generator.learning_rate))
    thirds = torch.histc(torch.tensor(found), 4, -4, -2)
    assert thirds.min() > 110  # of 150


def test_the_same_seed_draws_the_same_genes() -> None:
    def drawn(seed: int) -> list[dict[str, Any]]:
        config = config_with(RANGES, losses=["minimax", "least_squares"])
        population = Population(config.model_copy(update={"seed": seed}))
        return [genes(cell.gan) for cell in population.cells]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


@pytest.mark.parametrize(
    ("ranges", "exchange", "drawn"),
    [
        (RANGES, "score", True),
        ({}, "score", True),  # where who is not taken over never mutates
        (RANGES, "loss", True),
        ({}, "loss", False),  # Mustangs draws one in every round
    ],
)
def test_first_losses_are_drawn_where_there_are_ranges_or_scores(
    ranges: dict[str, Any], exchange: str, drawn: bool
) -> None:
    losses = ["minimax", "least_squares"]
    population = Population(config_with(ranges, losses=losses, exchange=exchange))
    found = {cell.gan.generator.objective.name for cell in population.cells}
    assert found <= set(losses) if drawn else found == {"heuristic"}


def test_without_ranges_nothing_is_drawn() -> None:
    population = Population(config_with({}))
    wanted = {
        "generator": {"learning_rate": 0.01, "loss": "heuristic", "r1": 0.0, "average": 4.0},
        "discriminator": {"learning_rate": 0.01, "loss": "heuristic", "r1": 0.0},
    }
    assert all(genes(cell.gan) == wanted for cell in population.cells)


def test_without_ranges_learning_rates_take_the_steps_of_the_articles() -> None:
    gan, streams = new_gan(), Streams(3, 1, 2)
    settings = cellular(mutation_rate=1e-3, losses=["minimax", "heuristic"])
    rng = streams.choices("mutation")
    wanted = {}
    for role in ("generator", "discriminator"):
        chance, step = rng.random(), rng.normal(0, 1e-3)
        if chance < 0.5:
            wanted[f"lr_{role}"] = [0.01, max(SMALLEST_LEARNING_RATE, 0.01 + step)]
    loss = str(rng.choice(("minimax", "heuristic")))
    assert mutate(gan, settings, streams) == {**wanted, "loss": ["heuristic", loss]}
    assert (gan.discriminator.r1, gan.generator.half_life) == (0.0, 4.0)


@pytest.mark.parametrize("gene", RANGES)
def test_only_genes_with_ranges_change(gene: str) -> None:
    settings = cellular(genes={gene: RANGES[gene]}, mutation_probability=1.0)
    gan = new_gan()
    draw_genes(gan, settings, Streams(3, 0, 0))
    done = mutate(gan, settings, Streams(3, 0, 1))
    rates = {"lr_generator", "lr_discriminator"}
    assert set(done) == (rates if gene == "learning_rate" else {gene})
    assert (gan.generator.learning_rate == 0.01) == (gene != "learning_rate")
    assert (gan.discriminator.r1 == 0.0) == (gene != "r1")
    assert (gan.generator.half_life == 4.0) == (gene != "average")


@pytest.mark.parametrize("changes", [{"mutation": False}, {"mutation_probability": 0.0}])
def test_genes_that_do_not_mutate_stay(changes: dict[str, Any]) -> None:
    settings, gan = cellular(genes=RANGES, losses=["minimax"], **changes), new_gan()
    draw_genes(gan, settings, Streams(3, 0, 0))
    before = genes(gan)
    assert mutate(gan, settings, Streams(3, 0, 1)) == {}
    assert genes(gan) == before


def test_the_winners_genes_are_worth_knowing_wherever_cells_differ_in_them() -> None:
    assert Population(config_with(RANGES)).method.evolves_genes
    assert Population(config_with(RANGES, mutation=False)).method.evolves_genes
    assert not Population(config_with({})).method.evolves_genes


# ---------------------------------------------------------------------------- wherever cells begin


def test_cells_that_begin_with_earlier_gans_draw_their_genes_too() -> None:
    """Their first parcels are those of probes."""
    population = Population(config_with(RANGES))
    for cell in population.cells:
        probe = population.method.probe(cell.index, population.dataset, cell.view)
        assert genes(probe.gan) == genes(cell.gan)


def test_replicas_of_a_label_draw_their_genes_too() -> None:
    within = {"name": "cellular", "genes": {"learning_rate": [1e-4, 1e-2]}}
    method = {"name": "class_parallel", "replicas": 2, "within": within}
    population = Population(tiny_config(method=method), labelled(tiny_dataset(), 2))
    assert len({cell.gan.generator.learning_rate for cell in population.cells}) == 4


# ---------------------------------------------------------------------------- parcels


def changed_cell() -> Cell:
    cell = tiny_cell(tiny_config(training=AVERAGED))
    gan = cell.gan
    gan.generator.learning_rate, gan.discriminator.learning_rate = 0.003, 0.004
    gan.discriminator.r1, gan.generator.half_life = 0.7, 11.0
    return cell


def test_genes_survive_a_parcel() -> None:
    cell = changed_cell()
    cell.train(cell.gan)
    parcel = decode_parcel(cell.parcel().encoded)
    other = tiny_cell(tiny_config(training=AVERAGED), index=1)
    assert genes(other.host(parcel)) == genes(cell.gan)
    assert genes(other.gan) != genes(cell.gan)
    twin = tiny_cell(tiny_config(training=AVERAGED))
    twin.restore(parcel)
    for one in (cell, twin, twin):
        assert genes(one.gan) == genes(cell.gan)
        assert genes(one.gan.clone()) == genes(cell.gan)
    for one in (cell, twin):
        one.round = 2
        one.train(one.gan)
    assert same(gan_tensors(twin.gan), gan_tensors(cell.gan))


def test_parcels_of_earlier_versions_have_the_genes_of_the_configuration() -> None:
    cell = tiny_cell(tiny_config(training={**AVERAGED, "r1": 0.3}))
    parcel = cell.parcel()
    meta = json.loads(json.dumps(parcel.meta))
    for role in ("generator", "discriminator"):
        del meta["genes"][role]["r1"]
    del meta["genes"]["generator"]["average"]
    cell.restore(Parcel(0, 0, parcel.tensors, meta))
    assert (cell.gan.discriminator.r1, cell.gan.generator.half_life) == (0.3, 4.0)


@pytest.mark.parametrize("value", [math.nan, -1.0, math.inf])
@pytest.mark.parametrize(
    ("role", "gene", "says"),
    [
        ("discriminator", "r1", "R1 weight of"),
        ("generator", "average", "half-life of"),
        ("generator", "learning_rate", "learning rate of"),
    ],
)
def test_genes_that_cannot_be_are_refused(role: str, gene: str, says: str, value: float) -> None:
    cell = tiny_cell(tiny_config(training=AVERAGED))
    parcel = cell.parcel()
    meta = copy.deepcopy(dict(parcel.meta))
    meta["genes"][role][gene] = value
    with pytest.raises(ValueError, match=says):
        cell.restore(replace(parcel, meta=meta))


def test_an_r1_of_zero_is_no_r1_and_a_half_life_of_zero_is_none() -> None:
    cell = changed_cell()
    meta = copy.deepcopy(dict(cell.parcel().meta))
    meta["genes"]["discriminator"]["r1"] = 0.0
    cell.restore(replace(cell.parcel(), meta=meta))
    assert cell.gan.discriminator.r1 == 0.0
    meta["genes"]["generator"]["average"] = 0.0
    with pytest.raises(ValueError, match="half-life"):
        cell.restore(replace(cell.parcel(), meta=meta))


# ---------------------------------------------------------------------------- what they do


def trained(cell: Cell) -> dict[str, torch.Tensor]:
    for cell.round in (1, 2):
        cell.train(cell.gan)
    return gan_tensors(cell.gan)


def test_r1s_gene_is_r1s_setting_in_the_discriminators_steps() -> None:
    gene, setting, without = (
        tiny_cell(tiny_config(training={**AVERAGED, "r1": r1})) for r1 in (0.0, 5.0, 0.0)
    )
    gene.gan.discriminator.r1 = 5.0
    found, wanted, plain = map(trained, (gene, setting, without))
    assert same(found, wanted)
    assert not same(found, plain)


def test_the_half_lifes_gene_is_its_setting_in_the_average_and_nothing_else() -> None:
    gene, setting, without = (
        tiny_cell(tiny_config(training={**AVERAGED, "average": half_life}))
        for half_life in (4.0, 1.0, 4.0)
    )
    gene.gan.generator.half_life = 1.0
    found, wanted, plain = map(trained, (gene, setting, without))
    assert same(found, wanted)
    differing = {name for name in plain if not torch.equal(found[name], plain[name])}
    assert differing
    assert all(name.startswith("generator.average.") for name in differing)


def test_events_tell_the_genes() -> None:
    population = Population(config_with(RANGES))
    reports = population.play()
    for report, cell in zip(reports, population.cells, strict=True):
        assert report.genes.r1 == cell.gan.discriminator.r1 > 0
        assert report.genes.average == cell.gan.generator.half_life
