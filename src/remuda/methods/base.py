"""What a method is: the answers to four questions about a cell.

Which data does it see, whose parcels does it read in a round, what does it do with them, and which
generators make the ensemble at the end. A method knows nothing of processes or messages.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from remuda.clock import Clock
from remuda.config import Config
from remuda.config.geometry import GridSchedule
from remuda.data import Dataset, view_indices
from remuda.gan.cell import Cell, Gan, Losses
from remuda.gan.networks import check_shape
from remuda.gan.parcels import Parcel
from remuda.metrics import MixtureScore, Scorer


@dataclass(frozen=True)
class RoundReport:
    """What one cell did in one round; one line of `events.jsonl`."""

    cell: int
    round: int
    losses: Losses
    seconds: Mapping[str, float]
    genes: Mapping[str, Any]
    score: float | None
    classes: int | None
    duplicates: float | None
    diverged: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)  # published, gathered, saved
    staleness: Mapping[str, int] | None = None  # asynchronous: rounds each peer was behind

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a message."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RoundReport:
        """The inverse of `to_json`; a loss that was no number comes as null."""
        losses: dict[str, Any] = {
            name: math.nan if value is None else value for name, value in values["losses"].items()
        }
        return cls(**{**values, "losses": Losses(**losses)})


@dataclass(frozen=True)
class Mixture:
    """Which cells' generators make the ensemble, with which weights."""

    weights: Mapping[int, float]
    score: MixtureScore | None  # None where nothing is scored
    reason: str


class Method(ABC):
    """One way to train a population. Peers are a pure function of the round, so all sides agree."""

    # Whether every cell belongs to a label, which its parcel then says.
    labelled: ClassVar[bool] = False
    # Whether a cell that sees less than a batch trains with what there is.
    shrinks_batches: ClassVar[bool] = False
    # Whether a round needs its peers' parcels of exactly the round before, whatever the exchange:
    # who takes a network must be the one whose own is taken.
    exact_peers: bool = False
    # Whether cells remember the discriminators that their generators met. Where they do not,
    # whoever had to do with whom at all counts as having met.
    remembers_met: ClassVar[bool] = False

    def __init__(self, config: Config, grid: GridSchedule) -> None:
        self.config = config
        self.grid = grid

    @classmethod
    def resolve(cls, config: Config, dataset: Dataset) -> Config:  # noqa: ARG003 - for others
        """The configuration with all that follows from the data filled in."""
        return config

    def view(self, dataset: Dataset, cell: int) -> Tensor:
        """Indices of the data this cell trains on."""
        config = self.config
        return view_indices(config.data, dataset, seed=config.seed, cell=cell, cells=config.cells)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse, before anything is written, networks that cannot make or swap such items."""
        for cell in range(max(1, len(self.config.members))):
            check_shape(self.config.network_of(cell), shape)

    def label_shares(self, dataset: Dataset) -> list[float]:
        """How often each label is drawn, up to a factor: as often as in the data."""
        assert dataset.labels is not None
        counts = dataset.labels.bincount(minlength=len(dataset.label_names))
        return [float(count) for count in counts]

    @abstractmethod
    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        """The other cells whose parcels of round - 1 this cell reads in this round."""

    @abstractmethod
    def advance(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> RoundReport:
        """Take the cell through the round it is in, given its peers' parcels in order."""

    @abstractmethod
    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        """Reduce the final parcels of all cells to a mixture of generators."""


def report(
    cell: Cell, losses: Losses, clock: Clock, *, diverged: bool, details: Mapping[str, Any]
) -> RoundReport:
    """The report of the round a cell has just finished."""
    gan, found = cell.gan, cell.assessment
    with clock.routine("assess"):
        costs = cell.discriminator_costs()
    return RoundReport(
        cell=cell.index,
        round=cell.round,
        losses=losses,
        seconds=clock.seconds(),
        genes=genes(gan),
        score=found.score if found else None,
        classes=found.classes if found else None,
        duplicates=found.duplicates if found else None,
        diverged=diverged,
        details={**details, **({"cost": costs} if costs else {})},
    )


def genes(gan: Gan) -> dict[str, Any]:
    return {
        "lr_generator": gan.generator.learning_rate,
        "lr_discriminator": gan.discriminator.learning_rate,
        "loss": gan.generator.loss,
    }
