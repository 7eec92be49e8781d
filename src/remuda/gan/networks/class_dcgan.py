"""The networks of Tables 1 to 4 of the articles on class-parallel training (CLASS, W-CLASS).

Sizes follow from the image, for the tables' own do not fit each other: the generator's 8192 is 128
channels of 8 x 8, which it enlarges to 32 pixels; the discriminator's 2048 is 128 of 4 x 4, which
is what its four halvings leave of 64 (of 32 pixels they leave 512). No sigmoid: objectives take
logits, and a Wasserstein critic has none anyway.
"""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from remuda.config.networks import ClassDcganSettings
from remuda.errors import ConfigError
from remuda.gan.networks.conditional import discriminator_of, generator_of
from remuda.gan.networks.convolutions import Conv, EnlargingConv, ToFeatures, ToImage, ToPlaces
from remuda.gan.networks.family import Family, Shape, layer_norm, leaky, normal_weights
from remuda.gan.networks.layers import MinibatchDeviation, SelfAttention, StreamDropout


def _check_shape(_: ClassDcganSettings, shape: Shape) -> None:
    square = len(shape) == 3 and shape[1] == shape[2]
    if not square or shape[0] not in (1, 3) or shape[1] < 8 or shape[1] % 4:
        raise ConfigError(
            f"network.family=class_dcgan cannot make items of shape {shape}; allowed: square "
            "images of 1 or 3 channels whose side is a multiple of 4 (28, 32, 64, ...), "
            "or network.family=mlp"
        )


def _generator(settings: ClassDcganSettings, shape: Shape) -> nn.Module:
    start, wide, narrow = shape[1] // 4, settings.width, max(1, settings.width // 2)
    first = leaky() if settings.first_activation == "leaky_relu" else nn.ReLU(inplace=True)
    body = nn.Sequential(
        nn.Linear(settings.latent + settings.num_classes, wide * start * start),
        first,
        ToPlaces(wide, start),
        nn.BatchNorm2d(wide),  # the one whose epsilon the tables have right
        EnlargingConv(wide, wide),
        nn.BatchNorm2d(wide, eps=settings.epsilon),
        leaky(),
        *([SelfAttention(wide)] if settings.attention else []),
        EnlargingConv(wide, narrow),
        nn.BatchNorm2d(narrow, eps=settings.epsilon),
        leaky(),
        ToImage(narrow, shape[0]),
        nn.Tanh(),
    )
    return generator_of(body, settings.num_classes, label_norm=settings.label_norm)


def _discriminator(settings: ClassDcganSettings, shape: Shape) -> nn.Module:
    layers: list[nn.Module] = []
    side = shape[1]
    widths = [max(1, settings.width >> halved) for halved in (3, 2, 1, 0)]
    for number, (before, after) in enumerate(pairwise((shape[0], *widths))):
        layers += [Conv(before, after, 3, stride=2, padding=1), leaky()]
        layers.append(StreamDropout(settings.dropout))
        if number > 0 and settings.discriminator_has_batch_norm:
            layers.append(nn.BatchNorm2d(after, eps=settings.epsilon))
        elif number > 0 and settings.discriminator_has_layer_norm:
            layers.append(layer_norm(after))
        if number == 1 and settings.attention:
            layers.append(SelfAttention(after))
        side = (side + 1) // 2
    channels = widths[-1]
    if settings.minibatch_stddev:
        layers.append(MinibatchDeviation(settings.minibatch_stddev))
        channels += 1
    body = nn.Sequential(*layers, ToFeatures())
    features = channels * side * side
    return discriminator_of(body, features, settings.condition, settings.num_classes)


CLASS_DCGAN = Family(_check_shape, _generator, _discriminator, normal_weights)
