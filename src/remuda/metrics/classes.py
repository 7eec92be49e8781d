"""Which classes samples show: how often (TVD, as in Lipizzaner), and whether the right ones."""

from __future__ import annotations

from torch import Tensor

from remuda.config import METRICS as RANKING
from remuda.config import MetricFacts
from remuda.metrics.collapse import classes_covered
from remuda.metrics.metric import Comparison, Metric, Need
from remuda.metrics.statistics import SampleStatistics


def tvd(real: SampleStatistics, fake: SampleStatistics) -> float:
    """Total variation distance of the class frequencies; 0 is best, 1 is disjoint."""
    return 0.5 * (real.class_shares - fake.class_shares).abs().sum().item()


def class_accuracy(logits: Tensor, labels: Tensor) -> float:
    """How often the classifier sees the class that a sample was generated for."""
    return (logits.argmax(1) == labels).double().mean().item()


def _tvd(found: Comparison) -> dict[str, float]:
    covered = float(classes_covered(found.real, found.fake))
    return {"tvd": tvd(found.real, found.fake), "classes_covered": covered}


def _accuracy(found: Comparison) -> dict[str, float]:
    assert found.labels is not None
    return {"accuracy": class_accuracy(found.generated.logits, found.labels)}


TVD = Metric(
    name="tvd",
    facts=RANKING["tvd"],
    rows=(
        ("TVD", "{tvd:.4f}"),
        ("classes covered", "{classes_covered:.0f} of {classes}"),
        ("class histogram", "{class_histogram}"),
    ),
    values=("tvd", "classes_covered"),
    directions={"tvd": False, "classes_covered": True},
    needs=frozenset({Need.FEATURES, Need.LOGITS}),
    from_statistics=tvd,
    from_features=_tvd,
    default="always",
)
ACCURACY = Metric(
    name="accuracy",
    facts=MetricFacts("accuracy", higher_is_better=True),
    rows=(("class accuracy", "{accuracy:.3f}"),),
    needs=frozenset({Need.FEATURES, Need.LOGITS, Need.LABELS}),
    from_features=_accuracy,
    default="always",
)
