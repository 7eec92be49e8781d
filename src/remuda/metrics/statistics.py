"""What the scores know of a set of samples: expectations, which add up over a mixture.

The expectations of a mixture of generators are the weighted sum of the generators' own. So a
mixture is scored exactly, without drawing from it, and trying other weights costs about a
millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def mean_predictions(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E[p] and E[Σ p log p] of the predicted class probabilities."""
    log_probs = logits.log_softmax(1)
    probs = log_probs.exp()
    return probs.mean(0), (probs * log_probs).sum(1).mean()
