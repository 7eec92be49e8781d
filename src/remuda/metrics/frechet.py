"""FID (Heusel et al. 2017), and the same on a classifier's logits (Lipizzaner, 2018)."""

from __future__ import annotations

import math

import torch

from remuda.config import METRICS as RANKING
from remuda.errors import ConfigError
from remuda.metrics.metric import Metric, Need
from remuda.metrics.statistics import SampleStatistics


def frechet_distance(
    mean_a: torch.Tensor, cov_a: torch.Tensor, mean_b: torch.Tensor, cov_b: torch.Tensor
) -> float:
    """Squared Fréchet distance of two Gaussians, |μa−μb|² + tr(A + B − 2(AB)^½), in float64.

    With A = SSᵀ and B = TTᵀ, tr (AB)^½ is the sum of the singular values of SᵀT: real and
    non-negative by construction, also for singular covariances, where a matrix root of AB turns
    complex. What is below 0 is rounding.
    """
    if not all(bool(t.isfinite().all()) for t in (mean_a, cov_a, mean_b, cov_b)):
        return math.nan
    shift = (mean_a.double() - mean_b.double()).square().sum()
    overlap = torch.linalg.svdvals(_factor(cov_a).T @ _factor(cov_b)).sum()
    distance = shift + cov_a.double().trace() + cov_b.double().trace() - 2 * overlap
    return max(0.0, float(distance.item()))


def fid(real: SampleStatistics, fake: SampleStatistics) -> float:
    """Fréchet distance between the features; 0 is best."""
    return frechet_distance(
        real.feature_mean,
        _covariance(real.feature_mean, real.feature_second, real.count),
        fake.feature_mean,
        _covariance(fake.feature_mean, fake.feature_second, fake.count),
    )


def fid_logits(real: SampleStatistics, fake: SampleStatistics) -> float:
    """Fréchet distance between the logits, comparable to Lipizzaner's published figures."""
    return frechet_distance(
        real.logit_mean,
        _covariance(real.logit_mean, real.logit_second, real.count),
        fake.logit_mean,
        _covariance(fake.logit_mean, fake.logit_second, fake.count),
    )


def _covariance(mean: torch.Tensor, second: torch.Tensor, count: int) -> torch.Tensor:
    if count < 2:
        raise ConfigError(f"{count} sample has no covariance; allowed: at least 2 samples")
    return (second - torch.outer(mean, mean)) * (count / (count - 1))


def _factor(covariance: torch.Tensor) -> torch.Tensor:
    """S with SSᵀ = covariance: Cholesky's, which takes a tenth of the time, or of eigenvectors."""
    factor: torch.Tensor
    factor, problem = torch.linalg.cholesky_ex(covariance.double())
    if problem:
        values, vectors = torch.linalg.eigh(covariance.double())
        factor = vectors * values.clamp_min(0).sqrt()
    return factor


FID = Metric(
    name="fid",
    facts=RANKING["fid"],
    rows=(("FID", "{fid:.3f}"),),
    needs=frozenset({Need.FEATURES}),
    from_statistics=fid,
    default="always",
)
FID_LOGITS = Metric(
    name="fid_logits",
    facts=RANKING["fid_logits"],
    rows=(("FID (logits)", "{fid_logits:.3f}"),),
    needs=frozenset({Need.FEATURES, Need.LOGITS}),
    from_statistics=fid_logits,
    default="always",
)
