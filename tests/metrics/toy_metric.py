"""A metric from outside the package: this file, and a line in each registry that names it."""

from __future__ import annotations

from remuda.config import MetricFacts
from remuda.metrics import Metric, Need, SampleStatistics


def brightness_gap(real: SampleStatistics, fake: SampleStatistics) -> float:
    """How far apart the mean features are."""
    return (real.feature_mean - fake.feature_mean).abs().sum().item()


FACTS = MetricFacts("TOY")
TOY = Metric(
    name="toy",
    facts=FACTS,
    rows=(("toy distance", "{toy:.2f} (lower is better)"),),
    needs=frozenset({Need.FEATURES, Need.LOGITS}),
    from_statistics=brightness_gap,
)
