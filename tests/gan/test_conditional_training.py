"""Conditional GANs: they learn what the labels mean, and mistakes are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from remuda.config import validate
from remuda.data import Dataset, dataset_from_array
from remuda.errors import ConfigError
from remuda.gan.networks import generate
from remuda.gan.objectives import OBJECTIVES
from remuda.methods.cellular import FitnessTable
from remuda.runs.prepare import Run
from tests.tiny import labelled, tiny_cell, tiny_config, tiny_dataset

ALONE: dict[str, Any] = {"method": {"name": "independent"}, "grid": "1x1"}


def conditioned(condition: str, classes: int | None = 2) -> dict[str, Any]:
    return {
        "family": "class_dcgan",
        "width": 16,
        "latent": 4,
        "condition": condition,
        "classes": classes,
    }


def dark_and_bright() -> Dataset:
    """Label 0 is dark images, label 1 bright ones."""
    labels = np.arange(80) % 2
    noise = np.random.default_rng(0).uniform(-0.2, 0.2, (80, 8, 8))
    images = noise + np.where(labels == 1, 0.7, -0.7)[:, None, None]
    return dataset_from_array(images.astype(np.float32), labels)


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["projection", "auxiliary"])
def test_labels_come_to_mean_what_they_mean_in_the_data(condition: str) -> None:
    training = {"batch_size": 20, "learning_rate": 2e-3, "batches_per_round": 80}
    config = tiny_config(**ALONE, network=conditioned(condition), training=training)
    cell = tiny_cell(config, dark_and_bright())
    cell.train(cell.gan)
    network = cell.gan.generator.network.eval()
    noise = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        dark, bright = (generate(network, noise, torch.full((50,), label)) for label in (0, 1))
    assert dark.mean() < -0.3
    assert bright.mean() > 0.3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"method": "class_parallel", "network": conditioned("projection")},
            "allowed: network.condition=none, or another method",
        ),
        (
            {**ALONE, "network": conditioned("none", 2)},
            "network.classes=2 without a condition; allowed: network.classes=null, or",
        ),
        (
            {**ALONE, "network": conditioned("auxiliary"), "data": {"validation": 5}},
            "held-out items are used without their labels",
        ),
    ],
)
def test_conditions_that_cannot_be_met_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate(changes)


def test_another_number_of_labels_than_the_data_have_is_refused() -> None:
    config = tiny_config(**ALONE, network=conditioned("projection", 3))
    with pytest.raises(ConfigError, match=r"network.classes=3: .* has 4 labels; allowed: 4"):
        Run.prepare(config, labelled(tiny_dataset()))


@pytest.mark.parametrize("classes", [None, 3])
def test_a_condition_on_data_without_labels_is_refused(classes: int | None) -> None:
    config = tiny_config(**ALONE, network=conditioned("projection", classes))
    with pytest.raises(ConfigError, match=r"has no labels; allowed: .*none, or auto"):
        Run.prepare(config, tiny_dataset())


@pytest.mark.parametrize(
    ("condition", "becomes"),
    [("projection", "projection"), ("auxiliary", "auxiliary"), ("auto", "projection")],
)
def test_without_a_number_the_data_say_how_many_labels_there_are(
    condition: str, becomes: str
) -> None:
    config = tiny_config(**ALONE, network=conditioned(condition, None))
    found = Run.prepare(config, labelled(tiny_dataset())).config
    assert found.network == tiny_config(**ALONE, network=conditioned(becomes, 4)).network


@pytest.mark.parametrize(
    ("changes", "dataset"),
    [
        (ALONE, tiny_dataset()),  # no labels
        (ALONE, labelled(tiny_dataset(), 1)),  # one label says nothing
        ({"method": "class_parallel", "grid": "1x4"}, labelled(tiny_dataset())),  # a cell sees one
        ({**ALONE, "data": {"validation": 5}}, labelled(tiny_dataset())),  # held out without labels
        ({**ALONE, "data": {"view": "label", "label": 2}}, labelled(tiny_dataset())),  # all alike
    ],
)
def test_auto_is_no_condition_where_labels_cannot_be_used(
    changes: dict[str, Any], dataset: Dataset
) -> None:
    config = tiny_config(**changes, network=conditioned("auto", None))
    found = Run.prepare(config, dataset).config.network
    assert found == tiny_config(**ALONE, network=conditioned("none", None)).network


def test_one_label_is_nothing_to_condition_on() -> None:
    data = {"view": "label", "label": 2}
    config = tiny_config(**ALONE, data=data, network=conditioned("projection", None))
    with pytest.raises(ConfigError, match=r"^data.view=label: all items have the label 2, so"):
        Run.prepare(config, labelled(tiny_dataset()))


def test_members_are_completed_too() -> None:
    member = {"network": {**conditioned("auto", None), "latent": 5}}
    config = tiny_config(**ALONE, network=conditioned("auto", None), members=[member])
    found = Run.prepare(config, labelled(tiny_dataset())).config
    assert [network.num_classes for network in found.networks] == [4]


def test_fitness_counts_the_class_loss_of_auxiliary_networks() -> None:
    """Two generators that differ only in how they read labels must not be equally fit."""
    config = tiny_config(network=conditioned("auxiliary"), training={"batch_size": 12})
    cell = tiny_cell(config, labelled(tiny_dataset(), 2))
    objective = OBJECTIVES["heuristic"]
    table = FitnessTable(cell, [cell.gan], objective, "mean")
    network = cell.gan.discriminator.network.eval()
    real, labels = cell.real_batch("evaluation-batch")
    fake = cell.gan.generator.network.eval()(cell.noise_batch("evaluation-noise"), labels)
    with torch.no_grad():
        logits, class_losses = network(fake, labels)
        real_logits, real_losses = network(real, labels)
    both = torch.cat((real_losses, class_losses)).mean()
    expected = objective.generator_loss(logits) + class_losses.mean()
    assert table.generators == [pytest.approx(float(expected), rel=1e-6)]
    expected = objective.discriminator_loss(real_logits, logits) + both
    assert table.discriminators == [pytest.approx(float(expected), rel=1e-6)]
