"""Scores against closed forms and against other people's implementations."""

import json
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.inception import InceptionScore

from remuda.errors import ConfigError
from remuda.metrics import (
    Features,
    Reference,
    SampleStatistics,
    Scores,
    evaluate,
    fid,
    fid_logits,
    frechet_distance,
    inception_score,
    inception_score_splits,
    load_extractor,
    tvd,
)


def of_logits(logits: torch.Tensor) -> SampleStatistics:
    return SampleStatistics.of(Features(torch.randn(len(logits), 2), logits))


def blobs(count: int, seed: int) -> torch.Tensor:
    """Images of the digits' shape with some structure, so that features differ."""
    stream = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 1, 7, 7, generator=stream) * 2 - 1
    return nn.functional.interpolate(coarse, size=28, mode="bilinear").clamp(-1, 1)


def test_frechet_distance_of_known_gaussians() -> None:
    mean_a, mean_b = torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0])
    cov_a, cov_b = torch.diag(torch.tensor([1.0, 4.0])), torch.diag(torch.tensor([9.0, 16.0]))
    assert frechet_distance(mean_a, cov_a, mean_b, cov_b) == pytest.approx(25 + 4 + 4)
    assert frechet_distance(mean_a, cov_a, mean_a, cov_a) == pytest.approx(0, abs=1e-12)


def test_fid_of_samples_with_known_moments() -> None:
    # Two points at ±a have mean 0 and (with n - 1) variance 2a².
    def pair(centre: float, a: float) -> SampleStatistics:
        points = torch.tensor([[centre - a], [centre + a]])
        return SampleStatistics.of(Features(points, points))

    expected = 5.0**2 + 2 * (3.0 - 1.0) ** 2
    assert fid(pair(0, 1), pair(5, 3)) == pytest.approx(expected)
    assert fid_logits(pair(0, 1), pair(5, 3)) == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), d=st.integers(1, 12))
def test_frechet_distance_agrees_with_scipy(seed: int, d: int) -> None:
    stream = np.random.default_rng(seed)
    x, y = stream.normal(size=(4 * d, d)), stream.normal(1, 2, size=(4 * d, d))
    a, b = np.cov(x.T).reshape(d, d), np.cov(y.T).reshape(d, d)
    root = scipy.linalg.sqrtm(a @ b).real
    expected = np.square(x.mean(0) - y.mean(0)).sum() + np.trace(a + b - 2 * root)
    ours = frechet_distance(*(torch.from_numpy(t) for t in (x.mean(0), a, y.mean(0), b)))
    assert ours == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_frechet_distance_of_singular_covariances(rank: int) -> None:
    x = torch.randn(8, rank, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)
    cov, zero = x @ x.T, torch.zeros(8, dtype=torch.float64)
    assert frechet_distance(zero, cov, zero, cov) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(zero, cov, zero, 4 * cov) == pytest.approx(cov.trace().item(), abs=1e-6)


def test_one_sample_has_no_fid() -> None:
    one = of_logits(torch.zeros(1, 3))
    with pytest.raises(ConfigError, match="at least 2"):
        fid(one, one)


def test_inception_score_is_one_where_all_predictions_are_alike() -> None:
    alike = torch.tensor([[9.0, 0.0, -3.0]]).expand(50, 3)
    assert inception_score(of_logits(alike)) == pytest.approx(1)
    assert inception_score(of_logits(torch.zeros(50, 3))) == pytest.approx(1)


def test_inception_score_is_the_classes_where_all_are_certain_and_equal() -> None:
    certain = 1000 * torch.eye(10).repeat(7, 1)
    assert inception_score(of_logits(certain)) == pytest.approx(10)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(0, 100))
def test_inception_score_stays_between_its_bounds(seed: int, scale: float) -> None:
    logits = scale * torch.randn(30, 6, generator=torch.Generator().manual_seed(seed))
    assert 1 <= inception_score(of_logits(logits)) <= 6 + 1e-9


def test_splits_see_every_generator_of_grouped_samples() -> None:
    grouped = 1000 * torch.eye(10).repeat_interleave(20, 0)
    assert inception_score_splits(grouped, 10) == pytest.approx((10, 0))
    assert inception_score_splits(grouped, 1) == pytest.approx((10, 0))
    with pytest.raises(ConfigError, match="splits"):
        inception_score_splits(grouped, 201)


def test_tvd_of_known_frequencies() -> None:
    even, first, second = torch.eye(2).repeat(5, 1), torch.eye(2)[[0] * 8], torch.eye(2)[[1] * 9]
    assert tvd(of_logits(even), of_logits(even)) == 0
    assert tvd(of_logits(even), of_logits(first)) == pytest.approx(0.5)
    assert tvd(of_logits(first), of_logits(second)) == pytest.approx(1)


class Part(nn.Module):
    """Our extractor as torchmetrics wants it."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part
        self.num_features = {"features": 64, "logits": 10}[part]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        # float64, or torchmetrics returns its result in float32
        result: torch.Tensor = getattr(load_extractor("digits")(images), self.part)
        return result.double()


@pytest.mark.parametrize(("part", "ours"), [("features", fid), ("logits", fid_logits)])
def test_fid_agrees_with_torchmetrics(part: str, ours: object) -> None:
    assert callable(ours)
    real, fake = blobs(300, 1), blobs(200, 2) * 0.5
    theirs = FrechetInceptionDistance(feature=Part(part))
    theirs.update(real, real=True)
    theirs.update(fake, real=False)
    extractor = load_extractor("digits")
    statistics = [SampleStatistics.of(extractor(images)) for images in (real, fake)]
    assert ours(*statistics) == pytest.approx(theirs.compute().item(), rel=1e-5)


@pytest.mark.filterwarnings("ignore:Metric `InceptionScore` will save")
def test_inception_score_agrees_with_torchmetrics() -> None:
    images = blobs(200, 3)
    seen = load_extractor("digits")(images)
    whole = InceptionScore(feature=Part("logits"), splits=1)
    split = InceptionScore(feature=Part("logits"), splits=10)
    for metric in (whole, split):
        metric.update(images)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert inception_score(SampleStatistics.of(seen)) == pytest.approx(
            whole.compute()[0].item(), rel=1e-9
        )
    # torchmetrics shuffles, then cuts; lay the samples so that ours makes the same splits.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mean, deviation = split.compute()
        torch.manual_seed(0)
        order = torch.randperm(200).view(10, 20).T.flatten()
    assert inception_score_splits(seen.logits[order], 10) == pytest.approx(
        (mean.item(), deviation.item()), rel=1e-9
    )


def test_scores_name_what_they_were_measured_with() -> None:
    extractor = load_extractor("digits")
    scores = evaluate(blobs(40, 2), Reference(extractor, blobs(100, 1), about="100 of 300 blobs"))
    assert sum(scores.class_histogram) == scores.samples == 40
    header = scores.lines()[0]
    for named in ("digits-cnn-1", "[-1, 1]", "40 samples", "100 of 300 blobs"):
        assert named in header
    assert set(scores.values) == {"fid", "fid_logits", "is", "is_std", "tvd", "classes_covered"}
    kept = json.loads(json.dumps(scores.to_json()))
    assert (kept["extractor"], kept["real"]) == ("digits-cnn-1", "100 of 300 blobs")
    assert (kept["samples"], kept["real_samples"]) == (40, 100)


def test_nan_becomes_null() -> None:
    scores = Scores({"fid": math.nan}, "x", "[-1, 1]", 2, 2, (2,))
    assert scores.to_json()["values"] == {"fid": None}
