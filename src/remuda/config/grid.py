"""Settings of the grid; an impossible grid is refused when they are loaded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, field_validator, model_validator

from remuda.config.base import Settings
from remuda.config.geometry import Grid, GridSchedule

Shape = Annotated[
    tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]],
    PlainSerializer(lambda shape: f"{shape[0]}x{shape[1]}", return_type=str, when_used="json"),
]
Neighbourhood = Literal["von_neumann", "moore", "ring", "table"]
MOST_CELLS = 100_000
_MOST_CHANGES = 1000


def _parse_shape(value: Any) -> Any:
    parts = value.lower().replace("×", "x").split("x") if isinstance(value, str) else value
    if parts is None:
        return None
    try:
        rows, columns = (int(part) for part in parts)
    except (TypeError, ValueError):
        rows = columns = 0
    if rows < 1 or columns < 1:
        raise ValueError("not a grid; allowed: ROWSxCOLUMNS, both at least 1, for example 3x3")
    return rows, columns


class GridChange(Settings):
    """One change of the grid during a run; what is null stays as it was."""

    round: int = Field(ge=1, description="first round with the new grid")
    shape: Shape | None = Field(None, description="new shape; null keeps it")
    neighbourhood: Neighbourhood | None = Field(None, description="new pattern; null keeps it")
    table: tuple[tuple[int, ...], ...] | None = Field(
        None, description="neighbourhood table: the neighbours of each cell"
    )

    _shape = field_validator("shape", mode="before")(_parse_shape)


class GridSettings(Settings):
    """The torus of cells, and which of them are neighbours."""

    shape: Shape = Field((2, 2), description="rows x columns of the torus, one GAN per cell")
    neighbourhood: Neighbourhood = Field(
        "von_neumann", description="von_neumann (W, N, E, S), moore (8), ring, or table"
    )
    table: tuple[tuple[int, ...], ...] | None = Field(
        None, description="neighbourhood table: the neighbours of each cell"
    )
    schedule: tuple[GridChange, ...] = Field(
        (), description="changes during the run, e.g. [{round: 10, neighbourhood: moore}]"
    )

    _shape = field_validator("shape", mode="before")(_parse_shape)

    @model_validator(mode="after")
    def _is_possible(self) -> GridSettings:
        cells = self.shape[0] * self.shape[1]
        if cells > MOST_CELLS:
            raise ValueError(
                f"grid.shape={self.shape[0]}x{self.shape[1]} has {cells:,} cells; "
                f"allowed: at most {MOST_CELLS:,}"
            )
        if len(self.schedule) > _MOST_CHANGES:
            raise ValueError(
                f"grid.schedule: {len(self.schedule):,} changes; allowed: at most {_MOST_CHANGES:,}"
            )
        self.build()
        return self

    def build(self) -> GridSchedule:
        """The geometry these settings describe."""
        schedule = GridSchedule(Grid(*self.shape, self.neighbourhood, self.table))
        for change in sorted(self.schedule, key=lambda change: change.round):
            grid = schedule.at(change.round)
            try:
                if change.shape is not None:
                    grid = grid.with_shape(*change.shape)
                if change.neighbourhood is not None or change.table is not None:
                    pattern = change.neighbourhood or "table"
                    grid = grid.with_neighbourhood(pattern, change.table)
            except ValueError as error:
                raise ValueError(f"grid.schedule at round {change.round}: {error}") from None
            schedule = schedule.with_change(change.round, grid)
        return schedule
