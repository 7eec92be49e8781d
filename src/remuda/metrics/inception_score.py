"""The inception score (Salimans et al. 2016): certain predictions of many different classes."""

from __future__ import annotations

import math

import torch

from remuda.config import METRICS as RANKING
from remuda.errors import ConfigError
from remuda.metrics.metric import Comparison, Metric, Need
from remuda.metrics.statistics import SampleStatistics, mean_predictions


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
    scores = [_inception_score(*mean_predictions(part)) for part in parts]
    values = torch.tensor(scores, dtype=torch.float64)
    return values.mean().item(), values.std().item() if splits > 1 else 0.0


def _inception_score(mean_probs: torch.Tensor, mean_neg_entropy: torch.Tensor) -> float:
    information = (mean_neg_entropy - torch.special.xlogy(mean_probs, mean_probs).sum()).item()
    # Rounding may leave a hair less than 0; NaN must stay NaN.
    return math.exp(0.0 if information < 0 else information)


def _over_splits(found: Comparison) -> dict[str, float]:
    mean, deviation = inception_score_splits(found.generated.logits)
    return {"is": mean, "is_std": deviation}


INCEPTION_SCORE = Metric(
    name="is",
    facts=RANKING["is"],
    rows=(("inception score", "{is:.3f} ± {is_std:.3f}"),),
    values=("is", "is_std"),
    directions={"is": True},
    needs=frozenset({Need.FEATURES, Need.LOGITS}),
    from_statistics=lambda _real, fake: inception_score(fake),
    from_features=_over_splits,
    default="always",
)
