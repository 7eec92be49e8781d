"""The convolutions that image networks are built of, all of them in channels-last.

A processor convolves fastest if the channels of a place lie side by side in memory and fill its
vectors. So every layer here takes its input in that order (most get it so already) and gives its
output in it. Weights and images stay in torch's ordinary order, so that parcels, optimisers and all
who look at samples need not know. Functions, names and shapes are those of torch's own layers: only
their sums are in another order.

Images have one or three channels, far fewer than a vector holds. The layers next to them therefore
compute 2x2 blocks of pixels as if they were channels, a quarter as many places of four times as
many channels (Shi et al. 2016, sub-pixel convolution).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import (
    conv2d,
    conv_transpose2d,
    pad,
    pixel_shuffle,
    pixel_unshuffle,
)

_BLOCK = 2  # pixels a side


def channels_last(x: Tensor) -> Tensor:
    """The same items with the channels of a place side by side in memory."""
    count, channels, height, width = x.shape
    if channels == 1:
        # Such a tensor is in both orders at once; only its strides tell torch which one is meant.
        return x.reshape(count, height, width, 1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last)


class ToPlaces(nn.Unflatten):
    """The features of an item as the channels of its places."""

    def __init__(self, channels: int, side: int) -> None:
        super().__init__(1, (channels, side, side))

    def forward(self, x: Tensor) -> Tensor:
        return channels_last(super().forward(x))


class ToFeatures(nn.Flatten):
    """The channels of all places as an item's features, in torch's ordinary order."""

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = _Flat.apply(x)  # type: ignore[no-untyped-call]
        return features


class _Flat(torch.autograd.Function):
    """Flattening whose gradient is in channels-last again.

    A plain one would give the activation before it output and gradient in two orders, at four times
    the cost. Its backward is made of differentiable steps, so penalties on gradients hold.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.flatten(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return channels_last(gradient.reshape(ctx.shape))


class Conv(nn.Conv2d):
    """A convolution."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(channels_last(x))


class Doubling(nn.ConvTranspose2d):
    """Radford's 5x5 kernel, padded so that a side exactly doubles."""

    def __init__(self, before: int, after: int, *, bias: bool) -> None:
        super().__init__(before, after, 5, stride=2, padding=2, output_padding=1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(channels_last(x))


class EnlargingConv(nn.Conv2d):
    """Every pixel doubled in height and width, then a 3x3 convolution, in less than half the work.

    Doubled pixels are equal, so each output pixel depends on 2x2 input pixels only: the kernel's
    weights that fall on the same pixel are added first, and a transposed convolution does the rest.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        padded = pad(self.weight, (1, 1, 1, 1))
        rows = padded[:, :, 1:] + padded[:, :, :-1]
        kernel = (rows[..., 1:] + rows[..., :-1]).flip(2, 3).transpose(0, 1)
        return conv_transpose2d(channels_last(x), kernel, self.bias, stride=2, padding=1)


# -------------------------------------------------------------------------- next to an image


class FromImage(nn.Conv2d):
    """A 5x5 convolution of an image that halves its side.

    Over 2x2 blocks it is one of 3x3: of the 6x6 pixels of 3x3 blocks it looks at 5x5.
    """

    def __init__(self, before: int, after: int, *, bias: bool) -> None:
        super().__init__(before, after, 5, stride=2, padding=2, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        blocks = channels_last(pixel_unshuffle(x, _BLOCK))
        return conv2d(blocks, pixel_unshuffle(_six(self.weight), _BLOCK), self.bias, padding=1)


class DoublingToImage(Doubling):
    """`Doubling` whose output is an image: a 3x3 convolution that makes 2x2 blocks of it."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        # A transposed convolution reads its kernel backwards, block by block.
        before, after = self.weight.shape[:2]
        by_block = _six(self.weight).reshape(before, after, 3, _BLOCK, 3, _BLOCK)
        kernel = by_block.permute(1, 3, 5, 0, 2, 4).flip(4, 5).flatten(0, 2)
        return _from_blocks(conv2d(channels_last(x), kernel, _of_blocks(self.bias), padding=1))


class ToImage(nn.Conv2d):
    """A 3x3 convolution whose output is an image: 4x4 places make a 2x2 block of it."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        places = [(down, across) for down in range(_BLOCK) for across in range(_BLOCK)]
        kernels = [pad(self.weight, (left, 1 - left, top, 1 - top)) for top, left in places]
        kernel = torch.stack(kernels, 1).flatten(0, 1)
        bias = _of_blocks(self.bias)
        return _from_blocks(conv2d(channels_last(x), kernel, bias, stride=_BLOCK, padding=1))


def _six(kernel: Tensor) -> Tensor:
    """A 5x5 kernel as one of whole blocks: 6x6, the last row and column zero."""
    return pad(kernel, (0, 1, 0, 1))


def _of_blocks(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.repeat_interleave(_BLOCK * _BLOCK)


def _from_blocks(blocks: Tensor) -> Tensor:
    """The image, in torch's ordinary order: what is done to images expects no other."""
    return pixel_shuffle(blocks.contiguous(), _BLOCK)
