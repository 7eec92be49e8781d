"""A small pair of residual networks, after Gulrajani et al. (2017) and Miyato et al. (2018)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate

from remuda.config.networks import ResnetSettings
from remuda.gan.networks.conditional import discriminator_of, generator_of
from remuda.gan.networks.convolutions import Conv, EnlargingConv, ToImage, ToPlaces
from remuda.gan.networks.dcgan import check_square, stages
from remuda.gan.networks.family import Family, Shape, layer_norm, orthogonal_weights
from remuda.gan.networks.layers import MinibatchDeviation, SelfAttention


class UpBlock(nn.Module):
    """Twice the side: two convolutions beside a plain enlargement."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1 = nn.BatchNorm2d(width)
        self.conv_1 = EnlargingConv(width, width)
        self.norm_2 = nn.BatchNorm2d(width)
        self.conv_2 = Conv(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(self.norm_1(x).relu())
        y = self.conv_2(self.norm_2(y).relu())
        grown: Tensor = y + interpolate(x, scale_factor=2)
        return grown


class DownBlock(nn.Module):
    """Half the side: two convolutions beside a mean; no batch norm, so gradient penalties hold."""

    def __init__(self, before: int, after: int, *, first: bool, normed: bool) -> None:
        super().__init__()
        self.norm_1 = layer_norm(before) if normed and not first else nn.Identity()
        self.norm_2 = layer_norm(after) if normed else nn.Identity()
        self.first = first  # its input is an image, which must not lose its negative half
        self.conv_1 = Conv(before, after, 3, padding=1)
        self.conv_2 = Conv(after, after, 3, padding=1)
        self.skip = Conv(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(x if self.first else self.norm_1(x).relu())
        y = self.conv_2(self.norm_2(y).relu())
        shrunk: Tensor = avg_pool2d(y, 2) + self.skip(avg_pool2d(x, 2))
        return shrunk


class SumPool(nn.Module):
    """All places of each channel added up."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().sum((2, 3))


def _generator(settings: ResnetSettings, shape: Shape) -> nn.Module:
    width, count = settings.width, stages(shape[1])
    start = shape[1] >> count
    layers: list[nn.Module] = [
        nn.Linear(settings.latent + settings.num_classes, width * start * start),
        ToPlaces(width, start),
    ]
    for number in range(count):
        layers.append(UpBlock(width))
        if settings.attention and number == max(0, count - 2):
            layers.append(SelfAttention(width))
    layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    body = nn.Sequential(*layers, ToImage(width, shape[0]), nn.Tanh())
    return generator_of(body, settings.num_classes, label_norm=settings.label_norm)


def _discriminator(settings: ResnetSettings, shape: Shape) -> nn.Module:
    width, count = settings.width, stages(shape[1])
    layers: list[nn.Module] = []
    for number in range(count):
        before, normed = width if number else shape[0], settings.discriminator_has_layer_norm
        layers.append(DownBlock(before, width, first=number == 0, normed=normed))
        if settings.attention and number == 0:
            layers.append(SelfAttention(width))
    if settings.minibatch_stddev:
        layers.append(MinibatchDeviation(settings.minibatch_stddev))
        width += 1
    body = nn.Sequential(*layers, SumPool())
    return discriminator_of(body, width, settings.condition, settings.num_classes)


RESNET = Family[ResnetSettings](
    lambda _, shape: check_square("resnet", shape), _generator, _discriminator, orthogonal_weights
)
