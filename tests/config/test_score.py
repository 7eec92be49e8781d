"""The metrics that can rank mixtures."""

from __future__ import annotations

from remuda.config import METRICS, ScoreSettings


def test_every_metric_can_be_chosen_and_has_a_title_of_its_own() -> None:
    assert [ScoreSettings(metric=name).metric for name in METRICS] == list(METRICS)
    assert len({facts.title for facts in METRICS.values()}) == len(METRICS)


def test_of_the_inception_score_more_is_better() -> None:
    assert [name for name, facts in METRICS.items() if facts.higher_is_better] == ["is"]


def test_scores_are_due_every_few_rounds_and_after_the_last() -> None:
    settings = ScoreSettings(every=3)
    assert [round for round in range(1, 9) if settings.due(round, 8)] == [3, 6, 8]
    assert all(ScoreSettings().due(round, 8) for round in range(1, 9))
