"""A metric of somebody else's: all that it takes is this file and a line in the registry."""

from __future__ import annotations

from remuda.metrics import Metric, Need, SampleStatistics


def brightness_gap(real: SampleStatistics, fake: SampleStatistics) -> float:
    """How far apart the mean features are."""
    return (real.feature_mean - fake.feature_mean).abs().sum().item()


TOY = Metric(
    name="toy",
    title="TOY",
    rows=(("toy distance", "{toy:.2f} (lower is better)"),),
    needs=frozenset({Need.FEATURES, Need.LOGITS}),
    from_statistics=brightness_gap,
)
