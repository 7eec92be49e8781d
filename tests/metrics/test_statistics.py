"""Scores of statistics: the order of samples is nothing to them, and NaN is infinitely bad."""

import math

import pytest
import torch

from remuda.metrics import METRICS, Features, SampleStatistics, loss_of, score_of

RANKING = [metric.name for metric in METRICS.values() if metric.from_statistics]


def random_features(count: int, seed: int, d: int = 5, k: int = 3) -> Features:
    stream = torch.Generator().manual_seed(seed)
    return Features(
        features=torch.randn(count, d, generator=stream) * 2 + seed % 3,
        logits=torch.randn(count, k, generator=stream) * 4 - seed % 2,
    )


@pytest.mark.parametrize("metric", RANKING)
def test_shuffling_changes_no_score(metric: str) -> None:
    real = SampleStatistics.of(random_features(200, 5))
    fake = random_features(200, 6)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    shuffled = Features(fake.features[order], fake.logits[order])
    assert score_of(metric, real, SampleStatistics.of(fake)) == pytest.approx(
        score_of(metric, real, SampleStatistics.of(shuffled)), rel=1e-9
    )


@pytest.mark.parametrize("metric", RANKING)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_broken_generator_is_infinitely_bad(metric: str, value: float) -> None:
    real = SampleStatistics.of(random_features(50, 5))
    broken = Features(torch.full((50, 5), value), torch.full((50, 3), value))
    assert loss_of(metric, real, SampleStatistics.of(broken)) == math.inf


def test_loss_of_is_lower_for_better() -> None:
    real = SampleStatistics.of(random_features(50, 5))
    assert loss_of("is", real, real) == -score_of("is", real, real)
    assert loss_of("fid", real, real) == score_of("fid", real, real)
