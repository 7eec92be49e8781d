"""Measures samples: any metrics, over any extractor, or of points against known modes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from remuda.metrics.coverage import REACH, mode_coverage
from remuda.metrics.extractors import CHUNK
from remuda.metrics.metric import Comparison, Need, PointComparison
from remuda.metrics.reference import Progress, Reference, extract
from remuda.metrics.registry import METRICS, check_metrics, default_metrics
from remuda.metrics.scores import Scores
from remuda.metrics.statistics import SampleStatistics

_TIMED = 10  # images that are timed before the work begins


def evaluate(
    images: Tensor,
    reference: Reference,
    metrics: Sequence[str] = (),
    *,
    labels: Tensor | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Scores:
    """The metrics of generated images against real ones; without names, the default ones.

    `labels` say what each image was generated as, where the extractor knows those labels.
    """
    extractor = reference.extractor
    available = {Need.FEATURES}
    available |= {Need.LOGITS} if extractor.classes else set()
    available |= {Need.LABELS} if labels is not None else set()
    check_metrics(metrics, available)
    wanted = [METRICS[name] for name in dict.fromkeys(metrics or default_metrics(available))]
    whole_sets = any(metric.whole_sets for metric in wanted)
    if progress is not None:
        count = len(images) + reference.unseen(whole_sets=whole_sets)
        progress.started(count, count * _seconds_per_image(reference, images))
    real_features = reference.features(progress) if whole_sets else None
    generated = extract(extractor, torch.split(images, CHUNK), progress)
    fake, real = SampleStatistics.of(generated), reference.statistics(progress)
    found = Comparison(real, fake, generated, real_features, labels, seed)
    return Scores(
        values={name: value for one in wanted for name, value in one.of_images(found).items()},
        extractor=extractor.name,
        scaling=extractor.scaling,
        samples=fake.count,
        real_samples=real.count,
        class_histogram=tuple(round(share * fake.count) for share in fake.class_shares.tolist()),
        real_class_shares=tuple(real.class_shares.tolist()),
        real=reference.about,
    )


def evaluate_points(
    points: Tensor, centres: Tensor, spread: float, metrics: Sequence[str] = ()
) -> Scores:
    """The metrics of generated points against the known modes of the data."""
    available = {Need.MODES}
    check_metrics(metrics, available)
    found = PointComparison(points, centres, spread)
    wanted = [METRICS[name] for name in dict.fromkeys(metrics or default_metrics(available))]
    return Scores(
        values={name: value for one in wanted for name, value in one.of_points(found).items()},
        extractor="",
        scaling="",
        samples=len(points),
        real_samples=0,
        real=f"{len(centres)} known modes, within {REACH:g} standard deviations",
        mode_histogram=mode_coverage(points, centres, spread).histogram,
    )


def _seconds_per_image(reference: Reference, images: Tensor) -> float:
    some = images[:_TIMED]
    started = time.perf_counter()
    reference.extractor(some)
    return (time.perf_counter() - started) / len(some)
