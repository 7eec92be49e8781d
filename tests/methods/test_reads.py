"""What a method says that it reads of its peers' parcels (`Method.reads`) is all that it needs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from remuda.clock import Clock
from tests.tiny import MLP, Population, pixel_scorer, tiny_config, tiny_dataset

AVERAGED = {"average": 4.0, "average_ramp": 0.5}
METHODS: dict[str, dict[str, Any]] = {
    "gap": {"name": "gap"},
    "gap-moves": {"name": "gap", "optimiser": "moves"},
    "gap-generators": {"name": "gap", "swap": "generators"},
    "gap-generators-move": {"name": "gap", "swap": "generators", "optimiser": "moves"},
    "averaging": {"name": "averaging"},
    "averaging-kept": {"name": "averaging", "moments": "kept"},
    "cellular": {"name": "cellular", "opponents": "subpopulation"},
}


def begun(method: dict[str, Any]) -> Population:
    dataset = tiny_dataset()
    training = {"batch_size": 6, "learning_rate": 0.01, **AVERAGED}
    network = {**MLP, "batch_norm": True}
    config = tiny_config(method=method, training=training, network=network)
    return Population(config, dataset, pixel_scorer(dataset))


@pytest.mark.parametrize("name", METHODS)
def test_a_cell_that_gets_no_more_than_it_reads_does_the_same(name: str) -> None:
    whole, sparing = begun(METHODS[name]), begun(METHODS[name])
    for round in (1, 2, 3):
        for population in (whole, sparing):
            for cell in population.cells:
                cell.round = round
                found = population.comm.collect(
                    population.method.peers(cell.index, round), round - 1
                )
                if population is sparing:
                    found = [parcel.only(population.method.reads) for parcel in found]
                population.method.advance(cell, found, Clock())
            for cell in population.cells:
                population.comm.publish(cell.parcel())
    for one, other in zip(whole.cells, sparing.cells, strict=True):
        mine, theirs = one.parcel(), other.parcel()
        assert mine.meta == theirs.meta
        assert mine.tensors.keys() == theirs.tensors.keys()
        assert all(torch.equal(mine.tensors[key], theirs.tensors[key]) for key in mine.tensors)


@pytest.mark.parametrize(
    ("name", "most"), [("gap", 0.2), ("gap-moves", 0.6), ("gap-generators", 0.5)]
)
def test_gap_reads_only_the_network_that_is_swapped(name: str, most: float) -> None:
    population = begun(METHODS[name])
    for cell in population.cells:
        cell.round = 1
        cell.train(cell.gan)
    parcel = population.cells[0].parcel()
    role = "generator" if "generators" in name else "discriminator"
    read = parcel.only(population.method.reads)
    assert read.tensors
    assert all(key.startswith(f"{role}.") for key in read.tensors)
    assert read.nbytes < most * parcel.nbytes
