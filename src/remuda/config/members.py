"""Settings of single cells."""

from __future__ import annotations

from pydantic import Field, field_validator

from remuda.config.base import Settings
from remuda.config.networks import PRIOR_HELP, NetworkSettings, Prior
from remuda.config.training import (
    GRADIENT_CLIP_HELP,
    INPUT_NOISE_HELP,
    NoiseStep,
    TrainingSettings,
    check_noise_steps,
)


class MemberSettings(Settings):
    """How one cell differs from the rest; null means it does not."""

    network: NetworkSettings | None = Field(None, description="its networks")
    prior: Prior | None = Field(None, description=PRIOR_HELP)
    input_noise: tuple[NoiseStep, ...] | None = Field(None, description=INPUT_NOISE_HELP)
    gradient_clip: float | None = Field(None, gt=0, description=GRADIENT_CLIP_HELP)

    _noise = field_validator("input_noise")(check_noise_steps)

    def network_from(self, common: NetworkSettings) -> NetworkSettings:
        """This cell's networks, given those of the rest."""
        network = self.network or common
        return network if self.prior is None else network.with_prior(self.prior)

    def training_from(self, common: TrainingSettings) -> TrainingSettings:
        """How this cell trains, given how the rest do."""
        changes = {
            name: value
            for name in ("input_noise", "gradient_clip")
            if (value := getattr(self, name)) is not None
        }
        return common.model_copy(update=changes) if changes else common
