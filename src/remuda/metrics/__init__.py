"""Scores of generated samples: images to features, features to statistics, statistics to scores."""

from remuda.metrics.anova import Anova, ChannelAnova, anova
from remuda.metrics.collapse import classes_covered, near_duplicates, typical_distance
from remuda.metrics.coverage import Coverage, mode_coverage
from remuda.metrics.evaluate import (
    EVALUATIONS,
    AnyExtractor,
    Progress,
    check_metrics,
    default_metrics,
    evaluate,
)
from remuda.metrics.extractors import (
    INCEPTION,
    SHAPES,
    Extractor,
    Features,
    InceptionExtractor,
    extractor_for,
    load_extractor,
    load_inception,
)
from remuda.metrics.neighbours import density_coverage, kernel_distance, precision_recall
from remuda.metrics.scorer import Assessment, MixtureScore, Scorer, evenly_spaced
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
    "EVALUATIONS",
    "HIGHER_IS_BETTER",
    "INCEPTION",
    "METRICS",
    "SHAPES",
    "Anova",
    "AnyExtractor",
    "Assessment",
    "ChannelAnova",
    "Coverage",
    "Extractor",
    "Features",
    "InceptionExtractor",
    "MixtureScore",
    "Progress",
    "SampleStatistics",
    "Scorer",
    "Scores",
    "anova",
    "check_metrics",
    "classes_covered",
    "default_metrics",
    "density_coverage",
    "evaluate",
    "evenly_spaced",
    "extractor_for",
    "fid",
    "fid_logits",
    "frechet_distance",
    "inception_score",
    "inception_score_splits",
    "kernel_distance",
    "load_extractor",
    "load_inception",
    "loss_of",
    "mode_coverage",
    "near_duplicates",
    "precision_recall",
    "score_samples",
    "tvd",
    "typical_distance",
]
