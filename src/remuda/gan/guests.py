"""Another cell's GAN to look at and to play against, read from its parcel without copying it.

The networks of a guest are made of the parcel's tensors, which may lie in memory that processes
share: they are never trained and never written to. Only those that do not lie as torch's own memory
does are copied, for the bits of a product depend on it. What becomes a cell's own is copied whole,
and only then do moments, average and genes come along.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from remuda.gan.cell import Cell
from remuda.gan.learner import Learner
from remuda.gan.parcels import Parcel, aligned, network_weights, role_tensors


class Player(Protocol):
    """What can be evaluated and played against, and copied to be trained."""

    @property
    def network(self) -> nn.Module: ...

    def clone(self) -> Learner: ...


class GuestLearner:
    """One network of a guest, in eval mode for good."""

    def __init__(self, host: Learner, parcel: Parcel, role: str) -> None:
        self._host = host
        self._parcel = parcel
        self._role = role
        self.network = network_of_views(host.network, network_weights(parcel, role))

    def clone(self) -> Learner:
        """An independent learner: weights, buffers, optimiser state, average and genes."""
        twin = self._host.clone()
        twin.restore(role_tensors(self._parcel, self._role))
        twin.take_genes(self._parcel.meta["genes"][self._role])
        return twin


@dataclass(frozen=True)
class Guest:
    """A neighbour's GAN."""

    cell: int
    generator: GuestLearner
    discriminator: GuestLearner

    @classmethod
    def of(cls, cell: Cell, parcel: Parcel) -> Guest:
        """The GAN in a parcel, for a cell whose networks have the same layers."""
        generator, discriminator = (
            GuestLearner(learner, parcel, role) for role, learner in cell.gan.roles
        )
        return cls(parcel.cell, generator, discriminator)


def network_of_views(like: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """The same layers as another network's around these tensors, in eval mode and frozen."""
    own = like.state_dict(keep_vars=True)
    if own.keys() != weights.keys():
        raise ValueError(f"not the weights of this network: {sorted(own.keys() ^ weights.keys())}")
    # deepcopy takes what it is told of instead of a copy.
    known: dict[int, Any] = {}
    for name, value in own.items():
        given = weights[name]
        if (given.shape, given.dtype) != (value.shape, value.dtype):
            raise ValueError(f"{name} is {given.dtype} {tuple(given.shape)}: it does not fit")
        here = aligned(given).to(value.device)
        is_parameter = isinstance(value, nn.Parameter)
        known[id(value)] = nn.Parameter(here, requires_grad=False) if is_parameter else here
    with torch.no_grad():
        return copy.deepcopy(like, known).eval()
