"""The deviation within groups of a batch: the formula, where it goes, and what never shares one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from remuda.config.networks import NetworkSettings
from remuda.gan.game import Rivals
from remuda.gan.networks import build_discriminator, deviation_groups, discriminate, set_stream
from remuda.gan.networks.layers import MinibatchDeviation
from remuda.methods.cellular import Cellular
from remuda.metrics.gam import share_called_real
from tests.tiny import (
    DCGAN,
    MLP,
    Population,
    gan_tensors,
    one_thread,
    same,
    tiny_cell,
    tiny_config,
    tiny_dataset,
)

FAMILIES: dict[str, dict[str, Any]] = {
    "mlp": {"family": "mlp", "hidden": [6, 5]},
    "mlp of one layer": {"family": "mlp", "hidden": [6]},
    "mlp batch norm": {"family": "mlp", "hidden": [6, 5, 4], "batch_norm": True},
    "mlp spectral": {"family": "mlp", "hidden": [6, 5], "spectral_norm": True},
    "dcgan": {"family": "dcgan", "width": 3},
    "dcgan spectral": {"family": "dcgan", "width": 3, "spectral_norm": True},
    "gran": {"family": "gran", "width": 2, "discriminator_width": 3},
    "class_dcgan": {"family": "class_dcgan", "width": 8, "batch_norm": False},
    "class_dcgan projection": {
        "family": "class_dcgan",
        "width": 8,
        "condition": "projection",
        "classes": 2,
    },
    "resnet": {"family": "resnet", "width": 4},
    "resnet auxiliary": {
        "family": "resnet",
        "width": 4,
        "condition": "auxiliary",
        "classes": 2,
        "attention": True,
    },
}
every_family = pytest.mark.parametrize("values", FAMILIES.values(), ids=FAMILIES)
SHAPE = (1, 16, 16)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def built(values: dict[str, Any], group: int) -> nn.Module:
    settings = NetworkSettings.model_validate({**values, "minibatch_stddev": group})
    network = build_discriminator(settings, SHAPE, stream())
    set_stream(network, stream(5))
    return network


def reference(x: Tensor, groups: Sequence[int]) -> list[float]:
    """The written-out formula, item by item, in double precision."""
    found: list[float] = []
    start = 0
    for size in groups:
        rows = x[start : start + size].flatten(1).double().tolist()
        deviations = []
        for column in zip(*rows, strict=True):
            mean = sum(column) / size
            deviations.append(math.sqrt(sum((value - mean) ** 2 for value in column) / size + 1e-8))
        found += [sum(deviations) / len(deviations)] * size
        start += size
    return found


@pytest.mark.parametrize("shape", [(7,), (3, 4, 5)])
@pytest.mark.parametrize(
    ("items", "groups"),
    [
        (20, [10, 10]),
        (10, [10]),
        (25, [13, 12]),
        (29, [15, 14]),
        (31, [11, 10, 10]),
        (19, [19]),
        (6, [6]),
        (1, [1]),
    ],
)
def test_one_number_per_group_whatever_the_size_of_the_batch(
    items: int, groups: list[int], shape: tuple[int, ...]
) -> None:
    x = torch.randn(items, *shape, generator=stream())
    found = MinibatchDeviation(10)(x)
    assert torch.equal(found[:, :-1], x)
    added = found[:, -1].reshape(items, -1)
    assert (added == added[:, :1]).all()  # in every place of the channel
    assert added[:, 0].tolist() == pytest.approx(reference(x, groups), rel=1e-5)


@pytest.mark.parametrize("items", [4, 7])
def test_its_gradient_is_that_of_the_formula(items: int) -> None:
    x = torch.randn(items, 3, generator=stream(), dtype=torch.float64, requires_grad=True)
    layer = MinibatchDeviation(2)
    assert torch.autograd.gradcheck(layer, (x,))
    assert torch.autograd.gradgradcheck(layer, (x,))


def test_equal_items_have_a_gradient_and_a_second_one() -> None:
    x = torch.ones(6, 3, requires_grad=True)
    found = MinibatchDeviation(3)(x)
    assert found[:, -1].tolist() == pytest.approx([1e-4] * 6)
    (slope,) = torch.autograd.grad(found[:, -1].sum(), x, create_graph=True)
    assert (slope == 0).all()
    (curve,) = torch.autograd.grad(slope.square().sum(), x)
    assert curve.isfinite().all()


# ---------------------------------------------------------------------------- in the networks


@every_family
def test_every_family_sees_the_deviation_before_its_head(values: dict[str, Any]) -> None:
    network, plain = built(values, 4), built(values, 0)
    assert (deviation_groups(network), deviation_groups(plain)) == ({4}, set())
    seen: list[Tensor] = []
    layer = next(one for one in network.modules() if isinstance(one, MinibatchDeviation))
    layer.register_forward_hook(lambda _, inputs, found: seen.extend((inputs[0], found)))
    items = torch.randn(8, *SHAPE, generator=stream(1))
    labels = torch.arange(8) % 2 if "classes" in values else None
    logits, _ = discriminate(network.eval(), items, labels)
    assert logits.shape == (8,)
    before, after = seen
    assert after.shape == (8, before.shape[1] + 1, *before.shape[2:])
    expected = reference(before.detach(), [4, 4])
    assert after[:, -1].reshape(8, -1)[:, 0].tolist() == pytest.approx(expected, rel=1e-4)
    # The logit depends on it: the same items in other company are judged otherwise.
    others = items.clone()
    others[1:4] = items[0]
    again, _ = discriminate(network, others, labels)
    assert (again[0] - logits[0]).abs() > 1e-4 * logits[0].abs()
    torch.testing.assert_close(again[4:], logits[4:])
    one_by_one, _ = discriminate(plain.eval(), items[:1], None if labels is None else labels[:1])
    torch.testing.assert_close(discriminate(plain, items, labels)[0][:1], one_by_one)


def test_an_mlp_has_it_before_its_last_hidden_layer() -> None:
    layers = list(built({"family": "mlp", "hidden": [6, 5, 4]}, 4).children())
    place = next(i for i, layer in enumerate(layers) if isinstance(layer, MinibatchDeviation))
    linear = [layer for layer in layers[place:] if isinstance(layer, nn.Linear)]
    assert [(one.in_features, one.out_features) for one in linear] == [(6, 6), (6, 1)]
    sizes = [tuple(one.weight.shape) for one in layers if isinstance(one, nn.Linear)]
    assert sizes == [(4, 256), (5, 4), (6, 6), (1, 6)]


@every_family
def test_off_is_the_network_without_it(values: dict[str, Any]) -> None:
    settings = NetworkSettings.model_validate(values)
    off = built(values, 0).state_dict()
    plain = build_discriminator(settings, SHAPE, stream()).state_dict()
    assert same(off, plain)


# ---------------------------------------------------------------------------- who shares a group


def watched(cell_network: nn.Module) -> list[Tensor]:
    seen: list[Tensor] = []
    cell_network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    return seen


@pytest.mark.parametrize(
    ("network", "group", "sizes"),
    [
        (MLP, 3, {6, 12}),  # two groups of real and two of generated items, in one pass
        (MLP, 4, {6}),  # one group of six each
        (DCGAN, 3, {6}),  # batch norm
        ({**DCGAN, "spectral_norm": True}, 5, {6}),
    ],
)
def test_real_and_generated_items_never_share_a_group(
    network: dict[str, Any], group: int, sizes: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(network={**network, "minibatch_stddev": group})
    cell = tiny_cell(config, tiny_dataset(side=16))
    seen = watched(cell.gan.discriminator.network)
    cell.train(cell.gan)
    assert {len(items) for items in seen} == sizes
    known = {item.numpy().tobytes() for item in cell.dataset.items[:]}
    groups: list[list[bool]] = []
    whole = MinibatchDeviation._deviations

    def spy(x: Tensor, count: int, size: int) -> Tensor:
        offset = sum(map(len, groups[watching:]))
        real = [item.numpy().tobytes() in known for item in batch[offset : offset + count * size]]
        groups.extend(real[start : start + size] for start in range(0, len(real), size))
        return whole(x, count, size)

    # Each batch once more, with the items of every group looked up in the data.
    monkeypatch.setattr(MinibatchDeviation, "_deviations", staticmethod(spy))
    judge = cell.gan.discriminator.clone().network
    for batch in list(seen):
        watching = len(groups)
        judge(batch)
    assert all(len(set(one)) == 1 for one in groups)
    assert {one[0] for one in groups} == {True, False}


def test_one_pass_over_both_is_two_passes() -> None:
    """Where the groups fit, as to the last bits of the products."""
    network = built(FAMILIES["mlp"], 5)
    real, fake = torch.randn(2, 10, *SHAPE, generator=stream(2))
    apart = torch.cat((network(real), network(fake)))
    torch.testing.assert_close(network(torch.cat((real, fake))), apart)


def test_judges_get_real_and_generated_items_in_calls_of_their_own() -> None:
    config = tiny_config(network={**MLP, "minibatch_stddev": 4}, grid={"shape": "1x2"})
    dataset = tiny_dataset(40).hold_out(16, seed=0)
    population = Population(config, dataset)
    assert isinstance(population.method, Cellular)
    known = {item.numpy().tobytes() for item in dataset.items[:]}
    assert dataset.validation is not None
    known |= {item.numpy().tobytes() for item in dataset.validation[:]}
    calls: list[set[bool]] = []
    forward = nn.Sequential.forward

    class Watched(nn.Sequential):
        def forward(self, items: Tensor) -> Tensor:
            if not self.training:
                calls.append({item.detach().numpy().tobytes() in known for item in items})
            found: Tensor = forward(self, items)  # type: ignore[no-untyped-call]
            return found

    for cell in population.cells:
        cell.gan.discriminator.network.__class__ = Watched
    population.play()  # fitness of parents and offspring, and the discriminators' costs
    assert {True} in calls
    assert {False} in calls
    assert {True, False} not in calls


def test_evaluation_is_the_same_computation() -> None:
    """In either mode: there is nothing to be learnt or tracked."""
    network = built(FAMILIES["mlp"], 4)
    items = torch.randn(30, *SHAPE, generator=stream(3))
    training = network.train()(items)
    assert torch.equal(network.eval()(items), training)
    share = share_called_real(network, items)
    assert share == (training > 0).double().mean().item()


# ---------------------------------------------------------------------------- training


@every_family
def test_every_family_trains_with_it_and_goes_on_from_its_parcel(values: dict[str, Any]) -> None:
    network = {**values, "latent": 4, "minibatch_stddev": 4}
    training = {"r1": 0.5, "r1_every": 1, "batches_per_round": 1}
    config = tiny_config(network=network, method={"name": "independent"}, training=training)
    dataset = tiny_dataset(side=16, labels=True)
    cell, other = tiny_cell(config, dataset), tiny_cell(config, dataset)
    cell.train(cell.gan)
    assert cell.gan.is_finite()
    other.restore(cell.parcel())
    for one in (cell, other):
        one.round = 2
        one.train(one.gan)
    assert same(gan_tensors(cell.gan), gan_tensors(other.gan))


def test_a_rival_judges_a_batch_of_fakes_by_its_own_groups() -> None:
    config = tiny_config(network={**MLP, "minibatch_stddev": 4})
    cell, rival = tiny_cell(config), tiny_cell(config, index=1).gan
    before = gan_tensors(rival)
    seen = watched(rival.discriminator.network)
    cell.train(cell.gan, Rivals([], [rival.discriminator.network.eval()]))
    assert seen
    assert all(len(items) == 6 for items in seen)
    assert same(gan_tensors(rival), before)
