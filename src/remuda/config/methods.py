"""Settings of the methods, one class each, with what each requires of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from remuda.config.base import Settings, Variant
from remuda.config.data import DataSettings
from remuda.config.grid import GridSettings
from remuda.config.networks import NetworkSettings
from remuda.config.objectives import OBJECTIVES, LossGene, Objective
from remuda.config.training import TrainingSettings
from remuda.errors import ConfigError


class RunPlan(Protocol):
    """What a method's settings may ask about the rest of the configuration."""

    @property
    def data(self) -> DataSettings: ...
    @property
    def training(self) -> TrainingSettings: ...
    @property
    def grid(self) -> GridSettings: ...
    @property
    def networks(self) -> Sequence[NetworkSettings]: ...


class MethodSettings(Variant):
    """What all methods have in common, and what other rooms ask about any of them."""

    tag: ClassVar = "name"
    # Whether the data decide how many cells there are, so that grid.shape is only a placeholder.
    cells_follow_from_data: ClassVar[bool] = False

    name: str

    def check(self, plan: RunPlan) -> None:
        """Refuse, with a ValueError, a configuration the method cannot run with."""

    def round_batches(self, epoch: int, given: int | None) -> int:
        """Batches per round, given those of an epoch and `training.batches_per_round`."""
        return given or epoch


class InnerMethodSettings(MethodSettings):
    """Base of the methods that `class_parallel` can use within a label, among its replicas."""

    def check_replicas(self, plan: RunPlan, replicas: int) -> None:
        """Refuse, with a ValueError, what the method cannot do with this many replicas."""


GeneRange = tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]


class GeneSettings(Settings):
    """Ranges of genes; a gene without a range is the same in all cells at the start."""

    learning_rate: GeneRange | None = Field(
        None, description="learning rates, e.g. [1e-4, 1e-2]; null: training.learning_rate"
    )
    r1: GeneRange | None = Field(
        None, description="weight of R1, e.g. [0.01, 10]; null: training.r1"
    )
    average: GeneRange | None = Field(
        None, description="half-life of the average, e.g. [50, 2000]; null: training.average"
    )
    step: float = Field(
        0.4, ge=0, description="standard deviation of a mutation, in the logarithm of a gene"
    )

    @field_validator("learning_rate", "r1", "average")
    @classmethod
    def _in_order(cls, value: GeneRange | None) -> GeneRange | None:
        if value is not None and value[0] > value[1]:
            raise ValueError("the lower end comes first; for example [1e-4, 1e-2]")
        return value

    @property
    def drawn(self) -> bool:
        """Whether any gene has a range."""
        return any(one is not None for one in (self.learning_rate, self.r1, self.average))


def _check_equal_networks(plan: RunPlan, why: str) -> None:
    for number, network in enumerate(plan.networks):
        if network != plan.networks[0]:
            raise ValueError(
                f"members[{number}]: its networks differ from those of members[0], and under {why};"
                " allowed: equal networks, or method=gap"
            )


class CellularSettings(InnerMethodSettings):
    """Cellular coevolution: Lipizzaner, and Mustangs' loss gene."""

    name: Literal["cellular"] = Field(
        "cellular", description="cellular coevolution on the grid (Lipizzaner, Mustangs)"
    )
    communication: bool = Field(True, description="false: cells never see their neighbours")
    selection: bool = Field(
        True, description="false: a cell always trains, and keeps, its own networks"
    )
    exchange: Literal["loss", "score", "average"] = Field(
        "loss",
        description="what a cell takes from its neighbours: loss (tournaments by the loss on a "
        "batch, either network for itself: the articles), score (the whole GAN of a neighbour that "
        "scores better beyond doubt), average (the mean of all their weights, with a common start)",
    )
    select_every: int = Field(1, ge=1, description="rounds between looking at the neighbours")
    margin: float = Field(
        1.0,
        ge=0,
        description="exchange score: by how many standard errors a neighbour must be better",
    )
    most_relatives: int | None = Field(
        None,
        ge=1,
        description="exchange score: no take-over by a founder with that many descendants in the "
        "neighbourhood already; null: no limit",
    )
    relatives: Literal["compete", "average"] = Field(
        "compete",
        description="exchange score: cells with a common ancestor and equal genes compete like any "
        "others, or average their weights every round",
    )
    genes: GeneSettings = Field(default_factory=GeneSettings)
    opponents: Literal["subpopulation", "partner"] = Field(
        "partner",
        description="who a clone plays in each batch: any member of the sub-population (with the "
        "other clone in the cell's own place), or only the other clone",
    )
    tournament_size: int = Field(
        2, ge=1, description="members of the neighbourhood compared in a tournament"
    )
    fitness: Literal["mean", "worst", "best"] = Field(
        "mean", description="how fitness is taken over the opponents; lower is fitter"
    )
    fitness_batches: int = Field(
        1, ge=1, description="exchange loss: batches of items that fitness is the loss on"
    )
    fitness_loss: Objective | None = Field(
        None, description="the loss that fitness is compared under; null is training.objective"
    )
    replacement: Literal["elitist", "comma"] = Field(
        "elitist",
        description="elitist: the fittest of neighbourhood and offspring becomes the centre; "
        "comma: the offspring always does",
    )
    mutation: bool = Field(
        True,
        description="false: no gene mutates, neither learning rate nor loss nor those of genes",
    )
    mutation_probability: float = Field(
        0.5,
        ge=0,
        le=1,
        description="probability that a learning rate, or with ranges any gene, mutates: in every "
        "round, or with exchange=score when a GAN is taken over",
    )
    mutation_rate: float = Field(
        1e-4, ge=0, description="standard deviation of the learning-rate step"
    )
    losses: tuple[LossGene, ...] = Field(
        (),
        description="generator losses the loss gene is drawn from, each round (Mustangs) or, with "
        "ranges or exchange=score, at the start and when it mutates; "
        "empty: always training.objective",
    )
    mixture_scale: float = Field(
        0.01, ge=0, description="standard deviation of the mixture-weight mutation; 0 turns it off"
    )

    ensemble: Literal["neighbourhood", "best", "uniform", "average"] = Field(
        "neighbourhood",
        description="neighbourhood: the best neighbourhood's mixture (the articles); best: the "
        "best-scoring GAN; uniform: all with equal weights; average: one generator with the mean "
        "weights of the best-scoring GAN's family",
    )

    def check(self, plan: RunPlan) -> None:
        self._check_exchange(plan.training)
        self._check_tournament(plan.grid)
        self._check_losses(plan.training)
        _check_equal_networks(plan, "method=cellular cells breed with their neighbours")

    def check_replicas(self, plan: RunPlan, replicas: int) -> None:
        self._check_exchange(plan.training, "method.within")
        if self.exchange == "average":
            raise ValueError(
                "method.within.exchange=average: replicas do not have a common start; allowed: "
                "loss, score"
            )
        self._check_losses(plan.training, "method.within")
        if self.tournament_size > replicas:
            raise ValueError(
                f"method.within.tournament_size={self.tournament_size} is larger than "
                f"method.replicas={replicas}; allowed: 1 to {replicas}"
            )

    def _check_exchange(self, training: TrainingSettings, section: str = "method") -> None:
        if self.exchange != "loss" and self.opponents == "subpopulation":
            raise ValueError(
                f"{section}.opponents=subpopulation does not go with {section}.exchange="
                f"{self.exchange}, which keeps the pairs that train; allowed: partner"
            )
        if self.relatives == "average" and self.exchange != "score":
            raise ValueError(
                f"{section}.relatives=average is for {section}.exchange=score, not "
                f"{self.exchange}; allowed: compete, or that exchange"
            )
        if self.genes.average is not None and training.average is None:
            raise ValueError(
                f"{section}.genes.average={list(self.genes.average)} needs an averaged generator; "
                "allowed: training.average of a half-life in batches, or null"
            )
        rate = training.discriminator_learning_rate
        if self.genes.learning_rate is not None and rate is not None:
            raise ValueError(
                f"training.discriminator_learning_rate={rate:g}: {section}.genes.learning_rate="
                f"{list(self.genes.learning_rate)} draws one rate for both networks; allowed: null "
                "in either"
            )
        uses_gamma = OBJECTIVES[training.objective].uses_gamma and training.gamma > 0
        if self.genes.r1 is not None and uses_gamma:
            raise ValueError(
                f"{section}.genes.r1={list(self.genes.r1)}: training.objective="
                f"{training.objective} has R1 already, weighted by gamma; allowed: null, or "
                "training.gamma=0"
            )

    def _check_tournament(self, settings: GridSettings) -> None:
        if not (self.selection and self.communication and self.exchange == "loss"):
            return
        for grid in settings.build().grids:
            smallest = min(len(grid.subpopulation(cell)) for cell in range(grid.cells))
            if self.tournament_size > smallest:
                raise ValueError(
                    f"method.tournament_size={self.tournament_size} is larger than the "
                    f"neighbourhood of {smallest} on a {grid.rows}x{grid.columns} "
                    f"{grid.neighbourhood} grid; allowed: 1 to {smallest}, or method=independent"
                )

    def _check_losses(self, training: TrainingSettings, section: str = "method") -> None:
        """All losses in play must suit one discriminator; a critic suits its own only."""
        objective = training.objective
        fitness_loss = self.fitness_loss or objective
        if OBJECTIVES[objective].is_critic and self.losses:
            raise ValueError(
                f"{section}.losses={list(self.losses)} does not go with "
                f"training.objective={objective}, whose critic is not a classifier; allowed: []"
            )
        critics = [name for name in (objective, fitness_loss) if OBJECTIVES[name].is_critic]
        if critics and fitness_loss != objective:
            raise ValueError(
                f"{section}.fitness_loss={fitness_loss} does not go with training.objective="
                f"{objective}; allowed: null (the objective itself)"
            )


class IndependentSettings(MethodSettings):
    """Isolated GANs."""

    name: Literal["independent"] = Field(
        "independent", description="isolated GANs, one per cell: the baseline"
    )
    ensemble: Literal["best", "uniform"] = Field(
        "best", description="the best-scoring GAN alone, or all of them with equal weights"
    )


class GapSettings(InnerMethodSettings):
    """Generative adversarial parallelization: GANs that swap discriminators."""

    name: Literal["gap"] = Field("gap", description="GANs that swap discriminators at random (GAP)")
    swap: Literal["discriminators", "generators", "none"] = Field(
        "discriminators", description="what two matched members swap; none never swaps"
    )
    swap_every: float | None = Field(
        None,
        gt=0,
        description="epochs between swaps, which sets the length of a round; null: rounds have the "
        "length that training.batches_per_round says, with a swap before each but the first",
    )
    optimiser: Literal["stays", "moves"] = Field(
        "stays", description="whether its moments stay with the member or move with the network"
    )
    ensemble: Literal["best", "uniform"] = Field(
        "best", description="the best-scoring GAN alone, or all of them with equal weights"
    )

    def round_batches(self, epoch: int, given: int | None) -> int:
        if self.swap_every is None:
            return super().round_batches(epoch, given)
        wanted = max(1, round(self.swap_every * epoch))
        if given not in (None, wanted):
            raise ConfigError(
                f"training.batches_per_round={given}: method.swap_every={self.swap_every} of an "
                f"epoch of {epoch} batches is {wanted}; allowed: {wanted}, or null in either"
            )
        return wanted


class AveragingSettings(MethodSettings):
    """GANs with a common start that train apart and average their weights."""

    name: Literal["averaging"] = Field(
        "averaging", description="GANs of one origin that train apart and average their weights"
    )
    peers: Literal["all", "neighbours", "partner"] = Field(
        "all",
        description="whom a cell averages its weights with: all cells, its neighbours on the grid, "
        "or another partner each time (gossip)",
    )
    every: int = Field(1, ge=1, le=1000, description="rounds between averagings")
    moments: Literal["averaged", "kept"] = Field(
        "averaged", description="whether the optimiser's moments are averaged too, or stay"
    )

    def check(self, plan: RunPlan) -> None:
        _check_equal_networks(plan, "method=averaging cells average their weights")


class ClassParallelSettings(MethodSettings):
    """One GAN per label."""

    cells_follow_from_data: ClassVar[bool] = True

    name: Literal["class_parallel"] = Field(
        "class_parallel", description="one GAN per label, side by side; the labels decide the grid"
    )
    prior: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None,
        min_length=1,
        description="p(y), in the order of the labels: how often each label is drawn; null: as "
        "often as it occurs in the data",
    )
    replicas: int = Field(1, ge=1, description="GANs per label, of which the best is kept")
    within: InnerMethodSettings | None = Field(
        None, description="how the replicas of a label exchange: {name: cellular}, {name: gap}"
    )

    @model_validator(mode="after")
    def _exchange_needs_replicas(self) -> ClassParallelSettings:
        if self.within is not None and self.replicas < 2:
            raise ValueError(
                f"method.within={self.within.name} needs replicas to exchange with; "
                "allowed: method.replicas of at least 2, or null"
            )
        return self

    def check(self, plan: RunPlan) -> None:
        data, grid = plan.data, plan.grid
        if data.view != "all":
            raise ValueError(
                f"data.view={data.view}: under method=class_parallel a cell sees one label; "
                "allowed: all"
            )
        if data.validation:
            raise ValueError(
                f"data.validation={data.validation} holds out items of all labels, and under "
                "method=class_parallel a discriminator knows only one; allowed: 0"
            )
        if grid.schedule or grid.neighbourhood == "table":
            raise ValueError(
                "grid.schedule and neighbour tables: under method=class_parallel the grid follows "
                "from the labels; allowed: neither"
            )
        if any(network.is_conditional for network in plan.networks):
            raise ValueError(
                "network.condition: under method=class_parallel a cell sees one label, so there is "
                "nothing to condition on; allowed: network.condition=none, or another method"
            )
        if self.within is not None:
            self.within.check_replicas(plan, self.replicas)

    def round_batches(self, epoch: int, given: int | None) -> int:
        if self.within is None:
            return super().round_batches(epoch, given)
        return self.within.round_batches(epoch, given)
