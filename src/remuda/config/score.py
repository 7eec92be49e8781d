"""Settings of the scores, and the names of the metrics that can rank mixtures."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from remuda.config.base import OneOf, Settings

# Open: `score.metric` accepts every name in here; `remuda.metrics` computes them.
RANKING_METRICS = ["fid", "fid_logits", "is", "tvd"]


class ScoreSettings(Settings):
    """How generators are scored."""

    extractor: Literal["auto", "digits", "cifar", "none"] = Field(
        "auto",
        description="network whose features are scored: digits (any 28x28 grey images), cifar "
        "(any 32x32 colour images), none, or auto (digits for digits and mnist, cifar for cifar10)",
    )
    metric: Annotated[str, OneOf(lambda: RANKING_METRICS)] = Field(
        "fid", description="metric that ranks mixtures during and after training"
    )
    samples: int = Field(1000, ge=2, description="images per generator and round")
    final_samples: int = Field(10_000, ge=20, description="images for the scores of the ensemble")
