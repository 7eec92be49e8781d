from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from remuda.config.geometry import Grid
from remuda.config.grid import GridSettings


def grid_settings(**values: Any) -> GridSettings:
    return GridSettings.model_validate(values)


def test_the_default_is_a_fixed_2x2_von_neumann_torus() -> None:
    schedule = grid_settings().build()
    assert schedule.grids == (Grid(2, 2),)


def test_a_run_can_change_its_neighbourhood_and_then_its_shape() -> None:
    schedule = grid_settings(
        shape="2x4",
        schedule=[{"round": 10, "neighbourhood": "moore"}, {"round": 20, "shape": "4x2"}],
    ).build()
    assert schedule.at(9) == Grid(2, 4)
    assert schedule.at(10) == schedule.at(19) == Grid(2, 4, "moore")
    assert schedule.at(20) == schedule.at(500) == Grid(4, 2, "moore")


def test_one_change_can_set_shape_and_neighbourhood_together() -> None:
    schedule = grid_settings(
        shape=[2, 3], schedule=[{"round": 2, "shape": [1, 6], "neighbourhood": "ring"}]
    ).build()
    assert schedule.at(2) == Grid(1, 6, "ring")


def test_two_changes_of_one_round_add_up() -> None:
    schedule = grid_settings(
        shape="2x4",
        schedule=[{"round": 5, "neighbourhood": "moore"}, {"round": 5, "shape": "4x2"}],
    ).build()
    assert schedule.at(4) == Grid(2, 4)
    assert schedule.at(5) == Grid(4, 2, "moore")


def test_a_table_can_replace_the_pattern_during_a_run_and_go_again() -> None:
    schedule = grid_settings(
        shape="1x3",
        schedule=[
            {"round": 3, "neighbourhood": "table", "table": [[1], [2], [0]]},
            {"round": 6, "neighbourhood": "ring"},
        ],
    ).build()
    assert [schedule.at(round).subpopulation(0) for round in (2, 3, 6)] == [
        (0, 2, 1),
        (0, 1),
        (0, 2, 1),
    ]


@pytest.mark.parametrize("text", ["3x4", "3X4", "3×4", " 3 x 4 "])
def test_a_shape_is_rows_by_columns(text: str) -> None:
    assert grid_settings(shape=text).build().initial.shape == (3, 4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shape": "3"}, "ROWSxCOLUMNS"),
        ({"shape": "0x3"}, "at least 1|equal to 1"),
        ({"shape": "-2x3"}, "at least 1|equal to 1"),
        ({"neighbourhood": "hexagonal"}, "von_neumann"),
        ({"neighbourhood": "table"}, "only with it"),
        ({"table": [[1], [2], [3], [0]]}, "only with it"),
        (
            {"shape": "1x2", "neighbourhood": "table", "table": [[1], [5]]},
            "row 1 .* names cell 5",
        ),
        (
            {"shape": "2x4", "schedule": [{"round": 3, "shape": "3x3"}]},
            "allowed: shapes of 8 cells",
        ),
        ({"schedule": [{"round": 0, "shape": "4x1"}]}, "greater than or equal to 1"),
        ({"schedule": [{"round": 2, "neighbourhood": "table"}]}, "only with it"),
        ({"schedule": [{"round": 2, "shpae": "4x1"}]}, "shpae"),
    ],
)
def test_an_impossible_grid_is_refused_when_it_is_loaded(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        grid_settings(**values)


def test_changes_out_of_order_do_not_lose_the_later_one() -> None:
    changes = [{"round": 20, "shape": "4x2"}, {"round": 10, "neighbourhood": "moore"}]
    schedule = grid_settings(shape="2x4", schedule=changes).build()
    assert schedule.at(20).shape == (4, 2)
    assert schedule.at(20).neighbourhood == "moore"


def test_a_table_in_the_schedule_needs_no_neighbourhood_beside_it() -> None:
    changes = [{"round": 2, "table": [[1], [2], [0]]}]
    schedule = grid_settings(shape="1x3", schedule=changes).build()
    assert schedule.at(1).neighbours(0) == (2, 1)
    assert schedule.at(2).neighbours(0) == (1,)
