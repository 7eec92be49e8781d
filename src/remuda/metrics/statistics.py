"""What the scores know of a set of samples: expectations, which add up over a mixture.

The expectations of a mixture of generators are the weighted sum of the generators' own. So a
mixture is scored from the samples that its members were scored with, without drawing again, and
trying other weights takes milliseconds. The noise in those samples stays in the score, and so does
a bias that depends on their number: see `jackknife.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from remuda.metrics.extractors import Features


@dataclass(frozen=True, eq=False)
class SampleStatistics:
    """All that the scores need to know about a set of samples; tensors are float64."""

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
        mean_probs, mean_neg_entropy = mean_predictions(logits)
        # Without classes there is no largest logit, and no metric of classes is computed.
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


EXPECTATIONS = tuple(field.name for field in fields(SampleStatistics) if field.name != "count")


def mean_predictions(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E[p] and E[Σ p log p] of the predicted class probabilities."""
    log_probs = logits.log_softmax(1)
    probs = log_probs.exp()
    return probs.mean(0), (probs * log_probs).sum(1).mean()
