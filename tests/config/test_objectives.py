"""Which objectives and penalties there are, and when a penalty applies."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config import OBJECTIVES, PENALTIES, TrainingSettings


def training(**values: Any) -> TrainingSettings:
    return TrainingSettings.model_validate(values)


def test_entries_are_registered_under_their_own_names() -> None:
    assert list(OBJECTIVES) == [facts.name for facts in OBJECTIVES.values()]
    assert list(PENALTIES) == [facts.name for facts in PENALTIES.values()]


def test_only_probabilities_are_classifiers_and_only_wasserstein_has_a_critic() -> None:
    classifiers = {name for name, facts in OBJECTIVES.items() if facts.is_classifier}
    assert classifiers == {"minimax", "heuristic", "least_squares"}
    assert {name for name, facts in OBJECTIVES.items() if facts.is_critic} == {"wasserstein"}


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
    ],
)
def test_what_keeps_a_discriminator_smooth(
    values: dict[str, Any], penalties: dict[str, float], clips: bool
) -> None:
    settings = training(**values)
    found = {penalty.name: penalty.weight(settings) for penalty in settings.penalties}
    assert found == penalties
    assert settings.clips_weights == clips
