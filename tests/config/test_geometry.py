from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.config.geometry import Grid, GridSchedule

PATTERNS = ("von_neumann", "moore", "ring")
unhurried = settings(deadline=None)  # a first call, or a busy machine, may take its time
sides = st.integers(1, 6)
grids = st.builds(Grid, sides, sides, st.sampled_from(PATTERNS))


# Oracles written by hand: itself, W, N, E, S on
#   0 1 2        0 1 2  3
#   3 4 5  and   4 5 6  7
#   6 7 8        8 9 10 11
VON_NEUMANN_3X3 = {
    0: (0, 2, 6, 1, 3),
    1: (1, 0, 7, 2, 4),
    2: (2, 1, 8, 0, 5),
    3: (3, 5, 0, 4, 6),
    4: (4, 3, 1, 5, 7),
    5: (5, 4, 2, 3, 8),
    6: (6, 8, 3, 7, 0),
    7: (7, 6, 4, 8, 1),
    8: (8, 7, 5, 6, 2),
}


@pytest.mark.parametrize(("cell", "expected"), VON_NEUMANN_3X3.items())
def test_von_neumann_on_3x3_is_itself_west_north_east_south(
    cell: int, expected: tuple[int, ...]
) -> None:
    assert Grid(3, 3).subpopulation(cell) == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    # W is cell - 1 and S is cell + 4; with row and column exchanged it would be the reverse.
    [(1, (1, 0, 9, 2, 5)), (4, (4, 7, 0, 5, 8)), (7, (7, 6, 3, 4, 11)), (11, (11, 10, 7, 8, 3))],
)
def test_von_neumann_on_3x4_is_not_transposed(cell: int, expected: tuple[int, ...]) -> None:
    assert Grid(3, 4).subpopulation(cell) == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    # On two rows north and south are one cell, counted once.
    [(0, (0, 3, 4, 1)), (2, (2, 1, 6, 3)), (3, (3, 2, 7, 0)), (5, (5, 4, 1, 6)), (7, (7, 6, 3, 4))],
)
def test_von_neumann_on_2x4_counts_the_double_neighbour_once(
    cell: int, expected: tuple[int, ...]
) -> None:
    assert Grid(2, 4).subpopulation(cell) == expected


def test_moore_on_3x4_goes_round_clockwise_from_the_west() -> None:
    assert Grid(3, 4, "moore").subpopulation(1) == (1, 0, 8, 9, 10, 2, 6, 5, 4)


def test_ring_joins_consecutive_cells_and_closes() -> None:
    grid = Grid(2, 3, "ring")
    assert grid.subpopulation(0) == (0, 5, 1)
    assert grid.subpopulation(3) == (3, 2, 4)
    assert grid.subpopulation(5) == (5, 4, 0)


@pytest.mark.parametrize(
    ("grid", "size"),
    [
        (Grid(1, 1), 1),
        (Grid(1, 2), 2),
        (Grid(1, 5), 3),
        (Grid(2, 2), 3),
        (Grid(2, 4), 4),
        (Grid(3, 3), 5),
        (Grid(4, 4), 5),
        (Grid(1, 1, "moore"), 1),
        (Grid(2, 2, "moore"), 4),
        (Grid(3, 3, "moore"), 9),
        (Grid(4, 5, "moore"), 9),
        (Grid(1, 1, "ring"), 1),
        (Grid(1, 2, "ring"), 2),
        (Grid(2, 2, "ring"), 3),
        (Grid(4, 4, "ring"), 3),
    ],
)
def test_size_of_the_subpopulation_after_removing_duplicates(grid: Grid, size: int) -> None:
    assert {len(grid.subpopulation(cell)) for cell in range(grid.cells)} == {size}


@unhurried
@given(st.integers(3, 6), st.integers(3, 6))
def test_from_3x3_on_every_pattern_has_its_full_size(rows: int, columns: int) -> None:
    sizes = [len(Grid(rows, columns, pattern).subpopulation(0)) for pattern in PATTERNS]
    assert sizes == [5, 9, 3]


@unhurried
@given(grids)
def test_every_cell_has_as_many_neighbours_as_any_other(grid: Grid) -> None:
    assert len({len(grid.subpopulation(cell)) for cell in range(grid.cells)}) == 1


@unhurried
@given(grids)
def test_neighbours_are_mutual(grid: Grid) -> None:
    for cell in range(grid.cells):
        assert all(cell in grid.neighbours(other) for other in grid.neighbours(cell))


@unhurried
@given(grids)
def test_a_cell_comes_first_and_nobody_twice(grid: Grid) -> None:
    for cell in range(grid.cells):
        members = grid.subpopulation(cell)
        assert members[0] == cell
        assert len(set(members)) == len(members)
        assert set(members) <= set(range(grid.cells))
        assert grid.neighbours(cell) == members[1:]


@unhurried
@given(grids)
def test_every_cell_is_reachable_from_the_first(grid: Grid) -> None:
    reached, edge = {0}, {0}
    while edge:
        edge = {other for cell in edge for other in grid.neighbours(cell)} - reached
        reached |= edge
    assert reached == set(range(grid.cells))


@unhurried
@given(grids)
def test_position_and_cell_at_are_inverse_and_wrap(grid: Grid) -> None:
    for cell in range(grid.cells):
        row, column = grid.position(cell)
        assert grid.cell_at(row, column) == cell
        assert grid.cell_at(row - grid.rows, column + 2 * grid.columns) == cell


def test_positions_count_row_by_row() -> None:
    assert Grid(2, 4).position(5) == (1, 1)
    assert Grid(4, 2).position(5) == (2, 1)
    assert Grid(2, 4).shape == (2, 4)


@pytest.mark.parametrize("cell", [-1, 4])
def test_a_cell_off_the_grid_is_an_error_naming_it(cell: int) -> None:
    with pytest.raises(IndexError, match=f"cell {cell} .* 4 cells"):
        Grid(2, 2).subpopulation(cell)


def test_a_table_gives_each_cell_its_neighbours() -> None:
    grid = Grid(1, 3, "table", ((1, 2, 1), (), (2, 0)))
    assert grid.subpopulation(0) == (0, 1, 2)
    assert grid.subpopulation(1) == (1,)
    assert grid.subpopulation(2) == (2, 0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (((1,), (0,)), "2 rows for 3 cells"),
        (((1,), (3,), (0,)), "row 1 .* names cell 3; cells are 0 to 2"),
        (((1,), (0,), (-1,)), "row 2 .* names cell -1; cells are 0 to 2"),
    ],
)
def test_a_wrong_table_is_an_error_naming_the_cell(
    table: tuple[tuple[int, ...], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Grid(1, 3, "table", table)


def test_a_table_and_the_table_neighbourhood_go_together() -> None:
    with pytest.raises(ValueError, match="only with it"):
        Grid(1, 2, "table")
    with pytest.raises(ValueError, match="only with it"):
        Grid(1, 2, "moore", ((1,), (0,)))


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0), (-1, -1)])
def test_a_grid_without_cells_is_an_error(rows: int, columns: int) -> None:
    with pytest.raises(ValueError, match=f"{rows}x{columns}"):
        Grid(rows, columns)


def test_an_unknown_neighbourhood_is_an_error_naming_it() -> None:
    with pytest.raises(ValueError, match="'hexagonal'"):
        Grid(2, 2, "hexagonal")


@unhurried
@given(grids)
def test_reshaping_keeps_the_cells_and_the_pattern(grid: Grid) -> None:
    turned = grid.with_shape(grid.columns, grid.rows)
    assert turned.shape == (grid.columns, grid.rows)
    assert turned.cells == grid.cells
    assert turned.neighbourhood == grid.neighbourhood


def test_reshaping_to_another_number_of_cells_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"2x4 \(8 cells\) to 3x3 \(9 cells\)"):
        Grid(2, 4).with_shape(3, 3)


def test_another_neighbourhood_keeps_the_shape() -> None:
    grid = Grid(2, 3, "ring")
    assert grid.with_neighbourhood("moore") == Grid(2, 3, "moore")
    table = [[1], [2], [3], [4], [5], [0]]
    assert grid.with_neighbourhood("table", table).subpopulation(5) == (5, 0)


FIRST, SECOND, THIRD = Grid(2, 4), Grid(2, 4, "moore"), Grid(4, 2, "moore")
SCHEDULE = GridSchedule(FIRST, ((10, SECOND), (20, THIRD)))


@pytest.mark.parametrize(
    ("round", "grid"),
    [(0, FIRST), (1, FIRST), (9, FIRST), (10, SECOND), (19, SECOND), (20, THIRD), (9999, THIRD)],
)
def test_a_change_holds_from_its_own_round_on(round: int, grid: Grid) -> None:
    assert SCHEDULE.at(round) == grid


@unhurried
@given(st.lists(st.integers(1, 30), min_size=1))
def test_the_grid_of_a_round_does_not_depend_on_what_was_asked_before(rounds: list[int]) -> None:
    """Cells run ahead of and behind each other; a change must still apply at one round."""
    asked = {round: SCHEDULE.at(round) for round in rounds}
    fresh = GridSchedule(FIRST, ((10, SECOND), (20, THIRD)))
    assert asked == {round: fresh.at(round) for round in sorted(rounds, reverse=True)}


def test_code_changes_a_schedule_from_a_round_on() -> None:
    changed = GridSchedule(FIRST).with_change(10, SECOND).with_change(20, THIRD)
    assert changed == SCHEDULE
    assert changed.grids == (FIRST, SECOND, THIRD)


def test_changing_a_schedule_leaves_the_old_one_as_it_was() -> None:
    SCHEDULE.with_change(5, THIRD)
    assert SCHEDULE.at(5) == FIRST


@pytest.mark.parametrize("round", [10, 15, 20])
def test_a_change_overrules_later_ones_and_keeps_earlier_ones(round: int) -> None:
    changed = SCHEDULE.with_change(round, FIRST)
    assert changed.at(round - 1) == SCHEDULE.at(round - 1)
    assert changed.at(round) == changed.at(100) == FIRST


def test_a_change_to_another_number_of_cells_is_an_error_naming_the_round() -> None:
    with pytest.raises(ValueError, match="round 7 has 9 cells, the run has 8"):
        GridSchedule(FIRST).with_change(7, Grid(3, 3))


@pytest.mark.parametrize("rounds", [(20, 10), (10, 10)])
def test_changes_out_of_order_are_an_error(rounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="increasing rounds"):
        GridSchedule(FIRST, tuple((round, SECOND) for round in rounds))


def test_a_change_before_the_first_round_is_an_error() -> None:
    with pytest.raises(ValueError, match="round 0: rounds start at 1"):
        GridSchedule(FIRST, ((0, SECOND),))


def test_rows_of_a_grid_are_west_east_chains() -> None:
    """The torus is made of closed rows: stepping east visits a row and comes back."""
    grid = Grid(3, 5)
    row = [grid.cell_at(1, column) for column in range(6)]
    assert row == [5, 6, 7, 8, 9, 5]
    assert all(east in grid.neighbours(west) for west, east in pairwise(row))


def test_the_grid_knows_neither_tensors_nor_communication() -> None:
    code = (
        "import sys, remuda.config.geometry\n"
        "rooms = ('torch', 'remuda.gan', 'remuda.parallel')\n"
        "bad = [m for m in sys.modules if m.startswith(rooms)]\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
