"""Neighbours' GANs, read as views of their parcels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from remuda.clock import Clock
from remuda.gan.cell import Cell
from remuda.gan.guests import Guest
from remuda.gan.parcels import Parcel
from remuda.methods import build_method
from remuda.parallel.exchange import FolderExchange
from tests.tiny import tiny_config, tiny_dataset

MLP = {"family": "mlp", "latent": 3, "hidden": [5]}
NETWORKS = [MLP, {**MLP, "batch_norm": True}, {**MLP, "spectral_norm": True}]


def trained(index: int, network: dict[str, object] = MLP) -> Cell:
    """A cell after a round: its optimisers have moments, and batch norm has statistics."""
    method, dataset = build_method(tiny_config(network=network)), tiny_dataset()
    cell = method.cell(index, dataset, method.view(dataset, index), None)
    cell.round = 1
    cell.train(cell.gan)
    return cell


def copies(parcel: Parcel) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in parcel.tensors.items()}


def assert_untouched(parcel: Parcel, before: dict[str, Tensor]) -> None:
    assert all(torch.equal(parcel.tensors[name], value) for name, value in before.items())


@pytest.mark.parametrize("network", NETWORKS)
def test_a_guest_computes_what_a_copy_would(network: dict[str, object]) -> None:
    cell, parcel = trained(0, network), trained(1, network).parcel()
    guest, copied = Guest.of(cell, parcel), cell.host(parcel)
    noise, items = cell.noise_batch("test", 7), cell.dataset.items[:7]
    with torch.no_grad():
        fakes = guest.generator.network(noise)
        assert torch.equal(fakes, copied.generator.network.eval()(noise))
        logits = guest.discriminator.network(items)
        assert torch.equal(logits, copied.discriminator.network.eval()(items))


def test_a_guest_shares_its_weights_with_the_parcel_and_asks_for_no_gradients() -> None:
    cell, parcel = trained(0), trained(1).parcel()
    guest = Guest.of(cell, parcel)
    for role, learner in (("generator", guest.generator), ("discriminator", guest.discriminator)):
        for name, value in learner.network.state_dict().items():
            assert value.data_ptr() == parcel.tensors[f"{role}.network.{name}"].data_ptr()
        assert not any(one.requires_grad for one in learner.network.parameters())
        assert not learner.network.training


def test_a_clone_of_a_guest_is_a_learner_with_moments_and_genes_of_its_own() -> None:
    cell, other = trained(0), trained(1)
    other.gan.generator.learning_rate = 0.123
    parcel = other.parcel()
    before = copies(parcel)
    twin = Guest.of(cell, parcel).generator.clone()
    assert twin.learning_rate == 0.123
    for name, value in twin.tensors().items():
        assert torch.equal(value, parcel.tensors[f"generator.{name}"])
        assert value.data_ptr() != parcel.tensors[f"generator.{name}"].data_ptr()
    cell.gan.generator = twin
    cell.round = 2
    cell.train(cell.gan)
    assert_untouched(parcel, before)


@pytest.mark.parametrize("padding", range(0, 64, 8))
def test_where_a_parcel_lies_in_memory_changes_no_bit(tmp_path: Path, padding: int) -> None:
    """A product with one column has other bits where its weights begin off a vector's border."""
    network = {"family": "mlp", "latent": 7, "hidden": [20, 10]}
    cell, parcel = trained(0, network), trained(1, network).parcel()
    exchange = FolderExchange(tmp_path)
    exchange.put(1, Parcel(1, 1, parcel.tensors, {**parcel.meta, "padding": "x" * padding}))
    (mapped,) = exchange.get(1, [1], 1)
    here, there = (Guest.of(cell, one).discriminator.network for one in (parcel, mapped))
    for count in range(5, 24):
        items = cell.dataset.items[:count]
        assert torch.equal(here(items), there(items))


def test_weights_that_do_not_fit_are_refused() -> None:
    cell, parcel = trained(0), trained(1).parcel()
    name = next(name for name in parcel.tensors if name.startswith("generator.network."))
    cut = {**parcel.tensors, name: parcel.tensors[name][:1]}
    with pytest.raises(ValueError, match="does not fit"):
        Guest.of(cell, Parcel(1, 1, cut, parcel.meta))
    del cut[name]
    with pytest.raises(ValueError, match="not the weights of this network"):
        Guest.of(cell, Parcel(1, 1, cut, parcel.meta))


@pytest.mark.parametrize("replacement", ["comma", "elitist"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_round_among_guests_writes_into_no_parcel(
    tmp_path: Path, network: dict[str, object], replacement: str
) -> None:
    settings = {"name": "cellular", "opponents": "subpopulation", "replacement": replacement}
    method = build_method(tiny_config(method=settings, network=network))
    dataset, exchange = tiny_dataset(), FolderExchange(tmp_path)
    cells = [method.cell(index, dataset, method.view(dataset, index), None) for index in range(4)]
    for cell in cells:
        exchange.put(1, cell.parcel())
    for round in (1, 2, 3):
        files = {path: path.read_bytes() for path in tmp_path.glob("term-1/cell-*")}
        for cell in cells:
            cell.round = round
            found = exchange.get(1, method.peers(cell.index, round), round - 1)
            before = [copies(parcel) for parcel in found]
            method.advance(cell, found, Clock())
            for parcel, values in zip(found, before, strict=True):
                assert_untouched(parcel, values)
        assert all(path.read_bytes() == content for path, content in files.items())
        for cell in cells:
            exchange.put(1, cell.parcel())
