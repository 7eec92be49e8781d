"""Settings of training, and what one cell may do otherwise."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from remuda.config.base import Settings
from remuda.config.networks import PRIOR_HELP, NetworkSettings, Prior
from remuda.config.objectives import PENALTIES, PenaltyFacts

Objective = Literal["minimax", "heuristic", "least_squares", "wasserstein", "relativistic"]
Augmentation = Literal["translation", "cutout", "colour"]
NoiseStep = tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(ge=0)]]
_INPUT_NOISE = (
    "Gaussian noise on what discriminators see, as steps [share of the rounds up to which, "
    "standard deviation], e.g. [[0.25, 0.3], [0.5, 0.1]]; none after the last"
)
_GRADIENT_CLIP = "largest norm of a network's gradient; null: any"


def _check_steps(steps: tuple[NoiseStep, ...] | None) -> tuple[NoiseStep, ...] | None:
    ends = [until for until, _ in steps or ()]
    if ends != sorted(set(ends)):
        raise ValueError(
            "the steps must end later and later; for example [[0.25, 0.3], [0.5, 0.1]]"
        )
    return steps


class TrainingSettings(Settings):
    """How a cell trains its GAN."""

    batch_size: int = Field(100, ge=2, description="images per batch")
    batches_per_round: int | None = Field(
        None, ge=1, description="batches a cell trains per round; null is one epoch of its data"
    )
    skip_n_disc_steps: int = Field(
        0, ge=0, description="batches the discriminator sits out after each one it trains on"
    )
    n_critic: int = Field(
        1, ge=1, description="the generator trains on every so many batches (Wasserstein: 5)"
    )
    objective: Objective = Field(
        "heuristic", description="adversarial loss; heuristic is the non-saturating one"
    )
    optimiser: Literal["adam", "rmsprop"] = Field(
        "adam", description="adam, or rmsprop, with which weight clipping was published"
    )
    learning_rate: float = Field(2e-4, gt=0, le=1, description="initial learning rate")
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = Field(
        (0.5, 0.999), description="Adam's decay rates"
    )
    lipschitz: Literal["clip", "gradient_penalty"] = Field(
        "clip", description="objective wasserstein: how the critic is kept Lipschitz"
    )
    clip: float = Field(0.01, gt=0, description="objective wasserstein: bound of the weights")
    penalty: float = Field(10.0, ge=0, description="weight of the gradient penalty")
    gamma: float = Field(1.0, ge=0, description="objective relativistic: weight of R1 and R2")
    augment: tuple[Augmentation, ...] = Field(
        (),
        description="random changes of all images a discriminator trains on (DiffAugment): "
        "translation, cutout, colour; meant for few images and long training",
    )
    input_noise: tuple[NoiseStep, ...] = Field((), description=_INPUT_NOISE)
    gradient_clip: float | None = Field(None, gt=0, description=_GRADIENT_CLIP)

    _noise = field_validator("input_noise")(_check_steps)

    @property
    def penalties(self) -> tuple[PenaltyFacts, ...]:
        """Those that apply."""
        return tuple(facts for facts in PENALTIES.values() if facts.applies(self))

    @property
    def clips_weights(self) -> bool:
        return self.objective == "wasserstein" and self.lipschitz == "clip"

    def noise_in(self, round: int, rounds: int) -> float:
        """Standard deviation of the input noise in this one of so many rounds."""
        done = (round - 1) / rounds
        return next((sigma for until, sigma in self.input_noise if done < until), 0.0)

    @model_validator(mode="after")
    def _one_side_sits_out(self) -> TrainingSettings:
        if self.n_critic > 1 and self.skip_n_disc_steps > 0:
            raise ValueError(
                f"training.n_critic={self.n_critic} lets the generator sit out and "
                f"training.skip_n_disc_steps={self.skip_n_disc_steps} the discriminator; "
                "allowed: n_critic=1 or skip_n_disc_steps=0"
            )
        return self


class MemberSettings(Settings):
    """What one cell does otherwise than the rest; null is as the rest."""

    network: NetworkSettings | None = Field(None, description="its networks")
    prior: Prior | None = Field(None, description=PRIOR_HELP)
    input_noise: tuple[NoiseStep, ...] | None = Field(None, description=_INPUT_NOISE)
    gradient_clip: float | None = Field(None, gt=0, description=_GRADIENT_CLIP)

    _noise = field_validator("input_noise")(_check_steps)
