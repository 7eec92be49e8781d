"""The presets of class-parallel training and their baselines: the articles' figures."""

from __future__ import annotations

import pytest

from remuda.config import ClassDcganSettings, ClassParallelSettings, Config, load_config

SETS = {"mnist": 10, "cifar10": 10, "cifar100": 100}
every_set = pytest.mark.parametrize(("data", "labels"), SETS.items())


def network(config: Config) -> ClassDcganSettings:
    assert isinstance(config.network, ClassDcganSettings)
    return config.network


@every_set
@pytest.mark.parametrize("kind", ["class-parallel-{}", "wclass-{}"])
def test_one_gan_per_label(kind: str, data: str, labels: int) -> None:
    config = load_config(kind.format(data))
    assert isinstance(config.method, ClassParallelSettings)
    assert (config.data.source, config.grid.shape) == (data, (1, labels))
    assert (config.rounds, config.training.batches_per_round) == (1000, None)
    own = network(config)
    assert (own.latent, own.width, own.dropout) == (100, 128, 0.25)
    # The tables' 0.8 would leave nothing of what a critic with clipped weights says.
    assert own.epsilon == (1e-5 if kind.startswith("wclass") else 0.8)
    assert own.condition == "none"


@every_set
def test_the_objectives_of_the_two_articles(data: str, labels: int) -> None:
    plain, critic = load_config(f"class-parallel-{data}"), load_config(f"wclass-{data}")
    assert (plain.training.objective, plain.training.learning_rate) == ("heuristic", 2e-4)
    assert plain.training.betas == (0.5, 0.999)
    assert network(plain).first_activation == "relu"
    training = critic.training
    assert (training.objective, training.lipschitz, training.clip) == ("wasserstein", "clip", 0.01)
    assert (training.n_critic, training.optimiser) == (5, "adam")
    assert (training.learning_rate, training.betas) == (2e-4, (0.5, 0.999))
    assert network(critic).first_activation == "leaky_relu"


@every_set
def test_the_baselines_differ_in_nothing_but_the_method(data: str, labels: int) -> None:
    """A round is an epoch of all data for each of them, so they see as many images in all."""
    own = load_config(f"class-parallel-{data}")
    for name, condition, classes in (
        (f"dcgan-{data}", "none", None),
        (f"dccgan-{data}", "projection", labels),
    ):
        base = load_config(name)
        assert (base.method.name, base.grid.shape) == ("independent", (1, 1))
        assert (base.rounds, base.data, base.training) == (own.rounds, own.data, own.training)
        told = network(base)
        assert (told.condition, told.classes) == (condition, classes)
        same = {"condition": "none", "classes": None}
        assert told.model_copy(update=same) == network(own)
