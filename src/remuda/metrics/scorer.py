"""Scores generators during training, by one metric against the statistics of real images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from remuda.metrics.collapse import classes_covered, near_duplicates
from remuda.metrics.extractors import AnyExtractor
from remuda.metrics.jackknife import GroupedStatistics
from remuda.metrics.real import RealStatistics
from remuda.metrics.registry import METRICS, ranking_metric, score_of
from remuda.metrics.statistics import SampleStatistics


@dataclass(frozen=True)
class Assessment:
    """What the scorer found out about one generator; it travels with the parcel."""

    statistics: GroupedStatistics
    score: float
    classes: int
    duplicates: float

    @property
    def knows_classes(self) -> bool:
        return self.statistics.expectations["class_shares"].numel() > 0

    def tensors(self) -> dict[str, Tensor]:
        figures = torch.tensor([self.score, self.classes, self.duplicates], dtype=torch.float64)
        return {"figures": figures, **self.statistics.tensors()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Assessment:
        score, classes, duplicates = tensors["figures"].tolist()
        statistics = {name: value for name, value in tensors.items() if name != "figures"}
        return cls(GroupedStatistics.from_tensors(statistics), score, int(classes), duplicates)


@dataclass(frozen=True)
class MixtureScore:
    """A mixture's score under the scorer's metric, and the same as a loss: lower is better."""

    value: float
    loss: float


class Scorer:
    """Compares samples with the real data under one metric."""

    def __init__(self, extractor: AnyExtractor, real: Tensor | RealStatistics, metric: str) -> None:
        self.metric = ranking_metric(metric).name
        self.extractor = extractor
        found = RealStatistics.of(extractor, real) if isinstance(real, Tensor) else real
        self.real = found.statistics
        self._typical = found.typical

    def assess(self, images: Tensor) -> Assessment:
        features = self.extractor(images)
        statistics = GroupedStatistics.of(features)
        return Assessment(
            statistics,
            self._score([statistics], [1.0]).value,
            classes_covered(self.real, SampleStatistics.of(features)),
            near_duplicates(features.features, self._typical),
        )

    def mixture(self, parts: Sequence[Assessment], weights: Sequence[float]) -> MixtureScore:
        """The score of a weighted mixture of generators, from the samples each was scored with.

        Corrected for their number, so that mixtures of few and of many compare. Where a part has
        statistics without groups (those of earlier versions), the score is not corrected.
        """
        return self._score([part.statistics for part in parts], weights)

    def standard_error(self, part: Assessment) -> float:
        """How far the score of one generator would scatter with other samples; NaN if unknown."""
        resamples = GroupedStatistics.mixture([part.statistics], [1.0])
        return resamples.standard_error(partial(score_of, self.metric, self.real))

    def _score(self, parts: Sequence[GroupedStatistics], weights: Sequence[float]) -> MixtureScore:
        resamples = GroupedStatistics.mixture(parts, weights)
        value = resamples.corrected(partial(score_of, self.metric, self.real))
        return MixtureScore(value, METRICS[self.metric].as_loss(value))
