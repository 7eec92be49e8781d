"""The adversarial objectives, one small class each: what either network minimises.

Losses are means over the batch, given logits. Nothing here takes the logarithm of a sigmoid: log D
is -softplus(-logit) and log(1 - D) is -softplus(logit), finite at any logit. An objective's facts
for the settings are in `config/objectives.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus


class Objective(ABC):
    """The two losses of a game."""

    name: ClassVar[str]
    # Whether the generator's loss also needs the logits of real items.
    needs_real: ClassVar[bool] = False

    @abstractmethod
    def generator_loss(self, fake: Tensor, real: Tensor | None = None) -> Tensor:
        """What a generator minimises, given the logits of its items."""

    @abstractmethod
    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        """What a discriminator (or critic) minimises, given its logits of real and fake items."""


class CrossEntropy(Objective):
    """The discriminator's side of the original GAN (Goodfellow et al. 2014)."""

    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        """-½ E log D(x) - ½ E log(1 - D(G(z)))."""
        return 0.5 * (softplus(-real).mean() + softplus(fake).mean())


class Minimax(CrossEntropy):
    """The generator minimises ½ E log(1 - D(G(z))), which saturates."""

    name = "minimax"

    def generator_loss(self, fake: Tensor, real: Tensor | None = None) -> Tensor:
        return -0.5 * softplus(fake).mean()


class Heuristic(CrossEntropy):
    """The generator minimises -½ E log D(G(z)), which does not saturate."""

    name = "heuristic"

    def generator_loss(self, fake: Tensor, real: Tensor | None = None) -> Tensor:
        return 0.5 * softplus(-fake).mean()


class LeastSquares(Objective):
    """Squared errors of probabilities, as in Mustangs and E-GAN.

    LSGAN uses the raw output instead; but here one discriminator rates generators that train with
    different objectives.
    """

    name = "least_squares"

    def generator_loss(self, fake: Tensor, real: Tensor | None = None) -> Tensor:
        """E (D(G(z)) - 1)²."""
        return torch.sigmoid(-fake).square().mean()

    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        """½ E (D(x) - 1)² + ½ E D(G(z))²."""
        return 0.5 * (torch.sigmoid(-real).square().mean() + torch.sigmoid(fake).square().mean())


class Wasserstein(Objective):
    """The distance that a Lipschitz critic measures (Arjovsky et al. 2017)."""

    name = "wasserstein"

    def generator_loss(self, fake: Tensor, real: Tensor | None = None) -> Tensor:
        return -fake.mean()

    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        return fake.mean() - real.mean()


class Relativistic(Objective):
    """How much more real a real item looks than a fake one (Jolicoeur-Martineau 2018), in pairs."""

    name = "relativistic"
    needs_real = True

    def generator_loss(self, fake: Tensor, real: Tensor | None = None) -> Tensor:
        if real is None:
            raise ValueError("the relativistic generator loss needs the logits of real items")
        check_paired(real, fake)
        return softplus(real - fake).mean()

    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        check_paired(real, fake)
        return softplus(fake - real).mean()


class Hinge(Objective):
    """Margins of one on either side of zero (Lim and Ye 2017, Tran et al. 2017).

    Items beyond their margin teach the discriminator nothing more.
    """

    name = "hinge"

    def generator_loss(self, fake: Tensor, real: Tensor | None = None) -> Tensor:
        return -fake.mean()

    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        """E max(0, 1 - D(x)) + E max(0, 1 + D(G(z)))."""
        return (1 - real).relu().mean() + (1 + fake).relu().mean()


OBJECTIVES: dict[str, Objective] = {
    "minimax": Minimax(),
    "heuristic": Heuristic(),
    "least_squares": LeastSquares(),
    "wasserstein": Wasserstein(),
    "relativistic": Relativistic(),
    "hinge": Hinge(),
}


def find_objective(name: str) -> Objective:
    """The objective of this name; ValueError if there is none."""
    if name not in OBJECTIVES:
        raise ValueError(f"unknown objective {name!r}; allowed: {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def check_paired(real: Tensor, fake: Tensor) -> None:
    """Refuse shapes that would broadcast: (n,) against (n, 1) is a loss over the wrong pairs."""
    if real.shape != fake.shape:
        raise ValueError(
            f"real and fake come in pairs, not in shapes {tuple(real.shape)} and "
            f"{tuple(fake.shape)}"
        )
