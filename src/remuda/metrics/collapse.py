"""Signs of mode collapse: missing classes, and samples that are copies of one another."""

from __future__ import annotations

import torch

from remuda.metrics.statistics import SampleStatistics

# A class counts as covered from this fraction of its real share: a generator that shows it four
# times too rarely has all but lost it.
COVERED = 0.25
LOOKED_AT = 1000
# Among 1,000 real digits no two are nearer than 0.24 of the typical distance, and among images of
# the most uniform digit, 1, than 0.12; copies of an image with pixel noise of σ 0.01 are 0.01 to
# 0.03 apart. So a tenth raises no alarm on real data and still finds copies that differ a little.
DUPLICATE = 0.1


def classes_covered(real: SampleStatistics, fake: SampleStatistics) -> int:
    """How many real classes the samples show, at a quarter of their real share or more."""
    present = real.class_shares > 0
    enough = fake.class_shares >= COVERED * real.class_shares
    return int((present & enough).sum().item())


def typical_distance(features: torch.Tensor) -> float:
    """The median distance of neighbours in real data: the yardstick of `near_duplicates`."""
    return _nearest(_looked_at(features)).median().item()


def near_duplicates(features: torch.Tensor, typical: float) -> float:
    """Share of samples that have a copy, or nearly a copy, among the others."""
    samples, limit = _looked_at(features), DUPLICATE * typical
    certain, possible = _within(samples, limit)
    # Only where single precision cannot tell.
    unsure = (possible & ~certain).nonzero().flatten()
    others = possible.nonzero().flatten()
    apart = _distances(samples[unsure], samples[others])
    apart[unsure[:, None] == others] = torch.inf
    found = int(certain.sum())
    if apart.numel():
        found += int((apart.amin(1) < limit).sum())
    return found / len(samples)


def _looked_at(features: torch.Tensor) -> torch.Tensor:
    """At most LOOKED_AT evenly spaced samples."""
    count = len(features)
    if count < 2:
        raise ValueError(f"{count} sample has no neighbour")
    looked_at = min(count, LOOKED_AT)
    return features[torch.arange(looked_at) * count // looked_at].double()


def _nearest(samples: torch.Tensor) -> torch.Tensor:
    """Distance of each sample to its nearest other."""
    return _distances(samples, samples).fill_diagonal_(torch.inf).amin(1)


def _distances(some: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    # The matrix-product shortcut loses small distances to rounding, and those are what we look for.
    return torch.cdist(some, others, compute_mode="donot_use_mm_for_euclid_dist")


def _within(samples: torch.Tensor, distance: float) -> tuple[torch.Tensor, torch.Tensor]:
    """For each sample whether another is certainly nearer than this, and whether one may be.

    That shortcut is a tenth of the work, and where it cannot tell, distances are computed.
    """
    # Around their mean, where squares are smallest, and so is what rounding leaves of them.
    points = (samples - samples.mean(0)).float()
    squares = points.square().sum(1)
    if not bool(squares.isfinite().all()):
        possible = torch.ones(len(samples), dtype=torch.bool)
        return ~possible, possible
    apart = torch.addmm(squares, points, points.T, alpha=-2)  # |b|² − 2ab; |a|² is the limit's
    nearest = apart.fill_diagonal_(torch.inf).amin(1) + squares
    # A hundred times what single precision loses in these sums.
    rounding = 1e-5 * (points.shape[1] * float(squares.max()) + distance * distance)
    return nearest < distance * distance - rounding, nearest <= distance * distance + rounding
