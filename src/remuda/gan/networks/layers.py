"""Layers that torch does not have.

Dropout from a given stream, the deviation within a batch, batch norm by label, self-attention.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from remuda.gan.networks.family import OwnWeights

LEAST_VARIANCE = 1e-8


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


class MinibatchDeviation(nn.Module):
    """How much the items of a group differ, as one more feature (or channel) of each of them.

    The standard deviation over the group, averaged over features and places (Karras et al. 2018).
    Groups are neighbours in the batch. There are as many as fit, and what is left over is spread
    over them: 25 items in groups of 10 are 13 and 12. A batch smaller than a group is one group.
    It is the same in evaluation, so who judges must not mix real and generated items in a batch.
    """

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def extra_repr(self) -> str:
        return f"group={self.group}"

    def forward(self, x: Tensor) -> Tensor:
        groups = max(1, len(x) // self.group)
        size, larger = divmod(len(x), groups)
        border = larger * (size + 1)
        found = self._deviations(x[border:], groups - larger, size)
        if larger:
            found = torch.cat((self._deviations(x[:border], larger, size + 1), found))
        one_more = found.reshape(-1, 1, *(1,) * (x.dim() - 2)).expand(-1, 1, *x.shape[2:])
        return torch.cat((x, one_more), 1)

    @staticmethod
    def _deviations(x: Tensor, groups: int, size: int) -> Tensor:
        """One number per item, equal within each of `groups` groups of `size` items."""
        grouped = x.reshape(groups, size, *x.shape[1:])
        variance = (grouped - grouped.mean(1, keepdim=True)).square().mean(1)  # faster than var()
        # The root has no slope at zero, where features that never vary would put it.
        deviation = (variance + LEAST_VARIANCE).sqrt().flatten(1).mean(1)
        return deviation[:, None].expand(groups, size).flatten()


def deviation_groups(network: nn.Module) -> set[int]:
    """The group sizes of its minibatch deviations."""
    return {layer.group for layer in network.modules() if isinstance(layer, MinibatchDeviation)}


class LabelNorm(nn.BatchNorm2d):
    """Batch norm whose scale and shift also depend on each item's label."""

    def __init__(self, channels: int, classes: int, eps: float) -> None:
        super().__init__(channels, eps=eps)
        self.scale = nn.Linear(classes, channels, bias=False)
        self.shift = nn.Linear(classes, channels, bias=False)
        self.condition: Tensor | None = None  # one-hot labels, set by the generator around it

    def forward(self, x: Tensor) -> Tensor:
        scale = 1 + self.scale(self.condition)[:, :, None, None]
        shift = self.shift(self.condition)[:, :, None, None]
        return torch.addcmul(shift, super().forward(x), scale)


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
