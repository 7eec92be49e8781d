"""Mode coverage of point data whose modes are known: which are hit, how well, how evenly.

A sample is of high quality within three standard deviations of its nearest mode, as in VEEGAN
(Srivastava et al. 2017); only such samples say anything about a mode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from remuda.config import MetricFacts
from remuda.errors import ConfigError
from remuda.metrics.metric import Metric, Need, PointComparison

REACH = 3.0  # standard deviations around a mode within which a sample belongs to it
# As for the classes of images: a mode shown four times too rarely is all but lost. One stray among
# ten thousand samples hits a mode, so hits alone say little about a generator that fills the plane.
COVERED = 0.25


@dataclass(frozen=True)
class Coverage:
    """How samples are spread over the known modes."""

    histogram: tuple[int, ...]  # high-quality samples of each mode
    samples: int

    @property
    def modes(self) -> int:
        return len(self.histogram)

    @property
    def hit(self) -> int:
        """Modes with at least one high-quality sample."""
        return sum(count > 0 for count in self.histogram)

    @property
    def covered(self) -> int:
        """Modes with at least a quarter of their equal share of all samples."""
        enough = COVERED * self.samples / self.modes
        return sum(count >= enough for count in self.histogram)

    @property
    def quality(self) -> float:
        """Share of samples that are of high quality."""
        return sum(self.histogram) / self.samples

    @property
    def divergence(self) -> float:
        """KL from the samples' mode histogram to equal shares, in nats; 0 is even, log k one mode.

        Infinite when no sample hits a mode, which must not look even.
        """
        total = sum(self.histogram)
        if total == 0:
            return math.inf
        shares = [count / total for count in self.histogram if count > 0]
        # Equal shares give a sum that may be a hair below zero.
        return max(0.0, sum(share * math.log(share * self.modes) for share in shares))


def mode_coverage(samples: torch.Tensor, modes: torch.Tensor, spread: float) -> Coverage:
    """Coverage of `modes` (k, d), each with standard deviation `spread`, by `samples` (n, d)."""
    if samples.ndim != 2 or modes.ndim != 2 or samples.shape[1] != modes.shape[1]:
        raise ConfigError(
            f"samples of shape {tuple(samples.shape)} do not fit modes of shape "
            f"{tuple(modes.shape)}; allowed: (n, d) and (k, d)"
        )
    if len(samples) == 0 or len(modes) == 0 or not 0 < spread < math.inf:
        raise ConfigError(
            f"{len(samples)} samples, {len(modes)} modes, spread {spread}: nothing to cover; "
            "allowed: at least one sample and mode, and a positive spread"
        )
    distances, nearest = torch.cdist(samples.double(), modes.double()).min(1)
    # NaN is near nothing: comparing with it is false.
    good = nearest[distances <= REACH * spread]
    counts = torch.bincount(good, minlength=len(modes))
    return Coverage(tuple(int(count) for count in counts.tolist()), len(samples))


def _figures(found: PointComparison) -> dict[str, float]:
    coverage = mode_coverage(found.points, found.centres, found.spread)
    return {
        "modes_hit": coverage.hit,
        "modes_covered": coverage.covered,
        "high_quality": coverage.quality,
        "mode_kl": coverage.divergence,
    }


MODES = Metric(
    name="modes",
    facts=MetricFacts("modes", higher_is_better=True),
    rows=(
        ("modes hit", "{modes_hit} of {modes}"),
        ("modes covered", f"{{modes_covered}} of {{modes}}, at {COVERED:g} of their share or more"),
        ("high quality", "{high_quality:.1%}"),
        ("histogram KL", "{mode_kl:.4f}"),
        ("mode histogram", "{mode_histogram}"),
    ),
    values=("modes_hit", "modes_covered", "high_quality", "mode_kl"),
    directions={
        "modes_covered": True,
        "modes_hit": True,
        "high_quality": True,
        "mode_kl": False,
    },
    needs=frozenset({Need.MODES}),
    from_points=_figures,
    default="always",
)
