"""Settings of training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from remuda.config.base import Settings
from remuda.config.networks import NetworkSettings
from remuda.config.objectives import OBJECTIVES, PENALTIES, Objective, PenaltyFacts

Augmentation = Literal["translation", "cutout", "colour"]
Schedule = Literal["constant", "linear", "cosine"]
# The factor of the learning rate when a share of the run is done: 1 at first, and never rising.
SCHEDULES: dict[Schedule, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
NoiseStep = tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(ge=0)]]
INPUT_NOISE_HELP = (
    "Gaussian noise added to what discriminators see, as steps [fraction of the rounds at which "
    "the step ends, standard deviation], e.g. [[0.25, 0.3], [0.5, 0.1]]; none after the last step"
)
GRADIENT_CLIP_HELP = "largest norm of a network's gradient; null for no limit"


def check_noise_steps(steps: tuple[NoiseStep, ...] | None) -> tuple[NoiseStep, ...] | None:
    """Refuse steps of input noise that are not in order."""
    ends = [end for end, _ in steps or ()]
    if ends != sorted(set(ends)):
        raise ValueError(
            "each step must end later than the one before; for example [[0.25, 0.3], [0.5, 0.1]]"
        )
    return steps


class TrainingSettings(Settings):
    """How a cell trains its GAN."""

    batch_size: int = Field(100, ge=2, description="items per batch")
    batches_per_round: int | None = Field(
        None, ge=1, description="batches a cell trains on per round; null is one epoch of its data"
    )
    skip_n_disc_steps: int = Field(
        0, ge=0, description="batches the discriminator sits out after each one it trains on"
    )
    n_critic: int = Field(
        1, ge=1, description="the generator trains on every n-th batch (Wasserstein: 5)"
    )
    objective: Objective = Field(
        "heuristic", description="adversarial loss; heuristic is the non-saturating one"
    )
    optimiser: Literal["adam", "rmsprop"] = Field(
        "adam", description="adam, or rmsprop, with which weight clipping was published"
    )
    learning_rate: float = Field(2e-4, gt=0, le=1, description="initial learning rate")
    discriminator_learning_rate: float | None = Field(
        None, gt=0, le=1, description="that of discriminators; null: learning_rate"
    )
    schedule: Schedule = Field(
        "constant",
        description="how learning rates fall over the batches of the whole run: constant (not), "
        "linear (to 0) or cosine (to 0, slowly at both ends)",
    )
    discriminator_schedule: Schedule | None = Field(
        None, description="that of discriminators; null: schedule"
    )
    warmup: int = Field(
        0, ge=0, description="batches over which learning rates first rise from near 0; 0: none"
    )
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = Field(
        (0.5, 0.999), description="Adam's decay rates"
    )
    share_fakes: bool = Field(
        False,
        description="the fakes that the discriminator trains on are also those that the generator "
        "learns from in the same batch: faster by one pass of the generator",
    )
    lipschitz: Literal["clip", "gradient_penalty"] = Field(
        "clip", description="objective wasserstein: how the critic is kept Lipschitz"
    )
    clip: float = Field(0.01, gt=0, description="objective wasserstein: bound of the weights")
    penalty: float = Field(10.0, ge=0, description="weight of the gradient penalty")
    gamma: float = Field(1.0, ge=0, description="objective relativistic: weight of R1 and R2")
    r1: float = Field(
        0.0,
        ge=0,
        description="weight of R1, the squared slope of the discriminator at real items, halved; "
        "any objective; 0 or null: none",
    )
    r1_every: int = Field(
        4,
        ge=1,
        description="R1 is computed on every n-th batch that the discriminator trains on, and "
        "counts n times there",
    )
    augment: tuple[Augmentation, ...] = Field(
        (),
        description="random changes to all images a discriminator trains on (DiffAugment): "
        "translation, cutout, colour; meant for few images and long training",
    )
    input_noise: tuple[NoiseStep, ...] = Field((), description=INPUT_NOISE_HELP)
    gradient_clip: float | None = Field(None, gt=0, description=GRADIENT_CLIP_HELP)
    average: float | None = Field(
        None,
        gt=0,
        description="samples come from an average of the generator's weights with this half-life, "
        "in batches that it trains on; null for the weights as they are",
    )
    average_ramp: float = Field(
        0.05,
        gt=0,
        le=1,
        description="the average's half-life is at most this share of the batches so far",
    )

    _noise = field_validator("input_noise")(check_noise_steps)

    @field_validator("r1", mode="before")
    @classmethod
    def _null_is_off(cls, value: Any) -> Any:
        return 0.0 if value is None else value

    @model_validator(mode="after")
    def _r1_has_one_weight(self) -> TrainingSettings:
        if self.r1 > 0 and self.gamma > 0 and OBJECTIVES[self.objective].uses_gamma:
            raise ValueError(
                f"training.r1={self.r1:g} and training.gamma={self.gamma:g}: "
                f"training.objective={self.objective} has R1 already, weighted by gamma; "
                "allowed: training.r1=0 or training.gamma=0"
            )
        return self

    @model_validator(mode="after")
    def _one_side_sits_out(self) -> TrainingSettings:
        if self.n_critic > 1 and self.skip_n_disc_steps > 0:
            raise ValueError(
                f"training.n_critic={self.n_critic} makes the generator sit out batches and "
                f"training.skip_n_disc_steps={self.skip_n_disc_steps} the discriminator; "
                "allowed: n_critic=1 or skip_n_disc_steps=0"
            )
        return self

    @property
    def penalties(self) -> tuple[PenaltyFacts, ...]:
        """The penalties that are added to the discriminator's loss."""
        return tuple(penalty for penalty in PENALTIES.values() if penalty.applies(self))

    @property
    def clips_weights(self) -> bool:
        """Whether a critic's weights are clipped after each of its steps."""
        return OBJECTIVES[self.objective].is_lipschitz and self.lipschitz == "clip"

    @property
    def of_discriminator(self) -> TrainingSettings:
        """What a discriminator learns by: its own rate and schedule in the places of the common."""
        changes: dict[str, Any] = {
            name: value
            for name in ("learning_rate", "schedule")
            if (value := getattr(self, f"discriminator_{name}")) is not None
        }
        return self.model_copy(update=changes) if changes else self

    def pace(self, batch: int, batches: int) -> float:
        """The factor of the learning rate on a batch, counted from 0, of all `batches` of a run."""
        rise = min(1.0, (batch + 1) / self.warmup) if self.warmup else 1.0
        return rise * SCHEDULES[self.schedule](min(1.0, batch / batches))

    def noise_in(self, round: int, rounds: int) -> float:
        """The standard deviation of the input noise in one round of `rounds`."""
        done = (round - 1) / rounds
        return next((sigma for end, sigma in self.input_noise if done < end), 0.0)

    def check_network(self, network: NetworkSettings) -> None:
        """Refuse networks that cannot be trained like this.

        A gradient penalty is per item, and batch norm makes every logit depend on the batch; R1
        then is the slope of all logits together.
        """
        if network.deviation_group > self.batch_size:
            raise ValueError(
                f"network.minibatch_stddev={network.deviation_group}: no batch is that large; "
                f"allowed: 0, or 2 to training.batch_size={self.batch_size}"
            )
        per_item = any(penalty.is_per_item for penalty in self.penalties)
        if per_item and network.discriminator_has_batch_norm:
            raise ValueError(
                f"training.objective={self.objective} with a gradient penalty needs a "
                f"discriminator without batch norm, and network.family={network.family} has it; "
                "allowed: network.spectral_norm=true, network.layer_norm=discriminator or "
                "network.batch_norm=false where the family has that key, or a family without batch "
                "norm, such as mlp"
            )
