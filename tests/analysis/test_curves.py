"""Learning curves from events: means by hand, rounds that are not whole, and what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.analysis.curves import read_costs
from remuda.errors import ConfigError, StoreError


def written(source: Path, target: Path, events: list[dict[str, Any]]) -> Path:
    target.mkdir()
    shutil.copy(source / "config.yaml", target)
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (target / "events.jsonl").write_text(lines)
    return target


def event(round: int, cell: int, train: float | None, validation: float) -> dict[str, Any]:
    cost = {"train": train, "validation": validation}
    return {"event": "round", "round": round, "cell": cell, "cost": cost}


def test_spreads_are_mean_distances_of_the_two_costs(alone: Path, tmp_path: Path) -> None:
    events = [
        event(1, 0, 0.5, 0.6),
        event(1, 1, 0.9, 0.4),
        {"event": "population", "round": 1},
        event(2, 1, 0.6, 0.6),
        event(2, 0, 0.7, 0.4),
        event(3, 0, 9.0, 0.0),  # the other cell has not come so far
    ]
    found = read_costs(written(alone, tmp_path / "run", events))
    assert found.rounds.tolist() == [1, 2]
    assert found.train.tolist() == [[0.5, 0.7], [0.9, 0.6]]
    assert found.validation.tolist() == [[0.6, 0.4], [0.4, 0.6]]
    assert found.spreads.tolist() == pytest.approx([0.2, 0.25])
    assert found.spread == pytest.approx(0.225)
    assert found.averaged_spread == pytest.approx((0.2 + 0.15) / 2)  # 0.7 and 0.5, 0.65 and 0.5
    assert found.late_gap == pytest.approx((-0.3 + 0.0) / 2)
    assert found.deviation == pytest.approx(0.1)


def test_a_cost_that_was_no_number_is_left_out(alone: Path, tmp_path: Path) -> None:
    events = [event(round, cell, 0.5, 0.6) for round in (1, 2) for cell in (0, 1)]
    events[0]["cost"]["train"] = None
    found = read_costs(written(alone, tmp_path / "run", events))
    assert np.isnan(found.train[0, 0])
    assert found.spread == pytest.approx(0.1)


def test_a_real_run_has_them(swapped: Path) -> None:
    found = read_costs(swapped)
    assert found.train.shape == found.validation.shape == (2, 2)
    assert 0 < found.spread < 1
    assert found.train.min() > 0


def test_without_held_out_data_there_is_no_curve(alone: Path, tmp_path: Path) -> None:
    events = [{"event": "round", "round": 1, "cell": cell} for cell in (0, 1)]
    with pytest.raises(ConfigError, match=r"where data\.validation holds items out"):
        read_costs(written(alone, tmp_path / "none", events))
    with pytest.raises(StoreError, match=r"not an event: round\.cost\.validation is missing"):
        read_costs(written(alone, tmp_path / "odd", [{**events[0], "cost": {"train": 1}}]))
