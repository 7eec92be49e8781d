"""Every metric there is, by name. A new one is its own file and one line here."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from remuda.config import suggest
from remuda.errors import ConfigError
from remuda.metrics.classes import ACCURACY, TVD
from remuda.metrics.coverage import MODES
from remuda.metrics.frechet import FID, FID_LOGITS
from remuda.metrics.inception_score import INCEPTION_SCORE
from remuda.metrics.memorisation import MEMORISATION
from remuda.metrics.metric import Metric, Need
from remuda.metrics.neighbours import DENSITY_COVERAGE, KID, PRECISION_RECALL
from remuda.metrics.statistics import SampleStatistics
from remuda.metrics.synthetic import TSTR

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        FID,
        FID_LOGITS,
        INCEPTION_SCORE,
        TVD,
        ACCURACY,
        KID,
        PRECISION_RECALL,
        DENSITY_COVERAGE,
        MODES,
        MEMORISATION,
        TSTR,
    )
}


def check_metrics(names: Iterable[str], available: Collection[Need] | None = None) -> None:
    """Refuse unknown metrics and, where it is known what is available, those that need more."""
    for name in names:
        if name not in METRICS:
            hint = suggest(name, METRICS) or ";"
            raise ConfigError(f"{name}: unknown metric{hint} allowed: {', '.join(METRICS)}")
        if available is None:
            continue
        missing = [need.value for need in Need if need in METRICS[name].needs - set(available)]
        if missing:
            allowed = ", ".join(one.name for one in METRICS.values() if one.needs <= set(available))
            raise ConfigError(f"{name}: needs {missing[0]}; allowed here: {allowed or 'none'}")


def default_metrics(available: Collection[Need]) -> tuple[str, ...]:
    """What is measured where nothing is asked for."""
    kinds = {"always"} if Need.LOGITS in available else {"always", "without logits"}
    return tuple(
        metric.name
        for metric in METRICS.values()
        if metric.default in kinds and metric.needs <= set(available)
    )


def ranking_metric(name: str) -> Metric:
    """The metric that ranks mixtures during training; it must be one of statistics."""
    allowed = [metric.name for metric in METRICS.values() if metric.from_statistics is not None]
    if name not in allowed:
        hint = suggest(name, allowed) or ";"
        raise ConfigError(
            f"score.metric={name}: cannot rank mixtures{hint} allowed: {', '.join(allowed)}"
        )
    return METRICS[name]


def score_of(name: str, real: SampleStatistics, fake: SampleStatistics) -> float:
    """A metric of statistics, by name; NaN for a generator that yields NaN or infinities."""
    # Class frequencies hide NaN (some class always has the largest logit), so ask the logits.
    if not bool(fake.logit_second.isfinite().all()):
        return math.nan
    compute = ranking_metric(name).from_statistics
    assert compute is not None
    return compute(real, fake)


def loss_of(name: str, real: SampleStatistics, fake: SampleStatistics) -> float:
    """The score as a number to minimise; a generator that yields NaN is infinitely bad."""
    return METRICS[name].as_loss(score_of(name, real, fake))
