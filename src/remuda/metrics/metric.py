"""What a metric is: one object that says how it is computed, what it needs and how it prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from torch import Tensor

from remuda.config import MetricFacts
from remuda.metrics.extractors import Features
from remuda.metrics.items import RealItems
from remuda.metrics.reference import Progress
from remuda.metrics.statistics import SampleStatistics

LABEL_WIDTH = 16


class Need(Enum):
    """What a metric needs besides samples; the value says so in an error."""

    FEATURES = "images, and an extractor that fits them"
    LOGITS = "an extractor with classes (Inception: weights with a classifying layer, fc)"
    LABELS = "samples with labels that the extractor knows"
    MODES = "points with known modes"
    UNSEEN = "items that no cell trained on (data.validation, or a data set with a test split)"
    CLASSES = "data with labels, and samples generated for them or an extractor that knows them"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Generated images beside real ones, as one extractor sees both."""

    real: SampleStatistics
    fake: SampleStatistics
    generated: Features
    real_features: Features | None = None  # there where a metric has `whole_sets`
    labels: Tensor | None = None  # what each image was generated as
    seed: int = 0  # of metrics that draw subsets


@dataclass(frozen=True, eq=False)
class PointComparison:
    """Generated points beside the known modes of the data."""

    points: Tensor  # (n, d), in the units of the data
    centres: Tensor  # (k, d)
    spread: float  # standard deviation of every mode


@dataclass(frozen=True, eq=False)
class Items:
    """Some of the real data."""

    items: RealItems
    labels: Tensor | None
    what: str  # e.g. "test images"
    alike: bool = True  # chance alone decides which of these and of the training items are which

    @property
    def about(self) -> str:
        return f"{len(self.items):,} {self.what}"


@dataclass(frozen=True, eq=False)
class Material:
    """Samples beside single real items, not their features. What costs time is a function."""

    samples: Tensor  # as the networks see them, in [-1, 1]
    training: Callable[[], Items]  # what the cells saw
    unseen: Callable[[], Items] | None = None  # what no cell saw, where there is any
    # Further samples and their labels, where these are known: by number of the draw and how many.
    # Draw 0 is the samples above.
    labelled: Callable[[int, int], tuple[Tensor, Tensor]] | None = None
    how_labelled: str = ""  # e.g. "labelled by digits-cnn-1"
    label_names: tuple[str, ...] = ()
    seed: int = 0
    progress: Progress | None = None

    @property
    def available(self) -> set[Need]:
        """What metrics of single items may need and find here."""
        found = {Need.UNSEEN} if self.unseen is not None else set()
        return found | ({Need.CLASSES} if self.labelled is not None else set())

    def unseen_items(self) -> Items:
        assert self.unseen is not None
        return self.unseen()


@dataclass(frozen=True, eq=False)
class Pairs:
    """Samples and the training item nearest to each, every item once, the closest pair first."""

    samples: Tensor
    training: Tensor
    distances: Tensor


@dataclass(frozen=True, eq=False)
class Findings:
    """What a metric of single items finds: figures, and words for its lines."""

    values: dict[str, float]
    notes: dict[str, str]
    pairs: Pairs | None = None


@dataclass(frozen=True)
class Metric:
    """One metric. It has at least one of the four ways to be computed.

    With `from_statistics` it can rank mixtures during training (`score.metric`). `from_features`,
    `from_points` and `from_items` yield the figures of a final score, by name; without them the
    final figure is that of the statistics.
    """

    name: str  # as in `remuda score RUN NAME` and `score.metric`
    facts: MetricFacts  # title and direction; those of metrics that can rank are in `config`
    rows: tuple[tuple[str, str], ...]  # label and format of the lines it prints
    needs: frozenset[Need]
    values: tuple[str, ...] = ()  # names of its figures in `Scores.values`; () is just its own name
    # Which of them runs can be compared by, and whether higher is better; {} is all, as the metric.
    directions: Mapping[str, bool] = field(default_factory=dict)
    whole_sets: bool = False  # needs the features of every real image, not only their statistics
    default: Literal["always", "without logits", "on request"] = "on request"
    from_statistics: Callable[[SampleStatistics, SampleStatistics], float] | None = None
    from_features: Callable[[Comparison], dict[str, float]] | None = None
    from_points: Callable[[PointComparison], dict[str, float]] | None = None
    from_items: Callable[[Material], Findings] | None = None

    @property
    def title(self) -> str:
        return self.facts.title

    @property
    def higher_is_better(self) -> bool:
        return self.facts.higher_is_better

    @property
    def value_names(self) -> tuple[str, ...]:
        return self.values or (self.name,)

    @property
    def compared(self) -> Mapping[str, bool]:
        """The figures that runs can be compared by, and whether higher is better."""
        return self.directions or dict.fromkeys(self.value_names, self.higher_is_better)

    def of_images(self, found: Comparison) -> dict[str, float]:
        """Its figures for a set of generated images."""
        if self.from_features is not None:
            return self.from_features(found)
        assert self.from_statistics is not None, f"{self.name} cannot be computed from images"
        return {self.name: self.from_statistics(found.real, found.fake)}

    def of_points(self, found: PointComparison) -> dict[str, float]:
        """Its figures for a set of generated points."""
        assert self.from_points is not None, f"{self.name} cannot be computed from points"
        return self.from_points(found)

    def as_loss(self, value: float) -> float:
        """The score as a number to minimise; NaN is infinitely bad."""
        if not math.isfinite(value):
            return math.inf
        return -value if self.higher_is_better else value

    def lines(self, figures: Mapping[str, object]) -> list[str]:
        """Its lines in the terminal."""
        return [f"{label:<{LABEL_WIDTH}}{form.format_map(figures)}" for label, form in self.rows]
