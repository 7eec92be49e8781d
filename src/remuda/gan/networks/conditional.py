"""Networks that are conditioned on a label, and the two ways in which a discriminator uses it.

*Projection* (Miyato & Koyama 2018) adds to the logit how well the features fit the label. An
*auxiliary* classifier (AC-GAN, Odena et al. 2017) names the label by itself, and both networks are
trained to make it right. A generator gets the label as a one-hot vector beside its noise, and with
`label_norm` also in its batch norms (de Vries et al. 2017).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from remuda.gan.networks.layers import LabelNorm

# Logits, and from an auxiliary classifier also its loss, of every item.
Judgement = Tensor | tuple[Tensor, Tensor]


class Conditional(nn.Module):
    """A network whose forward takes (input, labels)."""


class ConditionalGenerator(Conditional):
    """Any generator whose noise has `classes` more numbers than it is given."""

    def __init__(self, body: nn.Module, classes: int) -> None:
        super().__init__()
        self.body = body
        self.classes = classes

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        inputs = self.inputs(noise, labels)
        for layer in self.body.modules():
            if isinstance(layer, LabelNorm):
                layer.condition = inputs[:, noise.shape[1] :]
        items: Tensor = self.body(inputs)
        return items

    def inputs(self, noise: Tensor, labels: Tensor) -> Tensor:
        """What the body is given."""
        return torch.cat((noise, one_hot(labels, self.classes).to(noise.dtype)), 1)


class ConditionalDiscriminator(Conditional, ABC):
    """A body that makes features of items, and a head that uses the label."""

    body: nn.Module

    def forward(self, items: Tensor, labels: Tensor) -> Judgement:
        return self.judge(self.body(items), labels)

    @abstractmethod
    def judge(self, features: Tensor, labels: Tensor) -> Judgement:
        """What the head makes of features."""


class ProjectionDiscriminator(ConditionalDiscriminator):
    """Features to a logit that depends on the label."""

    def __init__(self, body: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(features, 1)
        self.embed = nn.Linear(classes, features, bias=False)
        self.classes = classes

    def judge(self, features: Tensor, labels: Tensor) -> Tensor:
        embedded = self.embed(one_hot(labels, self.classes).to(features.dtype))
        logits: Tensor = self.head(features)[:, 0] + (features * embedded).sum(1)
        return logits


class AuxiliaryDiscriminator(ConditionalDiscriminator):
    """Features to a logit, and to the cross-entropy of the label the item should have."""

    def __init__(self, body: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(features, 1)
        self.classify = nn.Linear(features, classes)

    def judge(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        class_loss = cross_entropy(self.classify(features), labels, reduction="none")
        return self.head(features)[:, 0], class_loss


def generator_of(body: nn.Module, classes: int, *, label_norm: bool = False) -> nn.Module:
    """A body whose input has `classes` more numbers than its noise; as it is if there are none."""
    if not classes:
        return body
    if label_norm:
        _replace_norms(body, classes)
    return ConditionalGenerator(body, classes)


def _replace_norms(body: nn.Module, classes: int) -> None:
    for parent in [*body.modules()]:
        for name, layer in parent.named_children():
            if isinstance(layer, nn.BatchNorm2d):
                setattr(parent, name, LabelNorm(layer.num_features, classes, layer.eps))


def discriminator_of(body: nn.Module, features: int, condition: str, classes: int) -> nn.Module:
    """A body that gives flat features, with the head that the condition asks for."""
    if condition == "projection":
        return ProjectionDiscriminator(body, features, classes)
    if condition == "auxiliary":
        return AuxiliaryDiscriminator(body, features, classes)
    return nn.Sequential(body, nn.Linear(features, 1), nn.Flatten(0))


def generate(network: nn.Module, noise: Tensor, labels: Tensor | None) -> Tensor:
    """What a generator makes; labels go to those who take them."""
    items: Tensor = network(noise, labels) if isinstance(network, Conditional) else network(noise)
    return items


def discriminate(
    network: nn.Module, items: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Logits, and where there is an auxiliary classifier its losses, one per item."""
    if not isinstance(network, Conditional):
        return network(items), None
    return _both(network(items, labels))


def judge(
    network: nn.Module, features: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The same, given what `body_of` the network makes of the items."""
    if not isinstance(network, ConditionalDiscriminator):
        return features.flatten(0), None
    assert labels is not None
    return _both(network.judge(features, labels))


def _both(found: Judgement) -> tuple[Tensor, Tensor | None]:
    return found if isinstance(found, tuple) else (found, None)


def body_of(network: nn.Module) -> nn.Module:
    """A network without what labels have to do with it."""
    if isinstance(network, ConditionalGenerator | ConditionalDiscriminator):
        return network.body
    return network
