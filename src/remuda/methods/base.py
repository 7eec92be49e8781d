"""What a method is: a few answers about a cell.

Which data does it see (`view`), whose parcels does it read in a round (`peers`), who plays whom
(`adapt`), who stays (`settle`), and which generators make the ensemble at the end (`ensemble`). A
method knows nothing of processes or messages; what all methods do alike in a round is in `advance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from torch import Tensor

from remuda.clock import Clock
from remuda.config import Config, DeviceSettings, MethodSettings
from remuda.config.geometry import GridSchedule
from remuda.data import Dataset, view_indices
from remuda.gan.cell import Cell
from remuda.gan.game import Losses, Rivals
from remuda.gan.learner import Gan
from remuda.gan.networks import check_shape
from remuda.gan.parcels import Parcel, Part
from remuda.methods.state import CellState
from remuda.metrics import MixtureScore, Scorer

Details = dict[str, Any]  # what an event says beyond what all methods report


@dataclass(frozen=True)
class Genes:
    """What evolution works on, as events show it."""

    lr_generator: float
    lr_discriminator: float
    loss: str  # the generator's objective
    r1: float = 0.0  # the weight of R1 in the discriminator's loss
    average: float | None = None  # half-life of the generator's average


@dataclass(frozen=True)
class RoundReport:
    """What one cell did in one round; one line of `events.jsonl`."""

    cell: int
    round: int
    losses: Losses
    seconds: Mapping[str, float]
    genes: Genes
    score: float | None
    classes: int | None
    duplicates: float | None
    diverged: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)  # published, gathered, saved
    staleness: Mapping[str, int] | None = None  # asynchronous: rounds each peer was behind
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Diversity:
    """How much is left of what the cells began with, and how far apart they are."""

    generators: int  # founders with descendants
    discriminators: int
    spread: float | None  # mean Fréchet distance of a cell's samples from those of all


@dataclass(frozen=True)
class Mixture:
    """Which cells' generators make the ensemble, with which weights."""

    weights: Mapping[int, float]
    score: MixtureScore | None  # None where nothing is scored, or not from assessments alone
    reason: str
    merged: bool = False  # into one generator with the weighted mean of their weights
    diversity: Diversity | None = None  # of the whole population, once it is known
    leader: int | None = None  # the cell whose genes stand for it; None: that of most weight


@dataclass(frozen=True)
class Match:
    """Who trains in a round, and whom they may play beside each other."""

    gan: Gan
    rivals: Rivals = Rivals()  # noqa: RUF009 - frozen
    details: Mapping[str, Any] = field(default_factory=dict)


class Method(ABC):
    """One way to train a population. Peers are a pure function of the round, so all sides agree."""

    settings: MethodSettings  # each method declares its own kind
    # What its cells remember from round to round.
    state: type[CellState] = CellState
    # Whether every cell belongs to a label, which its parcel then says.
    labelled: ClassVar[bool] = False
    # Whether a cell that sees less than a batch trains with what there is.
    shrinks_batches: ClassVar[bool] = False
    # Whether a round needs its peers' parcels of exactly the round before, whatever the exchange:
    # who takes a network must be the one whose own is taken.
    exact_peers: bool = False
    # Whether a cell's generator may be another's, which brings its prior along.
    moves_priors: bool = False
    # What of its peers' parcels a cell reads: no more is sent to it.
    reads: Part = ""
    # Whether the genes of cells change, so that those of the winner are worth knowing.
    evolves_genes: bool = False
    # The setting that is `score` and can do nothing without scores, if it is.
    needs_scores: str | None = None
    # Whether cells remember the discriminators that their generators met. Where they do not, all
    # cells that are linked at all count as having met.
    remembers_met: ClassVar[bool] = False

    def __init__(self, config: Config, grid: GridSchedule) -> None:
        self.config = config
        self.grid = grid
        self.settings = config.method

    @classmethod
    def resolve(cls, config: Config, dataset: Dataset) -> Config:  # noqa: ARG003 - for others
        """The configuration with everything that follows from the data filled in."""
        return config

    @classmethod
    def among_replicas(cls, config: Config, grid: GridSchedule, labels: int) -> Method:  # noqa: ARG003
        """The method as it works among the replicas of each label; `grid` links just those."""
        return cls(config, grid)

    def cell(self, index: int, dataset: Dataset, view: Tensor, scorer: Scorer | None) -> Cell:
        """A new cell that trains by this method."""
        state, founder = self._first_state(index), self.founder(index)
        cell = Cell(index, self.config, dataset, view, scorer, state, founder)
        self.equip(cell)
        return cell

    def equip(self, cell: Cell) -> None:  # noqa: B027 - most have none
        """Give a new cell what it has of its own beside its first weights."""

    def founder(self, index: int) -> int:
        """The cell whose first weights a cell starts with: itself, unless all are related."""
        return index

    def _first_state(self, index: int) -> CellState:
        founder = str(self.founder(index))
        own = founder == str(index)
        return self.state() if own else self.state(lineage=founder, ancestor=founder)

    def probe(self, index: int, dataset: Dataset, view: Tensor) -> Cell:
        """A cell to look at parcels with: unscored, and on the CPU, wherever the run trains."""
        here = self.config.model_copy(update={"devices": DeviceSettings()})
        state, founder = self._first_state(index), self.founder(index)
        cell = Cell(index, here, dataset, view, None, state, founder)
        self.equip(cell)
        return cell

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse, before anything is written, networks that cannot make or swap such items."""
        for cell in range(max(1, len(self.config.members))):
            check_shape(self.config.network_of(cell), shape)

    def check_start(self, parcels: Mapping[int, Parcel]) -> None:  # noqa: B027 - most have none
        """Refuse GANs of earlier runs that the method cannot start from."""

    def label_shares(self, dataset: Dataset) -> list[float]:
        """How often each label is drawn, up to a factor: as often as in the data."""
        assert dataset.labels is not None
        counts = dataset.labels.bincount(minlength=len(dataset.label_names))
        return [float(count) for count in counts]

    # -------------------------------------------------------------------------- the answers

    def view(self, dataset: Dataset, cell: int) -> Tensor:
        """Indices of the data this cell trains on."""
        config = self.config
        return view_indices(config.data, dataset, seed=config.seed, cell=cell, cells=config.cells)

    @abstractmethod
    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        """The other cells whose parcels of round - 1 this cell reads in this round."""

    @abstractmethod
    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        """Who trains in this round and against whom, given the peers' parcels in order."""

    def settle(self, cell: Cell, match: Match, *, diverged: bool, clock: Clock) -> Details:
        """Who is the cell's GAN after training: by default what trained, unless it diverged."""
        if not diverged:
            cell.gan = match.gan
        return {}

    def weigh(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Details:
        """Adjust mixture weights now that the cell is scored, for methods that keep any."""
        return {}

    @abstractmethod
    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        """Reduce the final parcels of all cells to a mixture of generators."""

    # -------------------------------------------------------------------------- a round

    @final
    def advance(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> RoundReport:
        """Take the cell through the round it is in."""
        match = self.adapt(cell, parcels, clock)
        with clock.routine("train"):
            losses = cell.train(match.gan, match.rivals)
        diverged = not match.gan.is_finite()
        details = {
            **match.details,
            **self.settle(cell, match, diverged=diverged, clock=clock),
        }
        found = None
        if self.config.score.due(cell.round, self.config.rounds):
            with clock.routine("assess"):
                found = cell.assess()
        details |= self.weigh(cell, parcels, clock)
        with clock.routine("assess"):
            costs = cell.discriminator_costs()
        return RoundReport(
            cell=cell.index,
            round=cell.round,
            losses=losses,
            seconds=clock.seconds(),
            genes=Genes(
                cell.gan.generator.learning_rate,
                cell.gan.discriminator.learning_rate,
                cell.gan.generator.objective.name,
                cell.gan.discriminator.r1,
                cell.gan.generator.half_life,
            ),
            score=found.score if found else None,
            # The samples of a single label show a single class, which is not a collapse.
            classes=found.classes if found and found.knows_classes and not self.labelled else None,
            duplicates=found.duplicates if found else None,
            diverged=diverged,
            details={**details, **({"cost": costs} if costs else {})},
        )


# The methods by name; `methods/__init__.py` fills it.
METHODS: dict[str, type[Method]] = {}


def build_method(config: Config) -> Method:
    """The method a configuration names."""
    return METHODS[config.method.name](config, config.grid.build())
