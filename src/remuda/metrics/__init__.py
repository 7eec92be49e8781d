"""Scores of generated samples: images to features, features to statistics, statistics to scores."""

from remuda.metrics.collapse import classes_covered, near_duplicates, typical_distance
from remuda.metrics.coverage import Coverage, mode_coverage
from remuda.metrics.extractors import Extractor, Features, extractor_for, load_extractor
from remuda.metrics.judge import Assessment, Judge, Verdict, spread
from remuda.metrics.scores import (
    HIGHER_IS_BETTER,
    METRICS,
    SampleStatistics,
    Scores,
    fid,
    fid_logits,
    frechet_distance,
    inception_score,
    inception_score_splits,
    loss_of,
    score_samples,
    tvd,
)

__all__ = [
    "HIGHER_IS_BETTER",
    "METRICS",
    "Assessment",
    "Coverage",
    "Extractor",
    "Features",
    "Judge",
    "SampleStatistics",
    "Scores",
    "Verdict",
    "classes_covered",
    "extractor_for",
    "fid",
    "fid_logits",
    "frechet_distance",
    "inception_score",
    "inception_score_splits",
    "load_extractor",
    "loss_of",
    "mode_coverage",
    "near_duplicates",
    "score_samples",
    "spread",
    "tvd",
    "typical_distance",
]
