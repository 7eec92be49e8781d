"""The registry: every metric is one object, and a new one is a file and a line."""

from __future__ import annotations

import pytest
import torch

from remuda import config
from remuda.config import ScoreSettings
from remuda.errors import ConfigError
from remuda.metrics import (
    METRICS,
    Assessment,
    Features,
    GroupedStatistics,
    Items,
    Material,
    Need,
    Reference,
    Scorer,
    evaluate,
    evaluate_items,
    evaluate_points,
    load_extractor,
    loss_of,
)
from tests.metrics.toy_metric import TOY
from tests.tiny import PixelExtractor


def images(count: int, seed: int) -> torch.Tensor:
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed)) * 2 - 1


class Featureless(PixelExtractor):
    """Sees features, but no classes."""

    def __init__(self) -> None:
        super().__init__(16)
        self.classes = 0

    def __call__(self, images: torch.Tensor) -> Features:
        return Features(super().__call__(images).features, torch.empty(len(images), 0))


@pytest.fixture
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, TOY.name, TOY)
    monkeypatch.setitem(config.METRICS, TOY.name, TOY.facts)  # `score.metric` accepts it


@pytest.mark.usefixtures("_toy")
def test_a_new_metric_is_computed_and_printed() -> None:
    extractor = PixelExtractor(16)
    real, fake = images(30, 0), images(30, 1) * 0.5
    scores = evaluate(fake, Reference(extractor, real), ["fid", "toy"])
    gap = extractor(real).features.double().mean(0) - extractor(fake).features.double().mean(0)
    assert scores.values["toy"] == pytest.approx(gap.abs().sum().item())
    assert scores.lines()[-1] == f"toy distance    {scores.values['toy']:.2f} (lower is better)"
    assert scores.to_json()["values"]["toy"] == scores.values["toy"]


@pytest.mark.usefixtures("_toy")
def test_a_new_metric_is_refused_where_what_it_needs_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"^toy: needs an extractor with classes"):
        evaluate(images(9, 0), Reference(Featureless(), images(9, 1)), ["toy"])
    with pytest.raises(ConfigError, match=r"^toy: needs images, .*; allowed here: modes$"):
        evaluate_points(torch.zeros(3, 2), torch.zeros(1, 2), 1.0, ["toy"])
    with pytest.raises(
        ConfigError, match=r"^tyo: unknown metric; did you mean toy\?.* modes, .*, toy$"
    ):
        evaluate(images(9, 0), Reference(PixelExtractor(16), images(9, 1)), ["tyo"])


@pytest.mark.usefixtures("_toy")
def test_a_new_metric_of_statistics_ranks_mixtures() -> None:
    settings = ScoreSettings.model_validate({"metric": "toy"})
    scorer = Scorer(PixelExtractor(16), images(40, 0), settings.metric)
    near, far = scorer.assess(images(40, 1)), scorer.assess(images(40, 1) + 3)
    assert near.score < far.score
    mixed = scorer.mixture([near, far], [0.5, 0.5])
    assert near.score < mixed.value < far.score
    assert mixed.loss == mixed.value


def test_what_config_says_can_rank_can_be_computed() -> None:
    ranking = {name: metric.facts for name, metric in METRICS.items() if metric.from_statistics}
    assert ranking == config.METRICS


def test_a_metric_that_is_not_one_of_statistics_cannot_rank() -> None:
    with pytest.raises(ConfigError, match=r"score.metric=kid: .*allowed: fid, fid_logits, is, tvd"):
        Scorer(PixelExtractor(16), images(9, 0), "kid")


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_yields_the_figures_it_names_and_prints(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.metrics.synthetic.STEPS", 2)
    metric = METRICS[name]
    assert metric.name == name
    if Need.MODES in metric.needs:
        scores = evaluate_points(torch.rand(30, 2), torch.rand(4, 2), 0.1, [name])
    elif metric.from_items is not None:
        items, labels = torch.rand(20, 2), torch.arange(20) % 2
        points = Items(items, labels, "points")
        names = ("a", "b")
        material = Material(
            items, lambda: points, lambda: points, lambda *_: (items, labels), "", names
        )
        scores = evaluate_items(material, [name])
    else:
        fake, real = (torch.rand(20, 1, 28, 28) for _ in range(2))
        reference = Reference(load_extractor("digits"), real)
        scores = evaluate(fake, reference, [name], labels=torch.arange(20) % 10)
    assert tuple(scores.values) == metric.value_names
    assert len(scores.lines()) == 1 + len(metric.rows)
    assert scores.lines() == scores.lines([name])


@pytest.mark.parametrize("name", METRICS)
def test_a_better_score_is_a_smaller_loss(name: str) -> None:
    metric = METRICS[name]
    better, worse = (2.0, 1.0) if metric.higher_is_better else (1.0, 2.0)
    assert metric.as_loss(better) < metric.as_loss(worse) < metric.as_loss(float("nan"))


def test_the_loss_of_a_mixture_is_that_of_the_registry() -> None:
    scorer = Scorer(PixelExtractor(16), images(40, 0), "is")
    found = scorer.assess(images(40, 1))
    assert isinstance(found, Assessment)
    assert scorer.mixture([found], [1.0]).loss == -found.score
    resamples = GroupedStatistics.mixture([found.statistics], [1.0])
    corrected = resamples.corrected(lambda part: loss_of("is", scorer.real, part))
    assert corrected == pytest.approx(-found.score)
