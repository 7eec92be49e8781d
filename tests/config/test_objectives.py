"""Which objectives and penalties there are, and when a penalty applies."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config import OBJECTIVES, PENALTIES, TrainingSettings, validate
from remuda.errors import ConfigError


def training(**values: Any) -> TrainingSettings:
    return TrainingSettings.model_validate(values)


def test_entries_are_registered_under_their_own_names() -> None:
    assert list(OBJECTIVES) == [facts.name for facts in OBJECTIVES.values()]
    assert list(PENALTIES) == [facts.name for facts in PENALTIES.values()]


def test_only_probabilities_are_classifiers_and_only_wasserstein_is_kept_lipschitz() -> None:
    classifiers = {name for name, facts in OBJECTIVES.items() if facts.is_classifier}
    assert classifiers == {"minimax", "heuristic", "least_squares"}
    critics = {name for name, facts in OBJECTIVES.items() if facts.is_critic}
    assert critics == {"wasserstein", "hinge"}
    assert {name for name, facts in OBJECTIVES.items() if facts.is_lipschitz} == {"wasserstein"}


@pytest.mark.parametrize(
    ("values", "penalties", "clips"),
    [
        ({}, {}, False),
        ({"lipschitz": "gradient_penalty", "gamma": 3}, {}, False),
        ({"objective": "wasserstein"}, {}, True),
        (
            {"objective": "wasserstein", "lipschitz": "gradient_penalty"},
            {"gradient_penalty": 10},
            False,
        ),
        (
            {"objective": "wasserstein", "lipschitz": "gradient_penalty", "penalty": 0},
            {"gradient_penalty": 0},
            False,
        ),
        ({"objective": "relativistic"}, {"r1_r2": 1}, False),
        ({"objective": "relativistic", "gamma": 0.25}, {"r1_r2": 0.25}, False),
        ({"objective": "relativistic", "gamma": 0}, {}, False),
        ({"objective": "hinge"}, {}, False),
        ({"objective": "hinge", "lipschitz": "gradient_penalty"}, {}, False),
        ({"objective": "hinge", "r1": 0.5}, {"r1": 0.5}, False),
        ({"r1": 0.25}, {"r1": 0.25}, False),
        ({"r1": 0}, {}, False),
        ({"r1": None}, {}, False),
        ({"objective": "relativistic", "gamma": 0, "r1": 2}, {"r1": 2}, False),
        ({"objective": "wasserstein", "r1": 2}, {"r1": 2}, True),
        (
            {"objective": "wasserstein", "lipschitz": "gradient_penalty", "r1": 2},
            {"gradient_penalty": 10, "r1": 2},
            False,
        ),
    ],
)
def test_what_keeps_a_discriminator_smooth(
    values: dict[str, Any], penalties: dict[str, float], clips: bool
) -> None:
    settings = training(**values)
    found = {penalty.name: penalty.weight(settings) for penalty in settings.penalties}
    assert found == penalties
    assert settings.clips_weights == clips


def test_a_hinge_critic_is_compared_under_its_own_loss_only() -> None:
    validate({"training": {"objective": "hinge"}, "method": {"fitness_loss": "hinge"}})
    for values, problem in (
        (
            {"training": {"objective": "hinge"}, "method": {"losses": ["minimax"]}},
            "method.losses=['minimax'] does not go with training.objective=hinge, whose critic is "
            "not a classifier; allowed: []",
        ),
        (
            {"method": {"fitness_loss": "hinge"}},
            "method.fitness_loss=hinge does not go with training.objective=heuristic; allowed: "
            "null (the objective itself)",
        ),
        (
            {"method": {"losses": ["hinge"]}},
            "method.losses[0]=hinge: not allowed; allowed: a list of minimax, heuristic, "
            "least_squares, relativistic",
        ),
    ):
        with pytest.raises(ConfigError) as error:
            validate(values)
        assert str(error.value) == problem


def test_only_r1_is_lazy_and_goes_with_batch_norm() -> None:
    settings = training(r1=0.25, r1_every=16)
    assert {name: facts.every(settings) for name, facts in PENALTIES.items()} == {
        "gradient_penalty": 1,
        "r1_r2": 1,
        "r1": 16,
    }
    assert [name for name, facts in PENALTIES.items() if not facts.is_per_item] == ["r1"]
    assert training(r1=0.25).r1_every == 4


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"objective": "relativistic", "r1": 0.5},
            "training.r1=0.5 and training.gamma=1: training.objective=relativistic has R1 already, "
            "weighted by gamma; allowed: training.r1=0 or training.gamma=0",
        ),
        ({"r1": -1}, "training.r1=-1: not allowed; allowed: a number at least 0"),
        ({"r1_every": 0}, "training.r1_every=0: not allowed; allowed: a whole number at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate({"training": values})
    assert str(error.value) == problem
