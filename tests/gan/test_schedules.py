"""Learning rates over a run: the formula, a plain optimiser, genes, and runs cut into rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from remuda.config import TrainingSettings
from remuda.gan.cell import Cell
from remuda.gan.learner import Gan, Learner
from remuda.gan.optimisers import Adam
from remuda.gan.parcels import decode_parcel
from remuda.methods import METHODS
from tests.tiny import Population, gan_tensors, one_thread, same, take_step, tiny_cell, tiny_config

Rates = dict[str, list[float]]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def settings(**values: Any) -> TrainingSettings:
    return TrainingSettings.model_validate(values)


# ---------------------------------------------------------------------------- the formula


def reference(schedule: str, warmup: int, batch: int, batches: int) -> float:
    """The factor on one batch, in the words of the documentation."""
    done = batch / batches
    factor = {
        "constant": 1.0,
        "linear": 1 - done,
        "cosine": (1 + math.cos(math.pi * done)) / 2,
    }[schedule]
    if batch < warmup:
        factor *= (batch + 1) / warmup
    return factor


@pytest.mark.parametrize("warmup", [0, 1, 4, 50])
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_factor_is_that_of_the_formula(schedule: str, warmup: int) -> None:
    training = settings(schedule=schedule, warmup=warmup)
    found = [training.pace(batch, 20) for batch in range(20)]
    wanted = [reference(schedule, warmup, batch, 20) for batch in range(20)]
    assert found == pytest.approx(wanted)
    assert all(0 < factor <= 1 for factor in found)


def test_by_default_the_factor_is_exactly_one() -> None:
    assert {settings().pace(batch, 7) for batch in range(9)} == {1.0}


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_after_the_last_batch_there_is_nothing_left(schedule: str) -> None:
    """A run that goes on longer than it said does not learn backwards."""
    training = settings(schedule=schedule)
    assert training.pace(20, 20) == training.pace(35, 20) == 0


# ---------------------------------------------------------------------------- in training


def spied(monkeypatch: pytest.MonkeyPatch, cell: Cell) -> Rates:
    """The rate that the optimiser of either role had in every step."""
    rates: Rates = {"generator": [], "discriminator": []}
    step = Adam.step

    def spy(optimiser: Adam, gradients: Sequence[torch.Tensor], rate: float) -> None:
        role = next(role for role, one in cell.gan.roles if one.optimiser is optimiser)
        rates[role].append(rate)
        step(optimiser, gradients, rate)

    monkeypatch.setattr(Adam, "step", spy)
    return rates


def trained(monkeypatch: pytest.MonkeyPatch, rounds: int, **training: Any) -> Rates:
    cell = tiny_cell(tiny_config(rounds=rounds, training=training))
    with monkeypatch.context() as patch:
        rates = spied(patch, cell)
        for cell.round in range(1, rounds + 1):
            cell.train(cell.gan)
    return rates


def test_every_batch_of_every_round_has_the_rate_of_the_formula(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = trained(monkeypatch, 3, schedule="cosine", warmup=5, batches_per_round=4)
    wanted = [0.01 * reference("cosine", 5, batch, 12) for batch in range(12)]
    assert rates["generator"] == pytest.approx(wanted)
    assert rates["discriminator"] == rates["generator"]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_other_rounds_do_not_change_the_rates(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(rounds: int) -> Rates:
        length = 30 // rounds
        return trained(monkeypatch, rounds, schedule=schedule, warmup=7, batches_per_round=length)

    assert found(1) == found(5) == found(6) == found(10)


@pytest.mark.parametrize("more", [{"n_critic": 3}, {"skip_n_disc_steps": 2}], ids=str)
def test_a_network_that_sits_out_batches_ages_with_them(
    more: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = trained(monkeypatch, 2, schedule="linear", batches_per_round=6, **more)
    whole = [0.01 * (1 - batch / 12) for batch in range(12)]
    sits_out = "generator" if "n_critic" in more else "discriminator"
    plays = "discriminator" if "n_critic" in more else "generator"
    assert rates[plays] == pytest.approx(whole)
    assert rates[sits_out] == pytest.approx(whole[2::3] if "n_critic" in more else whole[::3])


def test_discriminators_may_have_a_rate_and_a_schedule_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = trained(
        monkeypatch,
        2,
        discriminator_learning_rate=0.04,
        discriminator_schedule="linear",
        batches_per_round=4,
    )
    assert rates["generator"] == [0.01] * 8
    assert rates["discriminator"] == pytest.approx([0.04 * (1 - batch / 8) for batch in range(8)])
    one = trained(monkeypatch, 1, schedule="linear", discriminator_schedule="constant")
    assert one["discriminator"] == [0.01] * 4
    assert one["generator"] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])


def test_a_step_is_that_of_a_plain_optimiser_whose_rate_is_set_by_hand() -> None:
    """Adam written with torch alone, over the batches of three rounds."""
    rng = torch.Generator().manual_seed(0)
    layer, twin = nn.Linear(3, 1), nn.Linear(3, 1)
    nn.init.normal_(layer.weight, generator=rng)
    twin.load_state_dict(layer.state_dict())
    learner = Learner(layer, settings(learning_rate=0.05, schedule="cosine", warmup=3))
    plain = torch.optim.Adam(twin.parameters(), lr=0.05, betas=(0.5, 0.999), fused=True)
    inputs = torch.randn(12, 5, 3, generator=rng)
    for batch, items in enumerate(inputs):
        learner.pace = learner.settings.pace(batch, len(inputs))
        take_step(learner, layer(items).square().mean())
        plain.param_groups[0]["lr"] = 0.05 * reference("cosine", 3, batch, len(inputs))
        plain.zero_grad()
        twin(items).square().mean().backward()
        plain.step()
    torch.testing.assert_close(layer.weight, twin.weight, rtol=1e-6, atol=1e-7)


def test_explicit_defaults_change_no_bit() -> None:
    same_words = {
        "schedule": "constant",
        "warmup": 0,
        "discriminator_learning_rate": 0.01,
        "discriminator_schedule": "constant",
        "share_fakes": False,
    }
    cells = [tiny_cell(tiny_config(training=training)) for training in ({}, same_words)]
    for cell in cells:
        cell.train(cell.gan)
    assert same(gan_tensors(cells[0].gan), gan_tensors(cells[1].gan))


def test_a_run_that_is_made_longer_follows_the_new_number(monkeypatch: pytest.MonkeyPatch) -> None:
    short, longer = (
        tiny_cell(tiny_config(rounds=rounds, training={"schedule": "linear"})) for rounds in (2, 4)
    )
    short.train(short.gan)
    longer.restore(short.parcel())
    longer.round = 2
    rates = spied(monkeypatch, longer)
    longer.train(longer.gan)
    assert rates["generator"] == pytest.approx([0.01 * (1 - batch / 16) for batch in range(4, 8)])


# ---------------------------------------------------------------------------- genes


def rates_of(gan: Gan) -> tuple[float, float]:
    return gan.generator.learning_rate, gan.discriminator.learning_rate


def test_the_gene_is_the_rate_without_the_schedule() -> None:
    training = {"schedule": "linear", "warmup": 2, "discriminator_learning_rate": 0.03}
    cell = tiny_cell(tiny_config(rounds=2, training=training))
    cell.train(cell.gan)
    assert rates_of(cell.gan) == rates_of(cell.gan.clone()) == (0.01, 0.03)
    parcel = decode_parcel(cell.parcel().encoded)
    assert parcel.meta["genes"]["generator"]["learning_rate"] == 0.01
    assert parcel.meta["genes"]["discriminator"]["learning_rate"] == 0.03
    assert rates_of(cell.host(parcel)) == (0.01, 0.03)


def test_a_mutated_gene_is_what_the_schedule_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = tiny_cell(tiny_config(rounds=1, training={"schedule": "linear"}))
    cell.gan.generator.learning_rate = 0.5
    rates = spied(monkeypatch, cell)
    cell.train(cell.gan)
    assert rates["generator"] == pytest.approx([0.5, 0.375, 0.25, 0.125])
    assert rates["discriminator"] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    assert cell.gan.generator.learning_rate == 0.5
    assert cell.gan.generator.pace == 1


@pytest.mark.parametrize("name", METHODS)
def test_under_every_method_a_cell_goes_on_from_its_parcel(name: str) -> None:
    """Nothing about the schedule is in a parcel: the round says how far it is."""
    training = {
        "schedule": "cosine",
        "warmup": 6,
        "discriminator_schedule": "linear",
        "discriminator_learning_rate": 0.02,
        "share_fakes": True,
    }
    config = tiny_config(rounds=3, method={"name": name}, training=training)
    straight, other = Population(config), Population(config)
    for _ in range(2):
        straight.play()
        other.play()
    for cell in other.cells:
        cell.restore(decode_parcel(cell.parcel().encoded))
    reports = straight.play(), other.play()
    for left, right in zip(straight.cells, other.cells, strict=True):
        assert same(gan_tensors(left.gan), gan_tensors(right.gan))
    assert [one.genes for one in reports[0]] == [one.genes for one in reports[1]]
    if name != "cellular":
        assert {one.genes.lr_discriminator for one in reports[0]} == {0.02}
