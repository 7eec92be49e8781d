"""The metrics that can rank mixtures."""

from __future__ import annotations

from remuda.config import RANKING_METRICS, ScoreSettings


def test_every_ranking_metric_can_be_chosen() -> None:
    assert [ScoreSettings(metric=name).metric for name in RANKING_METRICS] == RANKING_METRICS
