"""Batch norm whose scale and shift depend on the label (`network.label_norm`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from remuda.config import validate
from remuda.config.networks import (
    ClassDcganSettings,
    DcganSettings,
    LabelNormSettings,
    ResnetSettings,
)
from remuda.errors import ConfigError
from remuda.gan.networks import build_discriminator, build_generator, generate
from remuda.gan.networks.layers import LabelNorm

SHAPE = (1, 28, 28)
CLASSES = 5
FAMILIES: dict[str, type[LabelNormSettings]] = {
    "dcgan": DcganSettings,
    "class_dcgan": ClassDcganSettings,
    "resnet": ResnetSettings,
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def settings(family: str, **changes: Any) -> LabelNormSettings:
    values = {"width": 8, "latent": 7, "condition": "projection", "classes": CLASSES, **changes}
    return FAMILIES[family](**values)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def norms(network: nn.Module) -> list[nn.BatchNorm2d]:
    return [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]


@pytest.mark.parametrize("training", [True, False])
def test_it_is_batch_norm_then_the_scale_and_shift_of_each_items_label(training: bool) -> None:
    layer = LabelNorm(3, CLASSES, 1e-5).train(training)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=stream(1))
    labels = torch.tensor([4, 0, 0, 2])
    layer.condition = one_hot(labels, CLASSES).float()
    x = torch.randn(4, 3, 2, 2, generator=stream(2))
    wanted = torch.empty_like(x)
    for channel in range(3):
        values = x[:, channel]
        mean, variance = (
            (values.mean(), values.var(correction=0)) if training else (0.0, torch.tensor(1.0))
        )
        plain = (values - mean) / (variance + 1e-5).sqrt()
        plain = plain * layer.weight[channel] + layer.bias[channel]
        for item, label in enumerate(labels):
            scale, shift = layer.scale.weight[channel, label], layer.shift.weight[channel, label]
            wanted[item, channel] = plain[item] * (1 + scale) + shift
    torch.testing.assert_close(layer(x), wanted)


@every_family
def test_all_norms_of_the_generator_know_the_label_and_none_of_the_discriminator(
    family: str,
) -> None:
    plain = build_generator(settings(family), SHAPE, stream())
    labelled = build_generator(settings(family, label_norm=True), SHAPE, stream())
    assert not any(isinstance(norm, LabelNorm) for norm in norms(plain))
    found = [(type(norm), norm.num_features, norm.eps) for norm in norms(labelled)]
    assert found == [(LabelNorm, norm.num_features, norm.eps) for norm in norms(plain)]
    judge = build_discriminator(settings(family, label_norm=True), SHAPE, stream())
    assert not any(isinstance(norm, LabelNorm) for norm in judge.modules())


@every_family
def test_every_weight_has_a_gradient_and_that_of_an_absent_label_is_zero(family: str) -> None:
    network = build_generator(settings(family, label_norm=True), SHAPE, stream())
    noise = torch.randn(4, 7, generator=stream(1))
    images = generate(network, noise, torch.tensor([0, 1, 3, 4]))
    images.square().sum().backward()  # type: ignore[no-untyped-call]
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.abs().sum() > 0), name
    for norm in norms(network):
        assert isinstance(norm, LabelNorm)
        for weights in (norm.scale.weight, norm.shift.weight):
            assert weights.grad is not None
            assert bool((weights.grad[:, 2] == 0).all())


@every_family
def test_items_of_a_batch_have_their_own_labels(family: str) -> None:
    network = build_generator(settings(family, label_norm=True), SHAPE, stream()).eval()
    noise = torch.randn(3, 7, generator=stream(1))

    def made(labels: list[int]) -> Tensor:
        return generate(network, noise, torch.tensor(labels))

    first, second = made([0, 1, 2]), made([0, 4, 2])
    torch.testing.assert_close(first[[0, 2]], second[[0, 2]])
    assert not torch.allclose(first[1], second[1])


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (
            {"family": "dcgan", "label_norm": True},
            "network.label_norm=true without a condition; allowed: network.label_norm=false, or "
            "network.condition=projection, auxiliary or auto",
        ),
        ({"family": "gran", "label_norm": True}, "network.label_norm=True: unknown key"),
        ({"family": "mlp", "label_norm": True}, "network.label_norm=True: unknown key"),
    ],
)
def test_it_is_refused_where_it_cannot_be(network: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate({"network": network})
    assert str(error.value).startswith(problem)


def test_where_there_are_no_labels_auto_turns_it_off_as_well() -> None:
    auto = DcganSettings(condition="auto", label_norm=True)
    without, with_five = auto.for_labels(0), auto.for_labels(5)
    assert isinstance(without, DcganSettings)
    assert isinstance(with_five, DcganSettings)
    assert (without.condition, without.label_norm) == ("none", False)
    assert (with_five.condition, with_five.classes, with_five.label_norm) == ("projection", 5, True)
    assert not any(
        isinstance(one, LabelNorm) for one in build_generator(auto, SHAPE, stream()).modules()
    )
