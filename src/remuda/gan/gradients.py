"""The two ways from a batch to the gradients of a turn: autograd, and by hand with the same bits.

By hand goes for fully connected networks on the CPU. Up to the features of the last hidden layer
(or the logit, without labels) either network is a `DensePass`; the head, its labels and the
objective are left to autograd, since they are small and differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from remuda.gan.devices import Devices
from remuda.gan.learner import Gan
from remuda.gan.networks import (
    ConditionalGenerator,
    DensePass,
    Memory,
    body_of,
    dense_layers,
    deviation_groups,
    judge,
)

Judgement = tuple[Tensor, Tensor | None]  # logits, and the class losses of an auxiliary classifier


class Networks(Protocol):
    """The networks of other cells that either side may meet."""

    @property
    def generators(self) -> Sequence[nn.Module]: ...
    @property
    def discriminators(self) -> Sequence[nn.Module]: ...


class Way(ABC):
    """How the networks of a turn are evaluated, and how its loss becomes gradients."""

    @abstractmethod
    def generate(self, network: nn.Module, noise: Tensor, labels: Tensor | None) -> Tensor:
        """A generator's items."""

    @abstractmethod
    def discriminate(
        self, network: nn.Module, items: Tensor, labels: Tensor | None, *, learns: bool
    ) -> Judgement:
        """What a discriminator says of them: the one that learns, or one that is played against."""

    @abstractmethod
    def of_discriminator(self, loss: Tensor) -> Sequence[Tensor]:
        """The gradients by the weights of the discriminator that learns."""

    @abstractmethod
    def of_generator(self, loss: Tensor) -> Sequence[Tensor]:
        """The gradients by the weights of the generator that learns."""


class Autograd(Way):
    """Any networks, on any devices."""

    def __init__(self, gan: Gan, devices: Devices) -> None:
        self._gan, self._devices = gan, devices

    def generate(self, network: nn.Module, noise: Tensor, labels: Tensor | None) -> Tensor:
        return self._devices.generate(network, noise, labels)

    def discriminate(
        self, network: nn.Module, items: Tensor, labels: Tensor | None, *, learns: bool
    ) -> Judgement:
        return self._devices.discriminate(network, items, labels)

    def of_discriminator(self, loss: Tensor) -> Sequence[Tensor]:
        return torch.autograd.grad(loss, self._gan.discriminator.optimiser.parameters)

    def of_generator(self, loss: Tensor) -> Sequence[Tensor]:
        return torch.autograd.grad(loss, self._gan.generator.optimiser.parameters)


class ByHand(Way):
    """Fully connected networks on the CPU, in batches of one size.

    A network remembers its last pass, and only that: a loss must be of what was evaluated last, as
    it is in the turns of a game.
    """

    def __init__(self, gan: Gan, rivals: Networks, rows: int) -> None:
        generator, discriminator = gan.generator.network, gan.discriminator.network
        shared = Memory()
        self._own = _Generator(generator, rows, Memory(), learns=True)
        self._generators = {
            generator: self._own,
            **{one: _Generator(one, rows, shared, learns=False) for one in rivals.generators},
        }
        self._learner = _Discriminator(discriminator, 2 * rows, Memory(), learns=True)
        shared = Memory()
        self._opponents = {
            one: _Discriminator(one, rows, shared, learns=False)
            for one in (discriminator, *rivals.discriminators)
        }
        self._last = self._learner

    @classmethod
    def of(cls, gan: Gan, rivals: Networks, rows: int) -> ByHand | None:
        """None where one of the networks, or its batches, need autograd."""
        networks = [one.network for _, one in gan.roles]
        networks += [*rivals.generators, *rivals.discriminators]
        fits = all(rows % group == 0 for one in networks for group in deviation_groups(one))
        if not fits or any(dense_layers(body_of(one)) is None for one in networks):
            return None
        return cls(gan, rivals, rows)

    def generate(self, network: nn.Module, noise: Tensor, labels: Tensor | None) -> Tensor:
        return self._generators[network].forward(noise, labels)

    def discriminate(
        self, network: nn.Module, items: Tensor, labels: Tensor | None, *, learns: bool
    ) -> Judgement:
        self._last = self._learner if learns else self._opponents[network]
        return self._last.forward(items, labels)

    def of_discriminator(self, loss: Tensor) -> Sequence[Tensor]:
        return self._learner.by_weights(loss)

    def of_generator(self, loss: Tensor) -> Sequence[Tensor]:
        return self._own.by_weights(self._last.by_items(loss))


class _Generator:
    def __init__(self, network: nn.Module, rows: int, memory: Memory, *, learns: bool) -> None:
        self._network = network
        self._pass = DensePass(_layers(network), rows, memory, learns=learns)
        last = [*body_of(network).children()][-1]
        self._shape = last if isinstance(last, nn.Unflatten) else nn.Identity()
        self._gradients = [*self._pass.gradients.values()]

    def forward(self, noise: Tensor, labels: Tensor | None) -> Tensor:
        if isinstance(self._network, ConditionalGenerator):
            assert labels is not None
            noise = self._network.inputs(noise, labels)
        items: Tensor = self._shape(self._pass.forward(noise))
        return items

    def by_weights(self, by_items: Tensor) -> Sequence[Tensor]:
        self._pass.backward(by_items)
        return self._gradients


class _Discriminator:
    def __init__(self, network: nn.Module, rows: int, memory: Memory, *, learns: bool) -> None:
        self._network = network
        self._pass = DensePass(_layers(network), rows, memory, learns=learns)
        own = self._pass.gradients
        self._head = [weight for weight in network.parameters() if weight not in own]
        self._order = [*network.parameters()]
        self._features = torch.empty(0)  # the last ones, where autograd begins

    def forward(self, items: Tensor, labels: Tensor | None) -> Judgement:
        self._features = self._pass.forward(items.flatten(1)).detach().requires_grad_()
        return judge(self._network, self._features, labels)

    def by_items(self, loss: Tensor) -> Tensor:
        (by_features,) = torch.autograd.grad(loss, self._features)
        return self._pass.backward(by_features)

    def by_weights(self, loss: Tensor) -> Sequence[Tensor]:
        by_features, *by_head = torch.autograd.grad(loss, [self._features, *self._head])
        self._pass.backward(by_features)
        found = {**self._pass.gradients, **dict(zip(self._head, by_head, strict=True))}
        return [found[weight] for weight in self._order]


def _layers(network: nn.Module) -> list[nn.Module]:
    layers = dense_layers(body_of(network))
    assert layers is not None
    return layers
