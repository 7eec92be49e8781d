"""R1 in training: the formula, by finite differences too, on which batches, and for everybody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from remuda.config import OBJECTIVES
from remuda.data import StoredItems
from remuda.gan.cell import Cell
from remuda.gan.game import Batch, Game, Rivals
from remuda.gan.networks import discriminate
from remuda.gan.penalties import PENALTIES, batch_norms, r1
from tests.tiny import (
    DCGAN,
    MLP,
    gan_tensors,
    one_thread,
    same,
    tiny_cell,
    tiny_config,
    tiny_dataset,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


CLASS = {"family": "class_dcgan", "latent": 4, "width": 8}
RESNET = {"family": "resnet", "latent": 4, "width": 4}
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": MLP,
    "mlp deviation": {**MLP, "minibatch_stddev": 3},
    "mlp batch norm": {**MLP, "hidden": [8, 8], "batch_norm": True, "activation": "relu"},
    "dcgan": DCGAN,
    "dcgan spectral": {**DCGAN, "spectral_norm": True, "minibatch_stddev": 3},
    "gran": {"family": "gran", "latent": 3, "width": 2, "discriminator_width": 2, "steps": 2},
    "class_dcgan": CLASS,
    "class_dcgan projection": {**CLASS, "condition": "projection", "classes": 2},
    "class_dcgan auxiliary": {**CLASS, "condition": "auxiliary", "classes": 2},
    "resnet attention": {**RESNET, "attention": True},
    "resnet auxiliary": {**RESNET, "condition": "auxiliary", "classes": 2},
}
every_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def small(**training: Any) -> Cell:
    return tiny_cell(tiny_config(training={"gamma": 0, **training}))


def first_loss(cell: Cell, batch: int = 0) -> Tensor:
    """The discriminator's loss on one batch of a round that has only begun."""
    with Game(cell.gan, Rivals(), cell._plan()) as game:
        return game.discriminator_loss(list(game)[batch])


def first_gradients(cell: Cell, batch: int) -> Sequence[Tensor]:
    """The gradients of that loss, which are no more than lent."""
    with Game(cell.gan, Rivals(), cell._plan()) as game:
        return [value.clone() for value in game.discriminator_gradients(list(game)[batch])]


def written_out(
    network: nn.Module, items: Tensor, labels: Tensor | None, weight: float
) -> tuple[float, list[Tensor]]:
    """½ γ E ‖∇D(x)‖² and its gradient by the weights: one item, one autograd call at a time."""
    parameters = list(network.parameters())
    total = torch.zeros((), dtype=items.dtype)
    for place, item in enumerate(items):
        alone = item[None].clone().requires_grad_()
        label = None if labels is None else labels[place : place + 1]
        (slope,) = torch.autograd.grad(
            discriminate(network, alone, label)[0][0], alone, create_graph=True
        )
        total = total + slope.pow(2).sum()
    penalty = 0.5 * weight * total / len(items)
    gradients = torch.autograd.grad(penalty, parameters, allow_unused=True, materialize_grads=True)
    return penalty.item(), list(gradients)


# ---------------------------------------------------------------------------- the formula


def test_r1_is_half_the_mean_square_of_the_slope() -> None:
    # The gradient of x³ is 3x²: 12 at 2, and 3 at 1.
    real, fake = torch.tensor([[2.0], [1.0]]), torch.full((2, 1), 9.0)
    found = r1(lambda x: x.pow(3).sum(1), real, fake, torch.Generator())
    assert found.item() == pytest.approx(0.5 * (144 + 9) / 2)


def test_its_gradient_is_that_of_finite_differences() -> None:
    rng = torch.Generator().manual_seed(1)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(generator=rng)
    real = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    step = 1e-5

    def slopes_by_hand() -> float:
        """½ E ‖∇D‖² without any autograd."""
        with torch.no_grad():
            moved = step * torch.eye(3, dtype=torch.float64)
            up = torch.stack([network(real + direction) for direction in moved])
            down = torch.stack([network(real - direction) for direction in moved])
        return float(0.5 * ((up - down) / (2 * step)).square().sum(0).mean())

    penalty = r1(network, real, real, rng)
    assert penalty.item() == pytest.approx(slopes_by_hand(), rel=1e-8)
    parameters = list(network.parameters())
    gradients = torch.autograd.grad(penalty, parameters, allow_unused=True, materialize_grads=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat = parameter.detach().view(-1)
        for place in range(len(flat)):
            value = float(flat[place])
            flat[place] = value + 1e-4
            above = r1(network, real, real, rng).item()
            flat[place] = value - 1e-4
            below = r1(network, real, real, rng).item()
            flat[place] = value
            expected = (above - below) / 2e-4
            assert gradient.view(-1)[place].item() == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_gets_the_term_and_its_gradient(objective: str) -> None:
    weight, every = 0.7, 3
    with_it = small(objective=objective, r1=weight, r1_every=every)
    without = small(objective=objective)
    number = every - 1
    real = next(batch for batch in _batches(with_it) if batch.number == number).real
    network = without.gan.discriminator.network
    penalty, gradients = written_out(network, real, None, every * weight)
    losses = [first_loss(cell, number) for cell in (with_it, without)]
    assert losses[0].item() - losses[1].item() == pytest.approx(penalty, rel=1e-4)
    steps = [first_gradients(cell, number) for cell in (with_it, without)]
    for more, less, expected in zip(*steps, gradients, strict=True):
        torch.testing.assert_close(more - less, expected, rtol=1e-3, atol=1e-5)


def _batches(cell: Cell) -> list[Batch]:
    return list(Game(cell.gan, Rivals(), cell._plan()))


@pytest.mark.parametrize("condition", ["none", "projection", "auxiliary"])
@pytest.mark.parametrize("family", [CLASS, RESNET], ids=["class_dcgan", "resnet"])
def test_labels_choose_the_logit_whose_slope_it_is(family: dict[str, Any], condition: str) -> None:
    """The adversarial logit's alone, not that of the classifier beside it."""
    plain: dict[str, Any] = {} if family is RESNET else {"batch_norm": False, "dropout": 0}
    network = {**family, **plain, "condition": condition, "spectral_norm": False}
    if condition != "none":
        network["classes"] = 2
    dataset = tiny_dataset(labels=True)
    method = {"name": "independent"}
    cells = [
        tiny_cell(tiny_config(network=network, method=method, training=training), dataset)
        for training in ({"r1": 0.5, "r1_every": 1}, {})
    ]
    for cell in cells:
        rng = torch.Generator().manual_seed(0)
        for parameter in cell.gan.discriminator.network.parameters():
            if parameter.dim() > 1:  # as they start, some of these are nearly flat
                parameter.data.normal_(0, (2 / parameter[0].numel()) ** 0.5, generator=rng)
    batch = _batches(cells[0])[0]
    judge = cells[1].gan.discriminator.network
    penalty, _ = written_out(judge, batch.real, batch.labels, 0.5)
    found, expected = (first_loss(cell).item() for cell in cells)
    assert penalty > 1e-5
    assert found - expected == pytest.approx(penalty, rel=1e-3, abs=1e-6)


def test_it_is_the_slope_at_what_the_discriminator_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise and augmentation included."""
    seen: list[Tensor] = []

    def spy(logits: Any, real: Tensor, fake: Tensor, rng: torch.Generator) -> Tensor:
        seen.append(real)
        return r1(logits, real, fake, rng)

    monkeypatch.setitem(PENALTIES, "r1", spy)
    cell = small(r1=1, r1_every=1, augment=["translation"], input_noise=[[1, 0.3]])
    inputs: list[Tensor] = []
    hook = cell.gan.discriminator.network.register_forward_pre_hook(
        lambda _, given: inputs.append(given[0].detach())
    )
    first_loss(cell)
    hook.remove()
    both, again = inputs
    assert torch.equal(both[:6], seen[0])
    assert torch.equal(again, seen[0])
    assert not torch.equal(seen[0], cell.dataset.items[cell._batches()[0]])


# ---------------------------------------------------------------------------- on which batches


def steps_with_r1(cell: Cell, monkeypatch: pytest.MonkeyPatch, rounds: int) -> list[bool]:
    """For every batch that the discriminator trains on, over all rounds, whether R1 was there."""
    found: list[bool] = []
    whole = Game.discriminator_loss

    def counted(game: Game, batch: Batch) -> Tensor:
        found.append(False)
        return whole(game, batch)

    def spy(logits: Any, real: Tensor, fake: Tensor, rng: torch.Generator) -> Tensor:
        found[-1] = True
        return r1(logits, real, fake, rng)

    with monkeypatch.context() as patch:
        patch.setattr(Game, "discriminator_loss", counted)
        patch.setitem(PENALTIES, "r1", spy)
        for cell.round in range(1, rounds + 1):
            cell.train(cell.gan)
    return found


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("every", [1, 3, 4])
def test_it_is_there_on_exactly_every_kth_batch_of_the_discriminator(
    every: int, skip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = small(r1=1, r1_every=every, batches_per_round=5, skip_n_disc_steps=skip)
    found = steps_with_r1(cell, monkeypatch, rounds=4)
    assert len(found) == (10 if skip else 20)
    assert found == [step % every == 0 for step in range(1, len(found) + 1)]


def test_other_rounds_do_not_change_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(rounds: int) -> list[bool]:
        cell = small(r1=1, r1_every=4, batches_per_round=30 // rounds)
        return steps_with_r1(cell, monkeypatch, rounds)

    assert found(1) == found(5) == found(6) == found(10)


def test_off_draws_nothing_and_changes_nothing() -> None:
    cells = [small(), small(r1=0, r1_every=1), small(r1=None), small(r1=1, r1_every=1000)]
    for cell in cells:
        cell.train(cell.gan)
    plain = gan_tensors(cells[0].gan)
    assert all(same(gan_tensors(cell.gan), plain) for cell in cells[1:])
    lazy = small(r1=1, r1_every=4)
    lazy.train(lazy.gan)
    assert not same(gan_tensors(lazy.gan), plain)


def test_it_adds_to_the_gradient_penalty_of_a_critic() -> None:
    common = {"objective": "wasserstein", "lipschitz": "gradient_penalty"}
    both, one = small(**common, r1=0.5, r1_every=1), small(**common)
    real = _batches(both)[0].real
    penalty, _ = written_out(one.gan.discriminator.network, real, None, 0.5)
    assert first_loss(both).item() - first_loss(one).item() == pytest.approx(penalty, rel=1e-3)


def test_the_reported_loss_is_that_of_the_objective() -> None:
    """So that a discriminator that is never wrong is seen, however steep it is."""
    cells = [small(r1=weight, r1_every=1, batches_per_round=1) for weight in (0.0, 50.0)]
    plain, steep = (cell.train(cell.gan).discriminator for cell in cells)
    assert steep == pytest.approx(plain, rel=1e-6)


# ---------------------------------------------------------------------------- for everybody


@every_network
def test_every_network_trains_with_it(network: dict[str, Any]) -> None:
    dataset = tiny_dataset(side=16, labels=True)
    method = {"name": "independent"}
    ends = []
    for weight in (5.0, 0.0):
        training = {"r1": weight, "r1_every": 1, "batches_per_round": 1}
        cell = tiny_cell(tiny_config(network=network, method=method, training=training), dataset)
        cell.train(cell.gan)
        assert cell.gan.is_finite()
        ends.append(gan_tensors(cell.gan))
    assert not same(*ends)


def test_points_train_with_it() -> None:
    items = StoredItems(torch.randn(24, 2, generator=torch.Generator()))
    dataset = replace(tiny_dataset(), items=items)
    cells = [
        tiny_cell(tiny_config(training={"r1": weight, "r1_every": 2}), dataset)
        for weight in (0.0, 5.0)
    ]
    for cell in cells:
        cell.train(cell.gan)
    assert cells[1].gan.is_finite()
    assert not same(*(gan_tensors(cell.gan) for cell in cells))


def test_batch_norm_does_not_count_a_batch_twice() -> None:
    losses = []
    statistics = []
    for weight in (0.0, 0.5):
        config = tiny_config(network=DCGAN, training={"r1": weight, "r1_every": 1})
        cell = tiny_cell(config, tiny_dataset(side=16))
        losses.append(first_loss(cell).item())
        norms = batch_norms(cell.gan.discriminator.network)
        assert norms
        assert all(norm.track_running_stats for norm in norms)
        statistics.append([value.clone() for norm in norms for value in norm.buffers()])
    assert losses[1] > losses[0]
    for plain, with_it in zip(*statistics, strict=True):
        assert torch.equal(plain, with_it)


def test_it_flattens_the_discriminator() -> None:
    def slope(weight: float) -> float:
        cell = small(r1=weight, batches_per_round=40, learning_rate=0.02)
        cell.train(cell.gan)
        items = cell.dataset.items[:].clone().requires_grad_()
        logits = cell.gan.discriminator.network(items)
        (gradient,) = torch.autograd.grad(logits.sum(), items)
        return float(gradient.flatten(1).norm(dim=1).mean())

    assert slope(5.0) < 0.5 * slope(0.0)
