"""What the settings must know of objectives and penalties; their formulas are in `gan/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PenaltyFacts:
    """When a penalty applies, and with which weight."""

    name: str
    applies: Callable[[Any], bool]
    weight: Callable[[Any], float]


PENALTIES: dict[str, PenaltyFacts] = {
    "gradient_penalty": PenaltyFacts(
        "gradient_penalty",
        lambda t: t.objective == "wasserstein" and t.lipschitz == "gradient_penalty",
        lambda t: float(t.penalty),
    ),
    "r1_r2": PenaltyFacts(
        "r1_r2",
        lambda t: bool(t.objective == "relativistic" and t.gamma > 0),
        lambda t: float(t.gamma),
    ),
}
