"""Settings of the methods, one class each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from remuda.config.base import Settings
from remuda.config.training import Objective

LossGene = Literal["minimax", "heuristic", "least_squares", "relativistic"]


class CellularSettings(Settings):
    """Cellular coevolution: Lipizzaner, and Mustangs' loss gene."""

    name: Literal["cellular"] = Field(
        "cellular", description="cellular coevolution on the grid (Lipizzaner, Mustangs)"
    )
    communication: bool = Field(True, description="false: cells never see their neighbours")
    selection: bool = Field(
        True, description="false: a cell always trains, and keeps, its own networks"
    )
    opponents: Literal["subpopulation", "partner"] = Field(
        "subpopulation",
        description="whom a clone plays, batch by batch: any member of the sub-population (the "
        "cell's own place held by the other clone), or only the other clone",
    )
    tournament_size: int = Field(2, ge=1, description="members of the neighbourhood compared")
    fitness: Literal["mean", "worst", "best"] = Field(
        "mean", description="fitness over the opponents; lower is fitter"
    )
    fitness_loss: Objective | None = Field(
        None, description="the one loss fitness is compared under; null is training.objective"
    )
    replacement: Literal["elitist", "comma"] = Field(
        "elitist",
        description="elitist: the fittest of neighbourhood and offspring becomes the centre; "
        "comma: the offspring always does",
    )
    mutation: bool = Field(True, description="false: no learning-rate and no loss mutation")
    mutation_probability: float = Field(
        0.5, ge=0, le=1, description="chance that a learning rate mutates in a round"
    )
    mutation_rate: float = Field(
        1e-4, ge=0, description="standard deviation of the learning-rate step"
    )
    losses: tuple[LossGene, ...] = Field(
        (),
        description="generator losses the loss gene is drawn from each round (Mustangs); "
        "empty: always training.objective",
    )
    mixture_scale: float = Field(
        0.01, ge=0, description="standard deviation of the mixture-weight mutation; 0 turns it off"
    )


class IndependentSettings(Settings):
    """Isolated GANs."""

    name: Literal["independent"] = Field(
        "independent", description="isolated GANs, one per cell: the baseline"
    )
    ensemble: Literal["best", "uniform"] = Field(
        "best", description="the best-scoring GAN alone, or all of them with equal weights"
    )


class GapSettings(Settings):
    """Generative adversarial parallelization: GANs that swap discriminators."""

    name: Literal["gap"] = Field("gap", description="GANs that swap discriminators at random (GAP)")
    swap: Literal["discriminators", "generators", "none"] = Field(
        "discriminators", description="what two matched members give each other; none never swaps"
    )
    swap_every: float | None = Field(
        None,
        gt=0,
        description="epochs between swaps, which makes a round so long; null: rounds are as long "
        "as training.batches_per_round says, and members swap before each but the first",
    )
    optimiser: Literal["stays", "moves"] = Field(
        "stays", description="whether its moments stay with the member or move with the network"
    )
    ensemble: Literal["best", "uniform"] = Field(
        "best", description="the best-scoring GAN alone, or all of them with equal weights"
    )


class ClassParallelSettings(Settings):
    """One GAN per label."""

    name: Literal["class_parallel"] = Field(
        "class_parallel", description="one GAN per label, side by side; the grid follows from them"
    )
    prior: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None,
        min_length=1,
        description="p(y), in the order of the labels: how often each label is drawn; null is as "
        "often as in the data",
    )
    replicas: int = Field(1, ge=1, description="GANs per label, of which the best is kept")
    within: Annotated[CellularSettings | GapSettings, Field(discriminator="name")] | None = Field(
        None, description="how the replicas of a label exchange: {name: cellular}, {name: gap}"
    )

    @model_validator(mode="after")
    def _exchange_needs_replicas(self) -> ClassParallelSettings:
        if self.within is not None and self.replicas < 2:
            raise ValueError(
                f"method.within={self.within.name} needs somebody to exchange with; "
                "allowed: method.replicas from 2 on, or null"
            )
        return self


MethodSettings = Annotated[
    CellularSettings | IndependentSettings | GapSettings | ClassParallelSettings,
    Field(discriminator="name"),
]
