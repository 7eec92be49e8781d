"""The metrics that can rank mixtures."""

from __future__ import annotations

from remuda.config import METRICS, ScoreSettings


def test_every_metric_can_be_chosen_and_has_a_title_of_its_own() -> None:
    assert [ScoreSettings(metric=name).metric for name in METRICS] == list(METRICS)
    assert len({facts.title for facts in METRICS.values()}) == len(METRICS)


def test_of_the_inception_score_more_is_better() -> None:
    assert [name for name, facts in METRICS.items() if facts.higher_is_better] == ["is"]
