"""Gradients by hand have the bits of autograd's, wherever they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from remuda.config.objectives import OBJECTIVES
from remuda.gan.cell import Cell
from remuda.gan.game import Game, Rivals
from remuda.gan.gradients import Autograd, ByHand
from remuda.gan.networks import DensePass, Memory, dense_layers
from remuda.gan.networks.layers import MinibatchDeviation
from tests.tiny import gan_tensors, same, tiny_cell, tiny_config, tiny_dataset

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
}
MLP = {"family": "mlp", "hidden": [8, 7]}


def trained(monkeypatch: pytest.MonkeyPatch, by_hand: bool, **settings: Any) -> Cell:
    """A cell after two rounds against its partner and two rivals."""
    with monkeypatch.context() as patch:
        if not by_hand:
            patch.setattr(ByHand, "of", lambda *_: None)
        cell = tiny_cell(tiny_config(**settings), tiny_dataset(labels=True))
        guests = [cell.gan.clone() for _ in range(2)]
        rivals = Rivals(
            [guest.generator.network for guest in guests],
            [guest.discriminator.network for guest in guests],
        )
        for cell.round in (1, 2):
            cell.train(cell.gan, rivals)
    return cell


def ways_of(cell: Cell) -> list[type]:
    """How each turn of a round comes to its gradients."""
    found = []
    with Game(cell.gan, Rivals(), cell._plan()) as game:
        for batch in game:
            if game.discriminator_plays(batch):
                game.discriminator_gradients(batch)
                found.append(type(game._way))
            if game.generator_plays(batch):
                game.generator_gradients(batch)
                found.append(type(game._way))
    return found


def assert_same_bits(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    by_hand, by_autograd = (trained(monkeypatch, way, **settings) for way in (True, False))
    assert ByHand in ways_of(by_hand)
    assert same(gan_tensors(by_hand.gan), gan_tensors(by_autograd.gan))


@pytest.mark.parametrize("condition", ["none", "projection", "auxiliary"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_activation_and_head(
    objective: str, activation: str, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = None if condition == "none" else 2
    network = {**MLP, "activation": activation, "condition": condition, "classes": classes}
    training = {"objective": objective, "gamma": 0}
    assert_same_bits(monkeypatch, network=network, training=training)


@pytest.mark.parametrize(
    "training",
    [
        {"r1": 0.5, "r1_every": 2},
        {"objective": "relativistic"},
        {"objective": "wasserstein", "lipschitz": "gradient_penalty", "n_critic": 2},
        {"share_fakes": True},
        {"share_fakes": True, "r1": 0.5, "r1_every": 3},
        {"skip_n_disc_steps": 1, "input_noise": [[1, 0.2]]},
        {"gradient_clip": 0.01, "average": 4, "schedule": "cosine"},
        {"optimiser": "rmsprop"},
    ],
    ids=str,
)
@pytest.mark.parametrize("group", [0, 2])
def test_whatever_else_is_trained_with(
    training: dict[str, Any], group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = {**MLP, "minibatch_stddev": group, "condition": "projection", "classes": 2}
    if training.get("lipschitz") or training.get("objective") == "relativistic":
        by_hand, by_autograd = (
            trained(monkeypatch, way, network=network, training=training) for way in (True, False)
        )
        assert same(gan_tensors(by_hand.gan), gan_tensors(by_autograd.gan))
    else:
        assert_same_bits(monkeypatch, network=network, training=training)


@pytest.mark.parametrize(
    ("settings", "way"),
    [
        ({"network": MLP}, ByHand),
        ({"network": {**MLP, "batch_norm": True}}, Autograd),
        ({"network": {**MLP, "layer_norm": "both"}}, Autograd),
        ({"network": {**MLP, "spectral_norm": True}}, Autograd),
        ({"network": {"family": "dcgan", "width": 4}}, Autograd),
        ({"network": MLP, "training": {"augment": ["translation"]}}, Autograd),
        ({"network": {**MLP, "minibatch_stddev": 4}, "training": {"batch_size": 6}}, Autograd),
    ],
    ids=str,
)
def test_the_way_follows_from_the_networks(settings: dict[str, Any], way: type) -> None:
    assert set(ways_of(tiny_cell(tiny_config(**settings), tiny_dataset()))) == {way}


def test_a_penalty_is_left_to_autograd_on_its_own_batches() -> None:
    training = {"r1": 0.5, "r1_every": 2, "batches_per_round": 4}
    cell = tiny_cell(tiny_config(network=MLP, training=training), tiny_dataset())
    assert ways_of(cell) == [ByHand, ByHand, Autograd, ByHand] * 2


def test_networks_that_somebody_listens_to_are_called() -> None:
    cell = tiny_cell(tiny_config(network=MLP), tiny_dataset())
    calls = []
    for _, learner in cell.gan.roles:
        next(learner.network.children()).register_forward_hook(lambda *_: calls.append(1))
    cell.train(cell.gan)
    assert calls


# ---------------------------------------------------------------------------- a pass alone


@st.composite
def networks(draw: st.DrawFn) -> tuple[nn.Sequential, int]:
    """Any sequence of linear layers, activations and deviations, and a number of items."""
    group = draw(st.integers(2, 5))
    width = draw(st.integers(1, 9))
    layers: list[nn.Module] = []
    for place in range(draw(st.integers(1, 4))):
        if place and draw(st.booleans()):
            layers.append(MinibatchDeviation(group))
            width += 1
        after = draw(st.integers(1, 9))
        layers.append(nn.Linear(width, after, bias=draw(st.booleans())))
        if draw(st.booleans()):
            layers.append(ACTIVATIONS[draw(st.sampled_from(sorted(ACTIVATIONS)))]())
        width = after
    return nn.Sequential(*layers), group * draw(st.integers(1, 6))


@given(networks(), st.integers(0, 2**31))
@settings(deadline=None, max_examples=80)
def test_a_pass_is_what_autograd_does(drawn: tuple[nn.Sequential, int], seed: int) -> None:
    network, rows = drawn
    rng = torch.Generator().manual_seed(seed)
    layers = dense_layers(network)
    assert layers is not None
    first = next(layer for layer in layers if isinstance(layer, nn.Linear))
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(generator=rng)
    items = torch.randn(rows, first.in_features, generator=rng)
    memory = Memory()
    learning, passing = (DensePass(layers, rows, memory, learns=learns) for learns in (True, False))
    for _ in range(2):  # the second time over what the first has left
        wanted = network(items.requires_grad_())
        slope = torch.randn(wanted.shape, generator=rng)
        by_items, *by_weights = torch.autograd.grad(wanted, [items, *network.parameters()], slope)
        assert torch.equal(learning.forward(items.detach()), wanted)
        learning.backward(slope.clone())
        found = learning.gradients
        assert [*found] == [*network.parameters()]
        assert all(map(torch.equal, found.values(), by_weights))
        assert torch.equal(passing.forward(items.detach()), wanted)
        assert torch.equal(passing.backward(slope.clone()), by_items)
        items = torch.randn(items.shape, generator=rng)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Linear(3, 3), nn.Dropout(0.5)],
        [nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU()],
        [nn.Tanh(), nn.Linear(3, 3)],
        [nn.Linear(3, 3), nn.Tanh(), nn.Tanh()],
        [nn.Linear(3, 3).double()],
        [MinibatchDeviation(2), nn.Linear(4, 3)],
    ],
    ids=str,
)
def test_other_layers_are_not_known(layers: list[nn.Module]) -> None:
    assert dense_layers(nn.Sequential(*layers)) is None


def test_the_gradient_of_a_mean_is_one_number_for_all_items() -> None:
    """Autograd expands it: what overwrites it must not take it for as many numbers."""
    linear = nn.Linear(3, 2)
    layers = [linear, nn.Tanh()]
    items = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    one = DensePass(layers, 4, Memory(), learns=True)
    one.forward(items)
    slope: Tensor = torch.tensor(0.25).expand(4, 2)
    one.backward(slope)
    wanted = torch.autograd.grad(nn.Sequential(*layers)(items), linear.weight, slope)
    assert torch.equal(next(iter(one.gradients.values())), wanted[0])
