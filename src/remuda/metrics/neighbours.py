"""Metrics of where the features of samples lie among the real ones: KID, and four shares.

KID: Bińkowski et al. 2018. Precision and recall: Kynkäänniemi et al. 2019, three neighbours.
Density and coverage: Naeem et al. 2020, five neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from remuda.config import MetricFacts
from remuda.errors import ConfigError
from remuda.metrics.extractors import Features
from remuda.metrics.metric import Comparison, Metric, Need
from remuda.metrics.reference import some_of
from remuda.streams import choice_stream

SUBSETS = 100
SUBSET_SIZE = 1000
MOST_ITEMS = 10_000  # of either side, where the cost is the square of them
PRECISION_NEIGHBOURS = 3
DENSITY_NEIGHBOURS = 5
_BLOCK = 1000


class KernelDistance(NamedTuple):
    """Mean and deviation over subsets."""

    mean: float
    deviation: float


class PrecisionRecall(NamedTuple):
    """Share of samples that look real, and of real items that look like samples."""

    precision: float
    recall: float


class DensityCoverage(NamedTuple):
    """How many real neighbourhoods a sample lies in (real data: 1), and the share of them hit."""

    density: float
    coverage: float


def kernel_distance(
    real: Tensor,
    fake: Tensor,
    rng: np.random.Generator,
    *,
    subsets: int = SUBSETS,
    size: int = SUBSET_SIZE,
) -> KernelDistance:
    """KID: the unbiased squared MMD under the cubic kernel; 0 is best, and it may fall below."""
    size = min(size, len(real), len(fake))
    if size < 2:
        raise ConfigError(f"KID of {size} samples; allowed: at least 2 samples and real items")
    found = []
    for _ in range(subsets):
        chosen = [
            side[torch.from_numpy(rng.choice(len(side), size, replace=False))].double()
            for side in (real, fake)
        ]
        found.append(_squared_mmd(*chosen))
    return KernelDistance(float(np.mean(found)), float(np.std(found)))


def precision_recall(
    real: Tensor, fake: Tensor, neighbours: int = PRECISION_NEIGHBOURS
) -> PrecisionRecall:
    """Precision and recall of samples against real items."""
    _check(real, fake, neighbours)
    return PrecisionRecall(
        _share_inside(fake, real, _radii(real, neighbours)),
        _share_inside(real, fake, _radii(fake, neighbours)),
    )


def density_coverage(
    real: Tensor, fake: Tensor, neighbours: int = DENSITY_NEIGHBOURS
) -> DensityCoverage:
    """Density and coverage of samples against real items."""
    _check(real, fake, neighbours)
    radii = _radii(real, neighbours)
    inside = 0
    nearest = torch.full((len(real),), torch.inf)
    for part in torch.split(fake.float(), _BLOCK):
        distances = torch.cdist(part, real.float())
        inside += int((distances < radii).sum())
        nearest = torch.minimum(nearest, distances.amin(0))
    coverage = float((nearest < radii).double().mean())
    return DensityCoverage(inside / (neighbours * len(fake)), coverage)


def _squared_mmd(real: Tensor, fake: Tensor) -> float:
    count, features = real.shape

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b.T / features + 1) ** 3

    among = sum(
        float(kernel(side, side).fill_diagonal_(0).sum()) / (count * (count - 1))
        for side in (real, fake)
    )
    return among - 2 * float(kernel(real, fake).mean())


def _radii(items: Tensor, neighbours: int) -> Tensor:
    """Distance of each item to its n-th nearest other."""
    items = items.float()
    parts = []
    for start in range(0, len(items), _BLOCK):
        distances = torch.cdist(items[start : start + _BLOCK], items)
        # Rounding may leave an item at a small distance from itself.
        own = torch.arange(len(distances))
        distances[own, own + start] = torch.inf
        parts.append(distances.kthvalue(neighbours, dim=1).values)
    return torch.cat(parts)


def _share_inside(items: Tensor, centres: Tensor, radii: Tensor) -> float:
    """Share of the items that lie in at least one of the balls."""
    met = 0
    for part in torch.split(items.float(), _BLOCK):
        met += int((torch.cdist(part, centres.float()) <= radii).any(1).sum())
    return met / len(items)


def _check(real: Tensor, fake: Tensor, neighbours: int) -> None:
    fewest = min(len(real), len(fake))
    if fewest <= neighbours:
        raise ConfigError(
            f"{fewest} samples do not have {neighbours} neighbours each; "
            f"allowed: at least {neighbours + 1} samples and real items"
        )


def _kid(found: Comparison) -> dict[str, float]:
    assert found.real_features is not None
    rng = choice_stream(found.seed, 0, 0, "kid-subsets")
    mean, deviation = kernel_distance(found.real_features.features, found.generated.features, rng)
    return {"kid": mean, "kid_std": deviation}


def _precision_recall(found: Comparison) -> dict[str, float]:
    return precision_recall(_some(found.real_features), _some(found.generated))._asdict()


def _density_coverage(found: Comparison) -> dict[str, float]:
    return density_coverage(_some(found.real_features), _some(found.generated))._asdict()


def _some(features: Features | None) -> Tensor:
    assert features is not None
    return features.features[some_of(len(features.features), MOST_ITEMS)]


KID = Metric(
    name="kid",
    facts=MetricFacts("KID"),
    rows=(("KID", "{kid:.5f} ± {kid_std:.5f}"),),
    values=("kid", "kid_std"),
    directions={"kid": False},
    needs=frozenset({Need.FEATURES}),
    whole_sets=True,
    from_features=_kid,
    default="without logits",
)
PRECISION_RECALL = Metric(
    name="pr",
    facts=MetricFacts("precision and recall", higher_is_better=True),
    rows=(("precision", "{precision:.3f}"), ("recall", "{recall:.3f}")),
    values=("precision", "recall"),
    needs=frozenset({Need.FEATURES}),
    whole_sets=True,
    from_features=_precision_recall,
)
DENSITY_COVERAGE = Metric(
    name="dc",
    facts=MetricFacts("density and coverage", higher_is_better=True),
    rows=(("density", "{density:.3f}"), ("coverage", "{coverage:.3f}")),
    values=("density", "coverage"),
    needs=frozenset({Need.FEATURES}),
    whole_sets=True,
    from_features=_density_coverage,
)
