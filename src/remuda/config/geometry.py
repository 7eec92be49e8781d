"""The toroidal grid of cells: its shape, its neighbourhoods, and how both change during a run.

Pure geometry: no communication, no tensors, no configuration objects. Cells are numbered row by
row; a neighbourhood lists a cell itself first and then its distinct neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# Offsets are (row, column). The papers say "Moore" for what is the von Neumann pattern: W, N, E, S.
PATTERNS: dict[str, tuple[tuple[int, int], ...]] = {
    "von_neumann": ((0, -1), (-1, 0), (0, 1), (1, 0)),
    "moore": ((0, -1), (-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1)),
}
NEIGHBOURHOODS = (*PATTERNS, "ring", "table")


@dataclass(frozen=True)
class Grid:
    """One arrangement of cells, and which of them are neighbours."""

    rows: int
    columns: int
    neighbourhood: str = "von_neumann"
    table: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise ValueError(f"a grid of {self.rows}x{self.columns} has no cells")
        if self.neighbourhood not in NEIGHBOURHOODS:
            raise ValueError(f"unknown neighbourhood {self.neighbourhood!r}")
        if (self.table is not None) != (self.neighbourhood == "table"):
            raise ValueError("a neighbour table goes with neighbourhood 'table', and only with it")
        if self.table is not None:
            self._check_table(self.table)

    def _check_table(self, table: tuple[tuple[int, ...], ...]) -> None:
        if len(table) != self.cells:
            raise ValueError(f"the neighbour table has {len(table)} rows for {self.cells} cells")
        for cell, row in enumerate(table):
            for other in row:
                if not 0 <= other < self.cells:
                    raise ValueError(
                        f"row {cell} of the neighbour table names cell {other}; "
                        f"cells are 0 to {self.cells - 1}"
                    )

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    def position(self, cell: int) -> tuple[int, int]:
        """(row, column) of a cell."""
        if not 0 <= cell < self.cells:
            raise IndexError(f"cell {cell} is not on a grid of {self.cells} cells")
        return divmod(cell, self.columns)

    def cell_at(self, row: int, column: int) -> int:
        """The cell at a position; positions wrap around the torus."""
        return (row % self.rows) * self.columns + column % self.columns

    def neighbours(self, cell: int) -> tuple[int, ...]:
        """The distinct cells next to this one."""
        return self.subpopulation(cell)[1:]

    def subpopulation(self, cell: int) -> tuple[int, ...]:
        """The cell itself and its distinct neighbours: 3 on a 2×2 torus, 5 from 3×3 on."""
        row, column = self.position(cell)
        if self.table is not None:
            others: Iterable[int] = self.table[cell]
        elif self.neighbourhood == "ring":
            others = ((cell - 1) % self.cells, (cell + 1) % self.cells)
        else:
            others = (self.cell_at(row + r, column + c) for r, c in PATTERNS[self.neighbourhood])
        return tuple(dict.fromkeys((cell, *others)))

    def with_shape(self, rows: int, columns: int) -> Grid:
        """The same cells arranged in another shape."""
        if rows * columns != self.cells:
            raise ValueError(
                f"cannot reshape {self.rows}x{self.columns} ({self.cells} cells) to "
                f"{rows}x{columns} ({rows * columns} cells); allowed: shapes of {self.cells} cells"
            )
        return Grid(rows, columns, self.neighbourhood, self.table)

    def with_neighbourhood(
        self, neighbourhood: str, table: Sequence[Sequence[int]] | None = None
    ) -> Grid:
        """The same arrangement with other neighbours."""
        rows = None if table is None else tuple(tuple(row) for row in table)
        return Grid(self.rows, self.columns, neighbourhood, rows)


@dataclass(frozen=True)
class GridSchedule:
    """Which grid applies in which round: a pure function of the round, so all cells agree."""

    initial: Grid
    changes: tuple[tuple[int, Grid], ...] = field(default=())

    def __post_init__(self) -> None:
        rounds = [start for start, _ in self.changes]
        if rounds != sorted(set(rounds)):
            raise ValueError(f"grid changes must be at increasing rounds, not {rounds}")
        for start, grid in self.changes:
            if start < 1:
                raise ValueError(f"a grid change at round {start}: rounds start at 1")
            if grid.cells != self.initial.cells:
                raise ValueError(
                    f"the grid change at round {start} has {grid.cells} cells, "
                    f"the run has {self.initial.cells}"
                )

    def at(self, round: int) -> Grid:
        """The grid of a round: that of the latest change at or before it."""
        current = self.initial
        for start, grid in self.changes:
            if start <= round:
                current = grid
        return current

    def with_change(self, round: int, grid: Grid) -> GridSchedule:
        """The schedule that uses `grid` from `round` on, without any later changes."""
        kept = tuple(change for change in self.changes if change[0] < round)
        return GridSchedule(self.initial, (*kept, (round, grid)))

    @property
    def grids(self) -> tuple[Grid, ...]:
        return self.initial, *(grid for _, grid in self.changes)
