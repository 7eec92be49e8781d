"""What the ways of breeding have in common: how a cell of the grid takes from its neighbours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from remuda.clock import Clock
from remuda.config import CellularSettings, ScoreSettings
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel
from remuda.methods.base import Details, Match
from remuda.methods.lineage import Origin, cell_origin, origin
from remuda.methods.state import CellState


@dataclass
class CellularState(CellState):
    """A cell's mixture weights, by member, and the fitness of its generator."""

    mixture: dict[str, float] = field(default_factory=dict)
    fitness: float | None = None  # None before the first round, or where it is not finite


class Breeding(ABC):
    """Who trains in a round, given the neighbours' parcels, and who is the centre after it."""

    def __init__(self, settings: CellularSettings, score: ScoreSettings) -> None:
        self.settings = settings
        self.score = score

    def selects(self, round: int) -> bool:
        """Whether cells look at their neighbours in this round."""
        return self.settings.selection and (round - 1) % self.settings.select_every == 0

    @abstractmethod
    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        """The GAN that trains."""

    def settle(
        self,
        cell: Cell,
        match: Match,
        *,
        diverged: bool,
        clock: Clock,
    ) -> Details:
        """By default what trained is the centre; if it diverged, what was there before."""
        if not diverged:
            cell.gan = match.gan
        return {}


def cellular_state(cell: Cell) -> CellularState:
    assert isinstance(cell.state, CellularState)
    return cell.state


def origins(cell: Cell, parcels: Sequence[Parcel]) -> list[Origin]:
    """Where the GANs of a sub-population come from: the cell's own first."""
    return [cell_origin(cell), *map(origin, parcels)]
