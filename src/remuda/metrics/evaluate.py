"""Measures samples: any metrics, over any extractor, or of points against known modes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from remuda.metrics.coverage import REACH, mode_coverage
from remuda.metrics.extractors import CHUNK
from remuda.metrics.metric import Comparison, Material, Metric, Need, PointComparison
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
    material: Material | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Scores:
    """The metrics of generated images against real ones; without names, the default ones.

    `labels` say what each image was generated as, where the extractor knows those labels.
    `material` is for metrics of single items.
    """
    extractor = reference.extractor
    available = {Need.FEATURES}
    available |= {Need.LOGITS} if extractor.classes else set()
    available |= {Need.LABELS} if labels is not None else set()
    wanted, of_items = _wanted(metrics, available, material)
    whole_sets = any(metric.whole_sets for metric in wanted)
    if progress is not None:
        count = len(images) + reference.unseen(whole_sets=whole_sets)
        progress.started(count, count * _seconds_per_image(reference, images))
    real_features = reference.features(progress) if whole_sets else None
    generated = extract(extractor, torch.split(images, CHUNK), progress)
    fake, real = SampleStatistics.of(generated), reference.statistics(progress)
    found = Comparison(real, fake, generated, real_features, labels, seed)
    values = {name: value for one in wanted for name, value in one.of_images(found).items()}
    scores = Scores(
        values=values,
        extractor=extractor.name,
        extractor_id=extractor.identity,
        scaling=extractor.scaling,
        samples=fake.count,
        real_samples=real.count,
        class_histogram=tuple(round(share * fake.count) for share in fake.class_shares.tolist()),
        real_class_shares=tuple(real.class_shares.tolist()),
        real=reference.about,
    )
    return _with_items(scores, of_items, material)


def evaluate_points(
    points: Tensor,
    centres: Tensor,
    spread: float,
    metrics: Sequence[str] = (),
    *,
    material: Material | None = None,
) -> Scores:
    """The metrics of generated points against the known modes of the data."""
    wanted, of_items = _wanted(metrics, {Need.MODES}, material)
    found = PointComparison(points, centres, spread)
    values = {name: value for one in wanted for name, value in one.of_points(found).items()}
    scores = Scores(
        values=values,
        extractor="",
        scaling="",
        samples=len(points),
        real_samples=0,
        real=f"{len(centres)} known modes, within {REACH:g} standard deviations",
        mode_histogram=mode_coverage(points, centres, spread).histogram,
    )
    return _with_items(scores, of_items, material)


def evaluate_items(material: Material, metrics: Sequence[str]) -> Scores:
    """The metrics that look at single items, which need neither an extractor nor modes."""
    _, of_items = _wanted(metrics, set(), material)
    training, unseen = material.training(), material.unseen_items()
    scores = Scores(
        values={},
        extractor="",
        scaling="",
        samples=len(material.samples),
        real_samples=len(training.items),
        real=f"{training.about} and {unseen.about}",
    )
    return _with_items(scores, of_items, material)


def _wanted(
    names: Sequence[str], available: set[Need], material: Material | None
) -> tuple[list[Metric], list[Metric]]:
    """The metrics asked for, or the default ones, and beside them those of single items."""
    available = available | (material.available if material is not None else set())
    check_metrics(names, available)
    all = [METRICS[name] for name in dict.fromkeys(names or default_metrics(available))]
    of_items = [metric for metric in all if metric.from_items is not None]
    return [metric for metric in all if metric not in of_items], of_items


def _with_items(scores: Scores, metrics: Sequence[Metric], material: Material | None) -> Scores:
    """The scores, and beside them what metrics of single items find."""
    for metric in metrics:
        assert material is not None
        assert metric.from_items is not None
        found = metric.from_items(material)
        if not bool(material.samples.isfinite().all()):
            # A broken generator copies nothing and teaches nothing: that must not look good.
            found = replace(found, values=dict.fromkeys(found.values, math.nan))
        scores = replace(
            scores,
            values={**scores.values, **found.values},
            notes={**scores.notes, **found.notes},
            pairs=found.pairs or scores.pairs,
        )
    return scores


def _seconds_per_image(reference: Reference, images: Tensor) -> float:
    some = images[:_TIMED]
    started = time.perf_counter()
    reference.extractor(some)
    return (time.perf_counter() - started) / len(some)
