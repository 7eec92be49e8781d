"""What the settings of networks say about them, compared with the networks that are built."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from remuda.config import NetworkSettings, render, validate
from remuda.config.networks import NormedSettings
from remuda.errors import ConfigError
from remuda.gan.networks import build_generator, discriminator_skeleton, generator_skeleton

SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [4, 5]},
    "dcgan": {"width": 2},
    "gran": {"width": 2, "discriminator_width": 2},
    "class_dcgan": {"width": 8},
    "resnet": {"width": 2},
}
CHANGES: dict[str, list[dict[str, Any]]] = {
    "mlp": [
        {"batch_norm": True},
        {"batch_norm": True, "discriminator_batch_norm": False},
        {"batch_norm": True, "layer_norm": "generator"},
    ],
    "gran": [{"redraw": False}, {"steps": 2}],
    "class_dcgan": [{"batch_norm": False}, {"condition": "projection", "classes": 3}],
    "resnet": [{"condition": "auxiliary", "classes": 3}],
}
CASES = [
    {"family": family, "spectral_norm": norm, **small, **change}
    for family, small in SMALL.items()
    for change in ({}, *CHANGES.get(family, ()))
    for norm in (False, True)
]
CASES += [
    {"family": family, "spectral_norm": False, "layer_norm": "discriminator", **small}
    for family, small in SMALL.items()
]
CASES.append({"family": "mlp", "batch_norm": True, "layer_norm": "both", **SMALL["mlp"]})
every_case = pytest.mark.parametrize("values", CASES, ids=str)


def test_every_family_is_among_the_cases() -> None:
    assert list(SMALL) == NetworkSettings.names()


@every_case
def test_a_discriminator_has_batch_norm_if_its_settings_say_so(values: dict[str, Any]) -> None:
    settings = NetworkSettings.model_validate(values)
    built = discriminator_skeleton(settings, (1, 28, 28))
    found = any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in built.modules())
    assert settings.discriminator_has_batch_norm == found


@every_case
def test_networks_have_layer_norm_if_their_settings_say_so(values: dict[str, Any]) -> None:
    settings = NetworkSettings.model_validate(values)
    assert isinstance(settings, NormedSettings)
    for said, built in (
        (settings.generator_has_layer_norm, generator_skeleton(settings, (1, 28, 28))),
        (settings.discriminator_has_layer_norm, discriminator_skeleton(settings, (1, 28, 28))),
    ):
        found = any(isinstance(layer, nn.LayerNorm | nn.GroupNorm) for layer in built.modules())
        assert said == found


@every_case
def test_a_generator_takes_noise_and_labels_as_its_settings_say(values: dict[str, Any]) -> None:
    settings = NetworkSettings.model_validate(values)
    built = build_generator(settings, (1, 28, 28), torch.Generator())
    noise = torch.zeros(2, settings.noise_size)
    labels = [torch.zeros(2, dtype=torch.long)] if settings.num_classes else []
    assert built(noise, *labels).shape == (2, 1, 28, 28)


@pytest.mark.parametrize("family", SMALL)
def test_the_family_comes_first_in_what_is_printed(family: str) -> None:
    network = validate({"method": "independent", "network": family}).network
    assert next(iter(network.model_dump())) == "family"
    lines = render(validate({"network": family})).splitlines()
    assert lines[lines.index("network:") + 1].startswith(f"  family: {family} ")


@pytest.mark.parametrize("family", SMALL)
def test_penalties_need_a_discriminator_without_batch_norm(family: str) -> None:
    network = NetworkSettings.model_validate({"family": family, "spectral_norm": False})
    training = validate({"training": {"objective": "relativistic"}}).training
    if network.discriminator_has_batch_norm:
        with pytest.raises(ValueError, match=f"network.family={family} has it; allowed: network.s"):
            training.check_network(network)
    else:
        training.check_network(network)
    training.model_copy(update={"gamma": 0.0}).check_network(network)
    training.check_network(network.model_copy(update={"spectral_norm": True}))
    training.check_network(network.model_copy(update={"layer_norm": "discriminator"}))


@pytest.mark.parametrize("family", SMALL)
def test_r1_goes_with_every_discriminator(family: str) -> None:
    network = NetworkSettings.model_validate({"family": family, "spectral_norm": False})
    validate({"training": {"r1": 0.25}}).training.check_network(network)


@pytest.mark.parametrize("family", SMALL)
def test_every_family_can_see_the_deviation_within_a_group(family: str) -> None:
    def group(**values: Any) -> int:
        return NetworkSettings.model_validate({"family": family, **values}).deviation_group

    assert group(minibatch_stddev=10) == 10
    assert group() == group(minibatch_stddev=0) == group(minibatch_stddev=None) == 0


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        (1, "=1: one item has no deviation; allowed: 0, or a whole number from 2"),
        (-1, "=-1: not allowed; allowed: a whole number at least 0"),
        (51, "=51: no batch is that large; allowed: 0, or 2 to training.batch_size=50"),
    ],
)
def test_groups_that_make_no_sense_are_refused_in_one_line(group: int, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate({"network": {"minibatch_stddev": group}, "training": {"batch_size": 50}})
    assert str(error.value) == f"network.minibatch_stddev{problem}"


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (
            {"layer_norm": "all"},
            "network.layer_norm=all: not allowed; allowed: none, generator, discriminator, both",
        ),
        (
            {"family": "dcgan", "layer_norm": "both"},
            "network.layer_norm=both: not allowed; allowed: none, discriminator",
        ),
        (
            {"family": "resnet", "layer_norm": "discriminator"},
            "network.layer_norm=discriminator rescales what network.spectral_norm=true bounds; "
            "allowed: network.spectral_norm=false, or network.layer_norm=none",
        ),
        (
            {"layer_norm": "both", "hidden": [8]},
            "network.layer_norm=both with network.hidden=[8]: a discriminator's first hidden layer "
            "has no norm, and it has no other; allowed: two hidden layers or more, or "
            "network.layer_norm=none or generator",
        ),
    ],
)
def test_layer_norm_that_makes_no_sense_is_refused_in_one_line(
    network: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        validate({"network": network})
    assert str(error.value) == problem
