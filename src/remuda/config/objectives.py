"""Facts about the adversarial objectives and the penalties on a discriminator's gradient.

The losses themselves are in `remuda.gan`; here is what a configuration has to know to be checked.
Both registries are open: a new entry is allowed in `training.objective`, and a penalty that applies
is added to the discriminator's loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from remuda.config.base import OneOf


@dataclass(frozen=True)
class ObjectiveFacts:
    """What the settings need to know about an objective."""

    name: str
    about: str
    # Whether a logit is the log-odds that an item is real.
    is_classifier: bool = True
    # Whether the discriminator is a critic, used with no other generator loss than its own.
    is_critic: bool = False
    # Whether it has to be kept Lipschitz, as `training.lipschitz` says.
    is_lipschitz: bool = False
    # Whether R1 and R2 penalties, weighted by `training.gamma`, go with it.
    uses_gamma: bool = False
    # The discriminator's loss when it only guesses; None where that says nothing.
    loss_at_a_draw: float | None = None


class LossSettings(Protocol):
    """The training settings that decide which penalties apply."""

    @property
    def objective(self) -> str: ...
    @property
    def lipschitz(self) -> str: ...
    @property
    def penalty(self) -> float: ...
    @property
    def gamma(self) -> float: ...
    @property
    def r1(self) -> float: ...
    @property
    def r1_every(self) -> int: ...


@dataclass(frozen=True)
class PenaltyFacts:
    """When a penalty is added to the discriminator's loss, and with which weight."""

    name: str
    applies: Callable[[LossSettings], bool]
    weight: Callable[[LossSettings], float]
    # It is added on every n-th batch that the discriminator trains on, times n.
    every: Callable[[LossSettings], int] = lambda _: 1
    # Whether it means nothing for a discriminator whose batch norm mixes the items of a batch.
    is_per_item: bool = True
    # Whether it is part of the loss that is reported, from which alarms are raised.
    is_reported: bool = True


OBJECTIVES: dict[str, ObjectiveFacts] = {
    facts.name: facts
    for facts in (
        ObjectiveFacts("minimax", "the original minimax loss", loss_at_a_draw=math.log(2)),
        ObjectiveFacts("heuristic", "the non-saturating loss", loss_at_a_draw=math.log(2)),
        ObjectiveFacts("least_squares", "squared errors of probabilities", loss_at_a_draw=0.25),
        ObjectiveFacts(
            "wasserstein",
            "the difference of a critic's means",
            is_classifier=False,
            is_critic=True,
            is_lipschitz=True,
        ),
        ObjectiveFacts(
            "relativistic",
            "how much more real a real item looks than a fake",
            is_classifier=False,
            uses_gamma=True,
        ),
        # A loss of zero, at which this critic rests, does not weaken its generator's gradient: so
        # nothing is said of a draw.
        ObjectiveFacts(
            "hinge", "margins of one on either side of zero", is_classifier=False, is_critic=True
        ),
    )
}

PENALTIES: dict[str, PenaltyFacts] = {
    facts.name: facts
    for facts in (
        PenaltyFacts(
            "gradient_penalty",
            applies=lambda training: (
                OBJECTIVES[training.objective].is_lipschitz
                and training.lipschitz == "gradient_penalty"
            ),
            weight=lambda training: training.penalty,
        ),
        PenaltyFacts(
            "r1_r2",
            applies=lambda training: (
                OBJECTIVES[training.objective].uses_gamma and training.gamma > 0
            ),
            weight=lambda training: training.gamma,
        ),
        PenaltyFacts(
            "r1",
            applies=lambda training: training.r1 > 0,
            weight=lambda training: training.r1,
            every=lambda training: training.r1_every,
            is_per_item=False,
            is_reported=False,  # else a saturated discriminator would not look like one
        ),
    )
}

Objective = Annotated[str, OneOf(lambda: OBJECTIVES)]
# The losses a generator's gene is drawn from share one discriminator, which cannot be a critic.
LossGene = Annotated[
    str, OneOf(lambda: [name for name, facts in OBJECTIVES.items() if not facts.is_critic])
]
