"""GRAN (Im et al., 2016): a generator that paints an image in steps, looking at its last stroke.

In step t a decoder turns the noise and a code of the last stroke into a stroke ΔC_t; an encoder
makes the next step's code of it. The image is σ(Σ ΔC_t), here in [-1, 1] like all data. The weights
are the same in every step. Its discriminator is Radford's, so the two can swap.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from remuda.config.networks import GranSettings
from remuda.gan.networks.conditional import generator_of
from remuda.gan.networks.convolutions import (
    Doubling,
    DoublingToImage,
    FromImage,
    ToFeatures,
    ToPlaces,
)
from remuda.gan.networks.dcgan import check_square, discriminator, halving, stages
from remuda.gan.networks.family import Family, Shape, normal_weights

_CODE = 100  # size of the code of the noise, and of that of a stroke


class GranGenerator(nn.Module):
    """The recurrent generator; with `redraw` every step has noise of its own."""

    def __init__(self, settings: GranSettings, shape: Shape) -> None:
        super().__init__()
        channels, size = shape[0], shape[1]
        start = size >> stages(size)
        widths = [settings.width << depth for depth in reversed(range(stages(size)))]
        self.steps, self.latent, self.redraw = settings.steps, settings.latent, settings.redraw
        self.noise_size = settings.noise_size
        # No bias before a batch norm, which would subtract it again.
        self.noise_code = nn.Sequential(
            nn.Linear(settings.latent + settings.num_classes, _CODE, bias=False),
            nn.BatchNorm1d(_CODE),
            nn.Tanh(),
        )
        flat = widths[0] * start * start
        decoder: list[nn.Module] = [
            nn.Linear(2 * _CODE, flat, bias=False),
            nn.BatchNorm1d(flat),
            nn.ReLU(inplace=True),
            ToPlaces(widths[0], start),
        ]
        for before, after in pairwise(widths):
            decoder += [Doubling(before, after, bias=True), nn.ReLU(inplace=True)]
        self.decoder = nn.Sequential(*decoder, DoublingToImage(widths[-1], channels, bias=True))
        self.encoder = _encoder(channels, widths[::-1], flat) if settings.steps > 1 else None

    def forward(self, noise: Tensor) -> Tensor:
        """Images in [-1, 1] of (n, noise_size) noise and, behind it, what they depend on."""
        noise, condition = noise.tensor_split([self.noise_size], dim=1)
        draws = torch.split(noise, self.latent, dim=1)
        code = noise.new_zeros(len(noise), _CODE)
        canvas: Tensor | None = None
        for step in range(self.steps):
            if step == 0 or self.redraw:
                seed = self.noise_code(torch.cat((draws[step], condition), dim=1))
            stroke: Tensor = self.decoder(torch.cat((seed, code), dim=1))
            canvas = stroke if canvas is None else canvas + stroke
            if self.encoder is not None and step + 1 < self.steps:
                code = self.encoder(stroke)
        assert canvas is not None
        return torch.tanh(canvas / 2)  # 2σ(c) - 1


def _encoder(channels: int, widths: list[int], flat: int) -> nn.Sequential:
    # No bias before a batch norm, and no batch norm after the last convolution.
    layers: list[nn.Module] = [FromImage(channels, widths[0], bias=len(widths) == 1)]
    for number, (before, after) in enumerate(pairwise(widths), 2):
        layers += [nn.BatchNorm2d(before), nn.ReLU(inplace=True)]
        layers.append(halving(before, after, bias=number == len(widths)))
    layers.append(ToFeatures())
    return nn.Sequential(
        *layers, nn.Linear(flat, _CODE, bias=False), nn.BatchNorm1d(_CODE), nn.Tanh()
    )


GRAN = Family[GranSettings](
    lambda _, shape: check_square("gran", shape),
    lambda settings, shape: generator_of(GranGenerator(settings, shape), settings.num_classes),
    lambda settings, shape: discriminator(settings, settings.discriminator_width, shape),
    normal_weights,
)
