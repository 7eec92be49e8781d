"""All scores of a finished generator, over any extractor; what a slow one sees is kept on disk."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from remuda.config import suggest
from remuda.errors import ConfigError, StoreError
from remuda.files import write_atomically
from remuda.metrics.collapse import classes_covered
from remuda.metrics.extractors import Features
from remuda.metrics.neighbours import (
    MOST_ITEMS,
    density_coverage,
    kernel_distance,
    precision_recall,
)
from remuda.metrics.scorer import evenly_spaced
from remuda.metrics.scores import (
    SampleStatistics,
    Scores,
    class_accuracy,
    fid,
    fid_logits,
    inception_score_splits,
    tvd,
)
from remuda.streams import choice_stream

_CHUNK = 100
_TRIED = 10  # images that are timed before the work begins
_log = logging.getLogger(__name__)


class AnyExtractor(Protocol):
    """Images in, features out; `classes` is 0 where there are no logits."""

    name: str
    identity: str  # tells other weights from these
    scaling: str
    classes: int

    def __call__(self, images: Tensor) -> Features: ...


class Progress(Protocol):
    """Who wants to know how far the scoring is."""

    def started(self, images: int, seconds: float) -> None:
        """So many images are to be looked at, and it will take about so long."""

    def advanced(self, images: int) -> None:
        """So many more are done."""


class Silent:
    """Watches nothing."""

    def started(self, images: int, seconds: float) -> None:
        """Nothing to tell."""

    def advanced(self, images: int) -> None:
        """Nothing to tell."""


def _fid(real: Features, fake: Features, _seed: int) -> dict[str, float]:
    return {"fid": fid(SampleStatistics.of(real), SampleStatistics.of(fake))}


def _fid_logits(real: Features, fake: Features, _seed: int) -> dict[str, float]:
    return {"fid_logits": fid_logits(SampleStatistics.of(real), SampleStatistics.of(fake))}


def _inception_score(_real: Features, fake: Features, _seed: int) -> dict[str, float]:
    mean, deviation = inception_score_splits(fake.logits)
    return {"is": mean, "is_std": deviation}


def _tvd(real: Features, fake: Features, _seed: int) -> dict[str, float]:
    before, after = SampleStatistics.of(real), SampleStatistics.of(fake)
    return {"tvd": tvd(before, after), "classes_covered": float(classes_covered(before, after))}


def _kid(real: Features, fake: Features, seed: int) -> dict[str, float]:
    rng = choice_stream(seed, 0, 0, "kid-subsets")
    mean, deviation = kernel_distance(real.features, fake.features, rng)
    return {"kid": mean, "kid_std": deviation}


def _pr(real: Features, fake: Features, _seed: int) -> dict[str, float]:
    return precision_recall(_some(real), _some(fake))._asdict()


def _dc(real: Features, fake: Features, _seed: int) -> dict[str, float]:
    return density_coverage(_some(real), _some(fake))._asdict()


EVALUATIONS: dict[str, Callable[[Features, Features, int], dict[str, float]]] = {
    "fid": _fid,
    "fid_logits": _fid_logits,
    "is": _inception_score,
    "tvd": _tvd,
    "kid": _kid,
    "pr": _pr,
    "dc": _dc,
}
NEED_LOGITS = frozenset({"fid_logits", "is", "tvd"})


def default_metrics(extractor: AnyExtractor) -> tuple[str, ...]:
    """What is measured where nothing is asked for."""
    return ("fid", "fid_logits", "is", "tvd") if extractor.classes else ("fid", "kid")


def check_metrics(metrics: Sequence[str], extractor: AnyExtractor | None = None) -> None:
    """Refuse what is unknown, or needs classes from an extractor that has none."""
    for metric in metrics:
        if metric not in EVALUATIONS:
            hint = suggest(metric, EVALUATIONS) or ";"
            raise ConfigError(f"{metric}: unknown metric{hint} allowed: {', '.join(EVALUATIONS)}")
        if extractor is not None and not extractor.classes and metric in NEED_LOGITS:
            allowed = [name for name in EVALUATIONS if name not in NEED_LOGITS]
            raise ConfigError(
                f"{metric}: the weights of {extractor.name} have no classifying layer (fc); "
                f"allowed: {', '.join(allowed)}, or --weights with a file that has it"
            )


def evaluate(
    extractor: AnyExtractor,
    images: Tensor,
    real_images: Tensor,
    metrics: Sequence[str],
    *,
    seed: int = 0,
    cache: Path | None = None,
    progress: Progress | None = None,
    labels: Tensor | None = None,
) -> Scores:
    """The metrics of images against real ones; with `cache`, real features are kept there.

    With `labels`, those that the images were asked for by, also how often the extractor agrees.
    """
    check_metrics(metrics, extractor)
    watcher = progress or Silent()
    kept = None if cache is None else cache / f"{_key(extractor, real_images)}.safetensors"
    real = None if kept is None else _read(kept, len(real_images))
    count = len(images) + (0 if real is not None else len(real_images))
    started = time.perf_counter()
    extractor(images[:_TRIED])
    seconds = time.perf_counter() - started
    watcher.started(count, seconds / len(images[:_TRIED]) * count)
    if real is None:
        real = _extract(extractor, real_images, watcher)
        if kept is not None:
            _write(kept, real)
    fake = _extract(extractor, images, watcher)
    values: dict[str, float] = {}
    for metric in dict.fromkeys(metrics):
        values |= EVALUATIONS[metric](real, fake, seed)
    histogram = _histogram(fake, extractor)
    if labels is not None and extractor.classes:
        values["accuracy"] = class_accuracy(fake.logits, labels)
    return Scores(
        values=values,
        extractor=extractor.name,
        scaling=extractor.scaling,
        samples=len(images),
        real_samples=len(real_images),
        class_histogram=histogram,
        real_class_shares=tuple(n / len(real_images) for n in _histogram(real, extractor)),
    )


def _histogram(found: Features, extractor: AnyExtractor) -> tuple[int, ...]:
    """How often each class comes up; nothing where the extractor knows no classes."""
    if not extractor.classes:
        return ()
    return tuple(torch.bincount(found.logits.argmax(1), minlength=extractor.classes).tolist())


def _extract(extractor: AnyExtractor, images: Tensor, progress: Progress) -> Features:
    parts = []
    for chunk in torch.split(images, _CHUNK):
        parts.append(extractor(chunk))
        progress.advanced(len(chunk))
    return Features(
        torch.cat([part.features for part in parts]), torch.cat([part.logits for part in parts])
    )


def _some(features: Features) -> Tensor:
    return features.features[evenly_spaced(len(features.features), MOST_ITEMS)]


# ---------------------------------------------------------------------------- the cache


def _key(extractor: AnyExtractor, images: Tensor) -> str:
    """What the features depend on: the extractor with its weights, and the images."""
    digest = hashlib.blake2b(images.contiguous().numpy().data, digest_size=16)
    digest.update(f"{tuple(images.shape)}|{extractor.identity}|{extractor.scaling}".encode())
    return f"{extractor.name}-{digest.hexdigest()}"


def _read(path: Path, count: int) -> Features | None:
    try:
        tensors = load(path.read_bytes())
        found = Features(tensors["features"], tensors["logits"])
    except (OSError, KeyError, SafetensorError):
        return None
    fits = len(found.features) == len(found.logits) == count
    return found if fits and bool(found.features.isfinite().all()) else None


def _write(path: Path, features: Features) -> None:
    tensors = {"features": features.features, "logits": features.logits}
    try:
        write_atomically(path, save({name: part.contiguous() for name, part in tensors.items()}))
    except StoreError as error:
        # A full disk, or another process that writes the same: next time will be slower, no more.
        _log.warning("features of the real images are not cached: %s", error)
