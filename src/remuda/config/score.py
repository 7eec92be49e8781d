"""Settings of the scores, and the names of the metrics that can rank mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from remuda.config.base import OneOf, Settings


@dataclass(frozen=True)
class MetricFacts:
    """What can be said about a metric without computing it."""

    title: str
    higher_is_better: bool = False


# Open: `score.metric` accepts every name in here; `remuda.metrics` computes them.
METRICS: dict[str, MetricFacts] = {
    "fid": MetricFacts("FID"),
    "fid_logits": MetricFacts("FID-logits"),
    "is": MetricFacts("IS", higher_is_better=True),
    "tvd": MetricFacts("TVD"),
}


EXTRACTORS = ("auto", "digits", "cifar", "labels", "random", "none")
CLASSIFIER_FILE = ".safetensors"


class ScoreSettings(Settings):
    """How generators are scored."""

    extractor: Annotated[str, OneOf(lambda: EXTRACTORS, or_file=CLASSIFIER_FILE)] = Field(
        "auto",
        description="network whose features are scored: digits (any 28x28 grey images), cifar "
        "(any 32x32 colour images), labels (trained on the labels of the data), random (not "
        "trained), none, a classifier's .safetensors file, or auto (digits for digits and mnist, "
        "cifar for cifar10, nothing for points with known modes, otherwise labels where there are "
        "any, and random)",
    )
    metric: Annotated[str, OneOf(lambda: METRICS)] = Field(
        "fid", description="metric that ranks mixtures during and after training"
    )
    samples: int = Field(1000, ge=2, description="images per generator and round")
    every: int = Field(
        1,
        ge=1,
        description="rounds between live scores (after the last round there is always one); in "
        "between, whatever is chosen by score goes by the last one",
    )
    final_samples: int = Field(10_000, ge=20, description="images for the scores of the ensemble")

    @property
    def extractor_file(self) -> Path | None:
        """The classifier's file, if `extractor` is one rather than a name."""
        if self.extractor in EXTRACTORS:
            return None
        path = Path(self.extractor)
        try:
            return path.expanduser()
        except RuntimeError:  # ~ of a user that there is not
            return path

    def due(self, round: int, rounds: int) -> bool:
        """Whether the cells are scored after a round."""
        return round % self.every == 0 or round == rounds
