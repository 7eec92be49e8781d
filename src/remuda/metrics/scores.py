"""Scores of generated images: FID, FID on logits, inception score, and TVD of the classes.

Everything is computed from expectations over a set of samples. The expectations of a mixture of
generators are the weighted sum of the generators' own, so a mixture is scored exactly, without
drawing from it, and trying other weights costs about a millisecond.

FID: Heusel et al. 2017. Inception score: Salimans et al. 2016. FID on logits and TVD over a
classifier of the data set itself: Lipizzaner (Schmiedlechner et al. 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from remuda.errors import ConfigError
from remuda.metrics.collapse import classes_covered
from remuda.metrics.extractors import Extractor, Features


@dataclass(frozen=True, eq=False)
class SampleStatistics:
    """All that the scores need to know of a set of samples; tensors are float64."""

    count: int
    feature_mean: torch.Tensor  # (d,) E[x]
    feature_second: torch.Tensor  # (d, d) E[x xᵀ]
    logit_mean: torch.Tensor  # (k,)
    logit_second: torch.Tensor  # (k, k)
    class_shares: torch.Tensor  # (k,) how often each class has the largest logit
    mean_probs: torch.Tensor  # (k,) E[p]
    mean_neg_entropy: torch.Tensor  # scalar, E[Σ p log p]

    @classmethod
    def of(cls, features: Features) -> SampleStatistics:
        """Statistics of one set of samples."""
        x, logits = features.features.double(), features.logits.double()
        count, classes = logits.shape
        mean_probs, mean_neg_entropy = _predictions(logits)
        # Without classes there is no largest logit, and the scores of classes are not asked for.
        best = logits.argmax(1) if classes else torch.empty(0, dtype=torch.int64)
        shares = torch.bincount(best, minlength=classes).double() / count
        return cls(
            count=count,
            feature_mean=x.mean(0),
            feature_second=x.T @ x / count,
            logit_mean=logits.mean(0),
            logit_second=logits.T @ logits / count,
            class_shares=shares,
            mean_probs=mean_probs,
            mean_neg_entropy=mean_neg_entropy,
        )

    @staticmethod
    def mixture(parts: Sequence[SampleStatistics], weights: Sequence[float]) -> SampleStatistics:
        """Statistics of drawing from part i with probability weights[i].

        The count is that of all parts whatever their weights, so that a score changes smoothly
        when a weight reaches zero.
        """
        if len(parts) != len(weights) or not parts:
            raise ValueError(f"{len(parts)} sets of samples and {len(weights)} weights")
        if not all(weight >= 0 for weight in weights) or abs(sum(weights) - 1) > 1e-6:
            raise ValueError(f"weights must be at least 0 and sum to 1, not {list(weights)}")
        # A part that is never drawn from must not spoil the sum with its infinities.
        drawn = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight > 0]
        expectations: dict[str, torch.Tensor] = {
            name: torch.stack([getattr(part, name) * weight for part, weight in drawn]).sum(0)
            for name in _EXPECTATIONS
        }
        return SampleStatistics(count=sum(part.count for part in parts), **expectations)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Named tensors, for exchange between cells and for files."""
        named = {name: getattr(self, name) for name in _EXPECTATIONS}
        return {"count": torch.tensor(self.count, dtype=torch.int64), **named}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor]) -> SampleStatistics:
        """The inverse of `tensors`; checks names, types and sizes."""
        if set(tensors) != {"count", *_EXPECTATIONS}:
            raise ValueError(f"not sample statistics: {sorted(tensors)}")
        d, k = tensors["feature_mean"].numel(), tensors["class_shares"].numel()
        sizes = [(d,), (d, d), (k,), (k, k), (k,), (k,), ()]
        for name, size in zip(_EXPECTATIONS, sizes, strict=True):
            tensor = tensors[name]
            if tuple(tensor.shape) != size or tensor.dtype != torch.float64:
                raise ValueError(
                    f"{name} is {tensor.dtype} {tuple(tensor.shape)}, expected float64 {size}"
                )
        named = {name: tensors[name] for name in _EXPECTATIONS}
        return cls(count=int(tensors["count"].item()), **named)


_EXPECTATIONS = tuple(field.name for field in fields(SampleStatistics) if field.name != "count")


def frechet_distance(
    mean_a: torch.Tensor, cov_a: torch.Tensor, mean_b: torch.Tensor, cov_b: torch.Tensor
) -> float:
    """Squared Fréchet distance of two Gaussians, |μa−μb|² + tr(A + B − 2(AB)^½), in float64.

    tr (AB)^½ is the sum of the singular values of A^½ B^½: real and non-negative by construction,
    also for singular covariances, where a matrix root of AB turns complex.
    """
    if not all(bool(t.isfinite().all()) for t in (mean_a, cov_a, mean_b, cov_b)):
        return math.nan
    shift = (mean_a.double() - mean_b.double()).square().sum()
    overlap = torch.linalg.svdvals(_root(cov_a) @ _root(cov_b)).sum()
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


def inception_score(fake: SampleStatistics) -> float:
    """exp of the information between image and class, in one split; from 1 to the classes."""
    return _inception_score(fake.mean_probs, fake.mean_neg_entropy)


def inception_score_splits(logits: torch.Tensor, splits: int = 10) -> tuple[float, float]:
    """Mean and standard deviation of the inception score over splits, as it is usually reported.

    Split i takes every splits-th sample: samples of an ensemble come grouped by generator, and
    contiguous splits would each see one generator only.
    """
    if not 1 <= splits <= len(logits):
        raise ConfigError(f"{splits} splits of {len(logits)} samples; allowed: 1 to the samples")
    parts = [logits[split::splits].double() for split in range(splits)]
    scores = [_inception_score(*_predictions(part)) for part in parts]
    values = torch.tensor(scores, dtype=torch.float64)
    return values.mean().item(), values.std().item() if splits > 1 else 0.0


def tvd(real: SampleStatistics, fake: SampleStatistics) -> float:
    """Total variation distance of the class frequencies; 0 is best, 1 is disjoint."""
    return 0.5 * (real.class_shares - fake.class_shares).abs().sum().item()


METRICS: dict[str, Callable[[SampleStatistics, SampleStatistics], float]] = {
    "fid": fid,
    "fid_logits": fid_logits,
    "is": lambda _real, fake: inception_score(fake),
    "tvd": tvd,
}
HIGHER_IS_BETTER = frozenset({"is"})


def loss_of(metric: str, real: SampleStatistics, fake: SampleStatistics) -> float:
    """The score as a number to minimise; a generator that yields NaN is infinitely bad."""
    # Class frequencies hide NaN (some class always has the largest logit), so ask the logits.
    if not bool(fake.logit_second.isfinite().all()):
        return math.inf
    value = METRICS[metric](real, fake)
    if not math.isfinite(value):
        return math.inf
    return -value if metric in HIGHER_IS_BETTER else value


@dataclass(frozen=True)
class Scores:
    """Scores with what must be known to compare them: extractor, scaling, and sample counts."""

    values: dict[str, float]
    extractor: str
    scaling: str
    samples: int
    real_samples: int
    class_histogram: tuple[int, ...]
    real_class_shares: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values; a score that is no number becomes null, for JSON has no NaN."""
        return {
            "values": {
                name: value if math.isfinite(value) else None for name, value in self.values.items()
            },
            "extractor": self.extractor,
            "scaling": self.scaling,
            "samples": self.samples,
            "real_samples": self.real_samples,
            "class_histogram": list(self.class_histogram),
            "real_class_shares": list(self.real_class_shares),
        }

    def lines(self, metrics: Sequence[str] | None = None) -> list[str]:
        """For the terminal, all or some metrics; the header says what measured them.

        The classes, of which TVD is the summary, are shown along with it.
        """
        values, lines = self.values, []
        for metric in _lines_of(values) if metrics is None else dict.fromkeys(metrics):
            lines += _lines_of(values)[metric]
            if metric == "tvd":
                covered = f"{values['classes_covered']:.0f} of {len(self.class_histogram)}"
                histogram = " ".join(str(count) for count in self.class_histogram)
                lines += [f"classes covered {covered}", f"class histogram {histogram}"]
        header = (
            f"scores by {self.extractor}, inputs in {self.scaling}, "
            f"{self.samples} samples against {self.real_samples} real"
        )
        return [header, *lines]


def _lines_of(values: Mapping[str, float]) -> dict[str, list[str]]:
    """The lines of every metric of which there are values."""
    formats: dict[str, dict[str, str]] = {
        "fid": {"fid": "FID             {fid:.3f}"},
        "fid_logits": {"fid_logits": "FID (logits)    {fid_logits:.3f}"},
        "is": {"is": "inception score {is:.3f} ± {is_std:.3f}"},
        "tvd": {"tvd": "TVD             {tvd:.4f}"},
        "accuracy": {"accuracy": "class accuracy  {accuracy:.3f}"},
        "kid": {"kid": "KID             {kid:.5f} ± {kid_std:.5f}"},
        "pr": {
            "precision": "precision       {precision:.3f}",
            "recall": "recall          {recall:.3f}",
        },
        "dc": {
            "density": "density         {density:.3f}",
            "coverage": "coverage        {coverage:.3f}",
        },
    }
    return {
        metric: [text.format_map(values) for text in parts.values()]
        for metric, parts in formats.items()
        if parts.keys() <= values.keys()
    }


def score_samples(
    extractor: Extractor,
    images: torch.Tensor,
    real: SampleStatistics,
    *,
    splits: int = 10,
    labels: torch.Tensor | None = None,
) -> Scores:
    """All scores of a set of images against the statistics of real ones.

    With `labels`, those that the images were asked for by, also how often the extractor agrees.
    """
    seen = extractor(images)
    fake = SampleStatistics.of(seen)
    mean, deviation = inception_score_splits(seen.logits, splits)
    return Scores(
        values={
            "fid": fid(real, fake),
            "fid_logits": fid_logits(real, fake),
            "is": mean,
            "is_std": deviation,
            "tvd": tvd(real, fake),
            "classes_covered": float(classes_covered(real, fake)),
            **({} if labels is None else {"accuracy": class_accuracy(seen.logits, labels)}),
        },
        extractor=extractor.name,
        scaling=extractor.scaling,
        samples=fake.count,
        real_samples=real.count,
        class_histogram=tuple(round(s * fake.count) for s in fake.class_shares.tolist()),
        real_class_shares=tuple(real.class_shares.tolist()),
    )


def class_accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """How often the classifier takes an image for what it was asked for."""
    return (logits.argmax(1) == labels).double().mean().item()


def _predictions(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E[p] and E[Σ p log p] of the predicted class probabilities."""
    log_probs = logits.log_softmax(1)
    probs = log_probs.exp()
    return probs.mean(0), (probs * log_probs).sum(1).mean()


def _inception_score(mean_probs: torch.Tensor, mean_neg_entropy: torch.Tensor) -> float:
    information = (mean_neg_entropy - torch.special.xlogy(mean_probs, mean_probs).sum()).item()
    # Rounding may leave a hair less than 0; NaN must stay NaN.
    return math.exp(0.0 if information < 0 else information)


def _covariance(mean: torch.Tensor, second: torch.Tensor, count: int) -> torch.Tensor:
    if count < 2:
        raise ConfigError(f"{count} sample has no covariance; allowed: at least 2 samples")
    return (second - torch.outer(mean, mean)) * (count / (count - 1))


def _root(covariance: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(covariance.double())
    root: torch.Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    return root
