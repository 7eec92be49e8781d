"""The winner's genes as settings that can be used again."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.runs.costs import genes_of

EVENTS: list[dict[str, Any]] = [
    {"event": "round", "cell": 0, "lr_generator": 0.1, "loss": "heuristic", "r1": 1.0},
    {"event": "round", "cell": 1, "lr_generator": 0.5, "loss": "minimax", "r1": 2.0},
    {"event": "round", "cell": 0, "lr_generator": 0.2, "loss": "least_squares", "r1": None},
    {"event": "population", "cell": 0, "lr_generator": 9.0},
]


@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        ("least_squares", {"training.objective": "least_squares"}),
        ("heuristic", {"method.losses": ["least_squares"]}),  # the generator's alone
    ],
)
def test_genes_are_those_of_the_cells_last_round(objective: str, loss: dict[str, Any]) -> None:
    assert genes_of(0, EVENTS, objective) == {"training.learning_rate": 0.2, **loss}
