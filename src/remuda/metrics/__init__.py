"""Scores of generated samples: images to features, features to statistics, statistics to scores."""

from remuda.metrics.anova import Anova, ChannelAnova, anova
from remuda.metrics.classes import class_accuracy, tvd
from remuda.metrics.classifier import SHAPES
from remuda.metrics.collapse import classes_covered, near_duplicates, typical_distance
from remuda.metrics.coverage import Coverage, mode_coverage
from remuda.metrics.evaluate import evaluate, evaluate_items, evaluate_points
from remuda.metrics.extractors import (
    INCEPTION,
    OWN,
    AnyExtractor,
    Extractor,
    Features,
    InceptionExtractor,
    extractor_for,
    load_extractor,
    load_inception,
    read_extractor,
)
from remuda.metrics.frechet import fid, fid_logits, frechet_distance
from remuda.metrics.inception_score import inception_score, inception_score_splits
from remuda.metrics.jackknife import GroupedStatistics, spread
from remuda.metrics.label_training import RECIPE, Say, train_on_labels, trainable
from remuda.metrics.metric import (
    Comparison,
    Findings,
    Items,
    Material,
    Metric,
    Need,
    Pairs,
    PointComparison,
)
from remuda.metrics.neighbours import density_coverage, kernel_distance, precision_recall
from remuda.metrics.own_extractor import OwnExtractor, read_own_extractor
from remuda.metrics.random_features import random_features
from remuda.metrics.real import RealStatistics, kept_statistics
from remuda.metrics.reference import (
    LIVE_REAL_IMAGES,
    Progress,
    Reference,
    reference_indices,
    some_of,
)
from remuda.metrics.registry import METRICS, check_metrics, default_metrics, loss_of, score_of
from remuda.metrics.scorer import Assessment, MixtureScore, Scorer
from remuda.metrics.scores import Scores
from remuda.metrics.statistics import SampleStatistics

__all__ = [
    "INCEPTION",
    "LIVE_REAL_IMAGES",
    "METRICS",
    "OWN",
    "RECIPE",
    "SHAPES",
    "Anova",
    "AnyExtractor",
    "Assessment",
    "ChannelAnova",
    "Comparison",
    "Coverage",
    "Extractor",
    "Features",
    "Findings",
    "GroupedStatistics",
    "InceptionExtractor",
    "Items",
    "Material",
    "Metric",
    "MixtureScore",
    "Need",
    "OwnExtractor",
    "Pairs",
    "PointComparison",
    "Progress",
    "RealStatistics",
    "Reference",
    "SampleStatistics",
    "Say",
    "Scorer",
    "Scores",
    "anova",
    "check_metrics",
    "class_accuracy",
    "classes_covered",
    "default_metrics",
    "density_coverage",
    "evaluate",
    "evaluate_items",
    "evaluate_points",
    "extractor_for",
    "fid",
    "fid_logits",
    "frechet_distance",
    "inception_score",
    "inception_score_splits",
    "kept_statistics",
    "kernel_distance",
    "load_extractor",
    "load_inception",
    "loss_of",
    "mode_coverage",
    "near_duplicates",
    "precision_recall",
    "random_features",
    "read_extractor",
    "read_own_extractor",
    "reference_indices",
    "score_of",
    "some_of",
    "spread",
    "train_on_labels",
    "trainable",
    "tvd",
    "typical_distance",
]
