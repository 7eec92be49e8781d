"""Layers that torch does not have: dropout from a given stream, self-attention, enlargement."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv_transpose2d, pad

from remuda.gan.networks.family import OwnWeights


class StreamDropout(nn.Module):
    """Dropout whose masks come from a stream that its user sets, never from the global RNG."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.stream: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return x
        if self.stream is None:
            raise RuntimeError("dropout in training mode needs a stream; see set_stream")
        kept = torch.rand(x.shape, generator=self.stream) >= self.share
        return x * (kept / (1 - self.share)).to(x.device)


def set_stream(network: nn.Module, stream: torch.Generator | None) -> None:
    """Where the network's dropout layers draw from now on; a network with a stream has no copy."""
    for layer in network.modules():
        if isinstance(layer, StreamDropout):
            layer.stream = stream


class SelfAttention(OwnWeights):
    """Every place looks at every other (Zhang et al. 2019, SAGAN); at first it changes nothing."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(1, channels // 8)
        self.query = nn.Conv2d(channels, inner, 1, bias=False)
        self.key = nn.Conv2d(channels, inner, 1, bias=False)
        self.value = nn.Conv2d(channels, max(1, channels // 2), 1, bias=False)
        self.out = nn.Conv2d(max(1, channels // 2), channels, 1, bias=False)
        self.gamma = nn.Parameter(torch.zeros(()))

    def fill_own(self, rng: torch.Generator) -> None:
        self.gamma.zero_()

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (part(x).flatten(2) for part in (self.query, self.key, self.value))
        attention = (query.transpose(1, 2) @ key).softmax(2)  # (n, places, places looked at)
        seen = (value @ attention.transpose(1, 2)).unflatten(2, x.shape[2:])
        found: Tensor = x + self.gamma * self.out(seen)
        return found


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
        return conv_transpose2d(x, kernel, self.bias, stride=2, padding=1)
