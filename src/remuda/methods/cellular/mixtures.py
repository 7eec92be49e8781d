"""The weights of a neighbourhood's mixture: carried along, and mutated on the simplex."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def carried_weights(old: Mapping[str, float], members: Sequence[int]) -> list[float]:
    """Mixture weights for these members: the old ones where known, an equal share for the new."""
    share = 1 / len(members)
    weights = [max(0.0, old.get(str(member), share)) for member in members]
    total = sum(weights)
    return [weight / total for weight in weights] if total > 0 else [share] * len(members)


def mutated_weights(
    weights: Sequence[float], scale: float, rng: np.random.Generator
) -> list[float]:
    """Gaussian noise, clipped at zero, back on the simplex."""
    noisy = np.clip(np.asarray(weights) + rng.normal(0.0, scale, len(weights)), 0.0, None)
    total = float(noisy.sum())
    return [float(weight) / total for weight in noisy] if total > 0 else list(weights)
