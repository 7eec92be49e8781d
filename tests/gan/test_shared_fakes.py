"""Fakes made once for both turns of a batch: a plain loop as the reference, and when it is so."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from remuda.gan.cell import Cell
from remuda.gan.game import Rivals
from remuda.gan.networks import draw_noise
from remuda.gan.penalties import batch_norms
from tests.tiny import DCGAN, MLP, gan_tensors, one_thread, same, tiny_cell, tiny_config
from tests.tiny import tiny_dataset as images


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def cell_of(network: dict[str, Any] = MLP, **training: Any) -> Cell:
    config = tiny_config(network=network, training={"share_fakes": True, **training})
    return tiny_cell(config, images(side=16))


def written_out(cell: Cell) -> tuple[nn.Module, nn.Module]:
    """A round of GAN training as one writes it by hand, the fakes of a batch made once."""
    generator = copy.deepcopy(cell.gan.generator.network).train()
    discriminator = copy.deepcopy(cell.gan.discriminator.network).train()
    rate, betas = cell.training.learning_rate, cell.training.betas
    for_generator, for_discriminator = (
        torch.optim.Adam(network.parameters(), lr=rate, betas=betas, fused=True)
        for network in (generator, discriminator)
    )
    rng = cell.streams.tensors("training-noise")
    for picked in cell._batches():
        real = cell.dataset.items[picked]
        fake = generator(draw_noise(cell.network, len(real), rng))
        loss = 0.5 * (
            softplus(-discriminator(real)).mean() + softplus(discriminator(fake.detach())).mean()
        )
        for_discriminator.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for_discriminator.step()
        for_generator.zero_grad()
        loss = 0.5 * softplus(-discriminator(fake)).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        for_generator.step()
    return generator, discriminator


@pytest.mark.parametrize("network", [MLP, DCGAN], ids=["mlp", "dcgan with batch norm"])
def test_it_is_the_loop_with_one_pass_per_batch(network: dict[str, Any]) -> None:
    cell = cell_of(network, learning_rate=0.001)
    generator, discriminator = written_out(cell)
    cell.train(cell.gan)
    for found, wanted in (
        (cell.gan.generator.network, generator),
        (cell.gan.discriminator.network, discriminator),
    ):
        for name, value in found.state_dict().items():
            torch.testing.assert_close(
                value, wanted.state_dict()[name], rtol=1e-3, atol=1e-5, msg=name
            )


class Passes:
    """Counts what goes through a generator, and whether it has a graph."""

    def __init__(self, network: nn.Module) -> None:
        self.graphs: list[bool] = []
        network.register_forward_hook(self._count)

    def _count(self, _network: nn.Module, _given: Any, made: Tensor) -> None:
        self.graphs.append(made.requires_grad)


@pytest.mark.parametrize(
    ("training", "graphs"),
    [
        ({"share_fakes": False}, [False, True] * 4),
        ({}, [True] * 4),
        # Where only one of the two plays, it has a pass of its own, as ever.
        ({"n_critic": 2}, [False, True, False, True]),
        ({"skip_n_disc_steps": 1}, [True] * 4),
    ],
    ids=str,
)
def test_a_batch_takes_one_pass_where_both_play(
    training: dict[str, Any], graphs: list[bool]
) -> None:
    cell = cell_of(**training)
    passes = Passes(cell.gan.generator.network)
    cell.train(cell.gan)
    assert passes.graphs == graphs


def test_against_a_rival_the_generator_makes_its_own() -> None:
    cell = cell_of(batches_per_round=12)
    rival = cell.gan.clone().generator.network.eval()
    passes, theirs = Passes(cell.gan.generator.network), Passes(rival)
    draws = cell.streams.choices("opponents").integers([2, 1], size=(12, 2))[:, 0]
    cell.train(cell.gan, Rivals([rival]))
    assert 0 < draws.sum() < 12
    assert theirs.graphs == [False] * draws.sum()
    assert passes.graphs == [True] * 12


@pytest.mark.parametrize("share", [False, True])
def test_batch_norm_counts_a_pass_once(share: bool) -> None:
    cell = cell_of(DCGAN, share_fakes=share)
    cell.train(cell.gan)
    counts = {
        int(norm.num_batches_tracked)
        for norm in batch_norms(cell.gan.generator.network)
        if norm.num_batches_tracked is not None
    }
    assert counts == {4 if share else 8}


def test_the_discriminators_step_reaches_no_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cell_of()
    before = gan_tensors(cell.gan)
    monkeypatch.setattr(cell.gan.generator, "descend", lambda _: None)
    cell.train(cell.gan)
    after = gan_tensors(cell.gan)
    assert all(
        torch.equal(value, after[name])
        for name, value in before.items()
        if name.startswith("generator.")
    )
    assert not same(before, after)


@pytest.mark.parametrize(
    "training",
    [
        {"augment": ["translation", "cutout"]},
        {"input_noise": [[1, 0.2]]},
        {"objective": "relativistic"},
        {"objective": "wasserstein", "lipschitz": "gradient_penalty", "n_critic": 2},
        {"objective": "hinge", "r1": 0.5, "r1_every": 2, "average": 4},
    ],
    ids=str,
)
def test_it_goes_with_whatever_else_there_is(training: dict[str, Any]) -> None:
    shared, apart = (cell_of(share_fakes=share, **training) for share in (True, False))
    for cell in (shared, apart):
        cell.train(cell.gan)
        assert cell.gan.is_finite()
    assert not same(gan_tensors(shared.gan), gan_tensors(apart.gan))


def test_conditional_networks_share_fakes_and_their_labels() -> None:
    network = {"family": "class_dcgan", "latent": 4, "width": 8, "dropout": 0.2}
    network |= {"condition": "auxiliary", "classes": 2}
    config = tiny_config(
        network=network, method={"name": "independent"}, training={"share_fakes": True}
    )
    cell = tiny_cell(config, images(side=16, labels=True))
    passes = Passes(cell.gan.generator.network)
    cell.train(cell.gan)
    assert cell.gan.is_finite()
    assert passes.graphs == [True] * 4
