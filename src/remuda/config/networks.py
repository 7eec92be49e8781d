"""Settings of the networks, one class per family."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from remuda.config.base import Settings

Prior = Literal["gaussian", "uniform"]
_LATENT = "size of the generator's input"
PRIOR_HELP = "law of the generator's input: gaussian (N(0, 1)) or uniform (on [-1, 1])"
_SPECTRAL_NORM = "normalise the discriminator's weights"


class MlpSettings(Settings):
    """The article's fully connected networks (Table I), and GAP's toy networks."""

    family: Literal["mlp"] = Field("mlp", description="fully connected networks")
    latent: int = Field(64, ge=1, description=_LATENT)
    prior: Prior = Field("gaussian", description=PRIOR_HELP)
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (256, 256), min_length=1, description="neurons of each hidden layer"
    )
    activation: Literal["tanh", "leaky_relu", "relu"] = Field(
        "tanh", description="hidden activation: tanh (the article), leaky_relu (its code) or relu"
    )
    batch_norm: bool = Field(False, description="batch norm after every hidden layer of both")
    discriminator_batch_norm: bool = Field(
        True, description="false: where there is batch norm, in the generator alone"
    )
    output: Literal["tanh", "linear"] = Field(
        "tanh", description="the generator's last activation; data are scaled to [-1, 1]"
    )
    spectral_norm: bool = Field(False, description=_SPECTRAL_NORM)

    @property
    def num_classes(self) -> int:
        return 0

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent


class DcganSettings(Settings):
    """Radford's convolutional networks."""

    family: Literal["dcgan"] = Field("dcgan", description="convolutional networks (DCGAN)")
    latent: int = Field(100, ge=1, description=_LATENT)
    prior: Prior = Field("gaussian", description=PRIOR_HELP)
    width: int = Field(64, ge=1, description="channels of the widest-resolution layer")
    spectral_norm: bool = Field(False, description=_SPECTRAL_NORM)

    @property
    def num_classes(self) -> int:
        return 0

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent


class GranSettings(Settings):
    """GRAN's recurrent generator, with the DCGAN discriminator."""

    family: Literal["gran"] = Field("gran", description="recurrent generator (GRAN)")
    latent: int = Field(100, ge=1, description="size of the generator's input in one step")
    prior: Prior = Field("gaussian", description=PRIOR_HELP)
    steps: int = Field(5, ge=1, le=100, description="strokes an image is painted in")
    redraw: bool = Field(True, description="new noise for every step; false keeps one")
    width: int = Field(
        128,
        ge=1,
        description="channels of the generator's widest-resolution layer (the paper: 128 at 28 "
        "and 64 px, 256 at 32 px)",
    )
    discriminator_width: int = Field(
        64, ge=1, description="width of the DCGAN discriminator, with which it can be swapped"
    )
    spectral_norm: bool = Field(False, description=_SPECTRAL_NORM)

    @property
    def num_classes(self) -> int:
        return 0

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent * (self.steps if self.redraw else 1)


class LabelledSettings(Settings):
    """What networks have in common that may be told an item's label."""

    condition: Literal["none", "projection", "auxiliary"] = Field(
        "none",
        description="whether both networks are told the label: none, projection (the logit depends "
        "on it) or auxiliary (AC-GAN: the discriminator also names it)",
    )
    classes: int | None = Field(
        None, ge=1, description="labels of the data, where the networks are told them"
    )

    @model_validator(mode="after")
    def _classes_go_with_condition(self) -> LabelledSettings:
        if (self.condition != "none") != (self.classes is not None):
            raise ValueError(
                f"network.condition={self.condition} does not go with network.classes="
                f"{self.classes}; allowed: none and null, or a condition and the number of labels"
            )
        return self

    @property
    def num_classes(self) -> int:
        """How many labels the networks can be told; 0 if they are told none."""
        return self.classes or 0


class ClassDcganSettings(LabelledSettings):
    """The networks of the articles on class-parallel training, Tables 1 to 4."""

    family: Literal["class_dcgan"] = Field(
        "class_dcgan", description="the small convolutional networks of class-parallel training"
    )
    latent: int = Field(100, ge=1, description=_LATENT)
    prior: Prior = Field("gaussian", description=PRIOR_HELP)
    width: int = Field(
        128, ge=1, description="channels of the widest layers; the tables' 128, less is quicker"
    )
    first_activation: Literal["relu", "leaky_relu"] = Field(
        "relu", description="after the generator's first layer: relu (CLASS), leaky_relu (W-CLASS)"
    )
    epsilon: float = Field(
        1e-5, gt=0, le=1, description="of batch norm; the articles' tables say 0.8"
    )
    dropout: float = Field(0.25, ge=0, lt=1, description="share dropped in the discriminator")
    batch_norm: bool = Field(
        True, description="batch norm in the discriminator; false for a gradient penalty"
    )
    attention: bool = Field(False, description="a self-attention layer in both networks")
    spectral_norm: bool = Field(False, description=_SPECTRAL_NORM)

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent


class ResnetSettings(LabelledSettings):
    """Small residual networks."""

    family: Literal["resnet"] = Field("resnet", description="small residual networks")
    latent: int = Field(100, ge=1, description=_LATENT)
    prior: Prior = Field("gaussian", description=PRIOR_HELP)
    width: int = Field(64, ge=1, description="channels of every layer")
    attention: bool = Field(False, description="a self-attention layer in both networks")
    spectral_norm: bool = Field(True, description=_SPECTRAL_NORM)

    @property
    def noise_size(self) -> int:
        """Numbers drawn from the prior for one item."""
        return self.latent


AnyNetwork = MlpSettings | DcganSettings | GranSettings | ClassDcganSettings | ResnetSettings
NetworkSettings = Annotated[AnyNetwork, Field(discriminator="family")]
