"""The average of a generator's weights over its last steps, which makes better samples than they.

Adversarial training circles around what it looks for; the average of the weights lies nearer to it
(Yazıcı et al. 2019, Karras et al. 2018).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from remuda.gan.parcels import strip_prefix

WEIGHTS = "average."
STEPS = "averaged_steps"


class Average:
    """An exponential moving average of a network, as a network in eval mode.

    The half-life grows with the steps taken until it is as long as asked for: a share of all steps
    so far, so that the first, bad weights are soon forgotten.
    """

    def __init__(self, network: nn.Module, half_life: float, ramp: float) -> None:
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.steps = 0
        self.half_life = half_life
        self._ramp = ramp
        self._followed = network
        own, followed = _split(self.network), _split(network)
        self._averaged = own.averaged, followed.averaged
        self._copied = own.copied, followed.copied

    @torch.no_grad()
    def update(self) -> None:
        """Move towards the network, which has just taken a step."""
        self.steps += 1
        half_life = min(self.half_life, self._ramp * self.steps)
        torch._foreach_lerp_(*self._averaged, -math.expm1(-math.log(2) / half_life))
        if self._copied[0]:
            torch._foreach_copy_(*self._copied)

    def restart(self) -> None:
        """Begin anew with the network as it is."""
        self.network.load_state_dict(self._followed.state_dict())
        self.steps = 0

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name: a whole state dict, and the steps behind it."""
        weights = {f"{WEIGHTS}{name}": value for name, value in self.network.state_dict().items()}
        return {**weights, STEPS: torch.tensor(self.steps)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the average among a learner's tensors."""
        steps = tensors.get(STEPS)
        if steps is None or steps.shape or steps.dtype != torch.int64 or steps < 0:
            raise ValueError(f"an average of weights without a valid {STEPS}")
        self.network.load_state_dict(strip_prefix(WEIGHTS, tensors))
        self.steps = int(steps)


class _Parts(NamedTuple):
    averaged: list[Tensor]
    copied: list[Tensor]


def _split(network: nn.Module) -> _Parts:
    """What of a network is averaged: all but counts, batch norm's statistics included.

    Its means are linear in the weights before it, so those of averaged weights are the averaged
    means; a copy would hold those of the last weights, which are others.
    """
    values = [*network.parameters(), *network.buffers()]
    return _Parts(
        [value for value in values if value.is_floating_point()],
        [value for value in values if not value.is_floating_point()],
    )


def average_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The average among a learner's tensors; empty where it keeps none."""
    return {
        name: value for name, value in tensors.items() if name.startswith(WEIGHTS) or name == STEPS
    }
