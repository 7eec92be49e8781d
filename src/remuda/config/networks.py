"""Settings of the networks, one class per family."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from remuda.config.base import Variant

Prior = Literal["gaussian", "uniform"]
_LATENT = "size of the generator's input"
PRIOR_HELP = "distribution of the generator's input: gaussian (N(0, 1)) or uniform (on [-1, 1])"
_SPECTRAL_NORM = "normalise the discriminator's weights by their spectral norm"
_ATTENTION = "a self-attention layer in both networks"
_MOST_LAYERS = 1000


class NetworkSettings(Variant):
    """What all families have in common, and what other rooms ask about any network."""

    tag: ClassVar = "family"

    family: str
    latent: int = Field(100, ge=1, description=_LATENT)
    prior: Prior = Field("gaussian", description=PRIOR_HELP)
    spectral_norm: bool = Field(False, description=_SPECTRAL_NORM)

    def with_prior(self, prior: Prior) -> Self:
        """The same networks with noise of another distribution."""
        return self.model_copy(update={"prior": prior})

    @property
    def noise_size(self) -> int:
        """How many numbers are drawn from the prior for one item."""
        return self.latent

    @property
    def is_conditional(self) -> bool | None:
        """Whether the networks are conditioned on labels; None if the data will decide."""
        return self.num_classes > 0

    @property
    def num_classes(self) -> int:
        """How many labels the networks are conditioned on; 0 if on none, or not known yet."""
        return 0

    def for_labels(self, count: int) -> NetworkSettings:
        """The same networks for data of which that many labels can be used."""
        return self

    @property
    def discriminator_has_batch_norm(self) -> bool:
        """Whether the discriminator, in training, normalises an item by the rest of the batch."""
        return False

    @property
    def is_convolutional(self) -> bool:
        """Whether the layers are pictures, which outgrow a cache sooner than vectors."""
        return False

    @property
    def deviation_group(self) -> int:
        """How many items the discriminator measures the deviation of; 0 if it does not."""
        return 0


class GroupedSettings(NetworkSettings):
    """Base of the families whose discriminators can see how much the items of a group differ."""

    minibatch_stddev: int = Field(
        0,
        ge=0,
        description="show the discriminator the standard deviation over groups of that many items "
        "of a batch, e.g. 10; 0 or null: not",
    )

    @field_validator("minibatch_stddev", mode="before")
    @classmethod
    def _null_is_off(cls, value: Any) -> Any:
        return 0 if value is None else value

    @field_validator("minibatch_stddev")
    @classmethod
    def _one_item_does_not_deviate(cls, value: int) -> int:
        if value == 1:
            raise ValueError("one item has no deviation; allowed: 0, or a whole number from 2")
        return value

    @property
    def deviation_group(self) -> int:
        return self.minibatch_stddev


class NormedSettings(GroupedSettings):
    """Base of the families whose discriminators can have layer norm, which is per item."""

    layer_norm: str = Field("none", description="which networks have it")  # each family says which

    @property
    def generator_has_layer_norm(self) -> bool:
        return self.layer_norm in ("generator", "both")

    @property
    def discriminator_has_layer_norm(self) -> bool:
        return self.layer_norm in ("discriminator", "both")

    @property
    def _batch_norm_stays(self) -> bool:
        """Spectral norm and layer norm replace the discriminator's batch norm, in every family."""
        return not (self.spectral_norm or self.discriminator_has_layer_norm)

    @model_validator(mode="after")
    def _layer_norm_would_undo_spectral_norm(self) -> NormedSettings:
        if self.discriminator_has_layer_norm and self.spectral_norm:
            raise ValueError(
                f"network.layer_norm={self.layer_norm} rescales what network.spectral_norm=true "
                "bounds; allowed: network.spectral_norm=false, or network.layer_norm=none"
            )
        return self


class LabelledSettings(NormedSettings):
    """Base of the families whose networks can be conditioned on an item's label."""

    condition: Literal["none", "projection", "auxiliary", "auto"] = Field(
        "none",
        description="condition both networks on the label: none, projection (the logit depends on "
        "it), auxiliary (AC-GAN: the discriminator also predicts it) or auto (projection if the "
        "data have labels and the method can use them, else none)",
    )
    classes: int | None = Field(
        None, ge=1, description="number of labels in the data; null: as many as they have"
    )

    @model_validator(mode="after")
    def _classes_need_a_condition(self) -> LabelledSettings:
        if self.condition == "none" and self.classes is not None:
            raise ValueError(
                f"network.classes={self.classes} without a condition; allowed: network.classes="
                "null, or network.condition=projection, auxiliary or auto"
            )
        return self

    @property
    def is_conditional(self) -> bool | None:
        return None if self.condition == "auto" else self.condition != "none"

    @property
    def num_classes(self) -> int:
        return self.classes or 0 if self.is_conditional else 0

    def for_labels(self, count: int) -> NetworkSettings:
        if self.condition == "auto" and count < 2:
            return self.model_copy(update={"condition": "none", "classes": None})
        if self.condition == "none":
            return self
        condition = "projection" if self.condition == "auto" else self.condition
        return self.model_copy(
            update={"condition": condition, "classes": self.classes or count or None}
        )


class ConvolutionalSettings(LabelledSettings):
    """Base of the convolutional families, whose generators have batch norm."""

    layer_norm: Literal["none", "discriminator"] = Field(
        "none",
        description="layer norm in the discriminator, where batch norm would be, in its place",
    )

    @property
    def is_convolutional(self) -> bool:
        return True


class LabelNormSettings(ConvolutionalSettings):
    """Base of those families whose generators can have a batch norm that depends on the label."""

    label_norm: bool = Field(
        False,
        description="the generator's batch norms have a scale and a shift for each label as well",
    )

    @model_validator(mode="after")
    def _label_norm_needs_a_condition(self) -> LabelNormSettings:
        if self.label_norm and self.condition == "none":
            raise ValueError(
                "network.label_norm=true without a condition; allowed: network.label_norm=false, "
                "or network.condition=projection, auxiliary or auto"
            )
        return self

    def for_labels(self, count: int) -> NetworkSettings:
        found = super().for_labels(count)
        return found if found.is_conditional else found.model_copy(update={"label_norm": False})


class MlpSettings(LabelledSettings):
    """The article's fully connected networks (Table I), and GAP's toy networks."""

    family: Literal["mlp"] = Field("mlp", description="fully connected networks")
    latent: int = Field(64, ge=1, description=_LATENT)
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (256, 256), min_length=1, description="neurons in each hidden layer"
    )
    activation: Literal["tanh", "leaky_relu", "relu"] = Field(
        "tanh", description="hidden activation: tanh (the article), leaky_relu (its code) or relu"
    )
    batch_norm: bool = Field(
        False, description="batch norm after every hidden layer of both networks"
    )
    discriminator_batch_norm: bool = Field(
        True, description="false restricts batch norm to the generator"
    )
    layer_norm: Literal["none", "generator", "discriminator", "both"] = Field(
        "none",
        description="layer norm after every hidden layer, but not the discriminator's first, of "
        "one network or both, in the place of batch norm",
    )
    output: Literal["tanh", "linear"] = Field(
        "tanh", description="the generator's last activation; data are scaled to [-1, 1]"
    )

    @field_validator("hidden")
    @classmethod
    def _layers_can_be_built(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(value) > _MOST_LAYERS:
            raise ValueError(f"{len(value):,} layers; allowed: at most {_MOST_LAYERS:,}")
        return value

    @model_validator(mode="after")
    def _first_layer_has_no_norm(self) -> MlpSettings:
        if self.discriminator_has_layer_norm and len(self.hidden) == 1:
            raise ValueError(
                f"network.layer_norm={self.layer_norm} with network.hidden={list(self.hidden)}: "
                "a discriminator's first hidden layer has no norm, and it has no other; allowed: "
                "two hidden layers or more, or network.layer_norm=none or generator"
            )
        return self

    @property
    def discriminator_has_batch_norm(self) -> bool:
        return self.batch_norm and self.discriminator_batch_norm and self._batch_norm_stays


class DcganSettings(LabelNormSettings):
    """Radford's convolutional networks."""

    family: Literal["dcgan"] = Field("dcgan", description="convolutional networks (DCGAN)")
    width: int = Field(64, ge=1, description="channels of the highest-resolution layer")

    @property
    def discriminator_has_batch_norm(self) -> bool:
        return self._batch_norm_stays


class GranSettings(ConvolutionalSettings):
    """GRAN's recurrent generator, with the DCGAN discriminator."""

    family: Literal["gran"] = Field("gran", description="recurrent generator (GRAN)")
    latent: int = Field(100, ge=1, description="size of the generator's input in one step")
    steps: int = Field(5, ge=1, le=100, description="steps in which an image is painted")
    redraw: bool = Field(True, description="new noise for every step; false reuses the first")
    width: int = Field(
        128,
        ge=1,
        description="channels of the generator's highest-resolution layer (the paper: 128 at 28 "
        "and 64 px, 256 at 32 px)",
    )
    discriminator_width: int = Field(
        64, ge=1, description="width of the discriminator; a DCGAN of that width can swap with it"
    )

    @property
    def noise_size(self) -> int:
        return self.latent * (self.steps if self.redraw else 1)

    @property
    def discriminator_has_batch_norm(self) -> bool:
        return self._batch_norm_stays


class ClassDcganSettings(LabelNormSettings):
    """The networks of the articles on class-parallel training, Tables 1 to 4."""

    family: Literal["class_dcgan"] = Field(
        "class_dcgan", description="the small convolutional networks of class-parallel training"
    )
    width: int = Field(
        128, ge=1, description="channels of the widest layers; 128 in the tables, less is faster"
    )
    first_activation: Literal["relu", "leaky_relu"] = Field(
        "relu", description="after the generator's first layer: relu (CLASS), leaky_relu (W-CLASS)"
    )
    epsilon: float = Field(
        1e-5, gt=0, le=1, description="epsilon of batch norm; 0.8 in the articles' tables"
    )
    dropout: float = Field(0.25, ge=0, lt=1, description="dropout rate of the discriminator")
    batch_norm: bool = Field(
        True, description="batch norm in the discriminator; false for a gradient penalty"
    )
    attention: bool = Field(False, description=_ATTENTION)

    @property
    def discriminator_has_batch_norm(self) -> bool:
        return self.batch_norm and self._batch_norm_stays


class ResnetSettings(LabelNormSettings):
    """Small residual networks."""

    family: Literal["resnet"] = Field("resnet", description="small residual networks")
    spectral_norm: bool = Field(True, description=_SPECTRAL_NORM)
    width: int = Field(64, ge=1, description="channels of every layer")
    attention: bool = Field(False, description=_ATTENTION)
