"""Statistics of samples: a mixture's are exact, and they survive an exchange."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.metrics import METRICS, Features, SampleStatistics, loss_of, score_of

RANKING = [metric.name for metric in METRICS.values() if metric.from_statistics]


def random_features(count: int, seed: int, d: int = 5, k: int = 3) -> Features:
    stream = torch.Generator().manual_seed(seed)
    return Features(
        features=torch.randn(count, d, generator=stream) * 2 + seed % 3,
        logits=torch.randn(count, k, generator=stream) * 4 - seed % 2,
    )


def assert_same(a: SampleStatistics, b: SampleStatistics) -> None:
    assert a.count == b.count
    torch.testing.assert_close(a.tensors(), b.tensors(), rtol=1e-10, atol=1e-10)


def concatenated(parts: list[Features]) -> Features:
    return Features(
        features=torch.cat([part.features for part in parts]),
        logits=torch.cat([part.logits for part in parts]),
    )


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_mixture_by_size_is_the_concatenation(sizes: list[int], seed: int) -> None:
    parts = [random_features(size, seed + i) for i, size in enumerate(sizes)]
    mixed = SampleStatistics.mixture(
        [SampleStatistics.of(part) for part in parts], [size / sum(sizes) for size in sizes]
    )
    assert_same(mixed, SampleStatistics.of(concatenated(parts)))


def test_mixture_weights_are_how_often_a_part_is_drawn() -> None:
    a, b = random_features(30, 1), random_features(30, 2)
    mixed = SampleStatistics.mixture([SampleStatistics.of(a), SampleStatistics.of(b)], [0.75, 0.25])
    drawn = SampleStatistics.of(concatenated([a, a, a, b]))
    assert mixed.count == 60
    torch.testing.assert_close(mixed.feature_second, drawn.feature_second)
    torch.testing.assert_close(mixed.class_shares, drawn.class_shares)
    torch.testing.assert_close(mixed.mean_neg_entropy, drawn.mean_neg_entropy)


def test_a_part_of_weight_zero_leaves_no_trace() -> None:
    good = SampleStatistics.of(random_features(30, 1))
    broken = SampleStatistics.of(
        Features(torch.full((30, 5), torch.nan), torch.full((30, 3), torch.nan))
    )
    mixed = SampleStatistics.mixture([good, broken], [1.0, 0.0])
    torch.testing.assert_close(mixed.feature_second, good.feature_second)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], [0.2, 0.2]])
def test_weights_off_the_simplex_are_refused(weights: list[float]) -> None:
    part = SampleStatistics.of(random_features(10, 0))
    with pytest.raises(ValueError, match="weights"):
        SampleStatistics.mixture([part, part], weights)


def test_statistics_survive_an_exchange() -> None:
    statistics = SampleStatistics.of(random_features(20, 3))
    assert_same(SampleStatistics.from_tensors(statistics.tensors()), statistics)


@pytest.mark.parametrize("change", ["missing", "extra", "size", "type"])
def test_foreign_tensors_are_refused(change: str) -> None:
    tensors = SampleStatistics.of(random_features(20, 3)).tensors()
    if change == "missing":
        del tensors["mean_probs"]
    elif change == "extra":
        tensors["more"] = torch.zeros(1)
    elif change == "size":
        tensors["logit_second"] = torch.zeros(3, 2, dtype=torch.float64)
    else:
        tensors["feature_mean"] = tensors["feature_mean"].float()
    with pytest.raises(ValueError, match=r"statistics|logit_second|feature_mean"):
        SampleStatistics.from_tensors(tensors)


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
