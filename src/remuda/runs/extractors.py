"""Which extractor scores a run, where it is made, and where it is kept.

A classifier that comes with remuda scores the data it is meant for. For other data one is made: of
their labels, or of nothing but random weights. It is made once per data set, by the process that
starts a run, and kept in the cache. Or it is a classifier that somebody has trained, in a file.
Either is kept in the run folder: workers, a resumed run and `remuda score` on another machine read
it there, so that all of them use the same weights.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeGuard

from remuda.config import EXTRACTORS, Config
from remuda.data import Dataset
from remuda.data.places import cache_dir
from remuda.errors import ConfigError, StoreError, shape_text
from remuda.files import digest, read_stored, write_atomically
from remuda.metrics import (
    METRICS,
    RECIPE,
    AnyExtractor,
    Extractor,
    Need,
    OwnExtractor,
    Say,
    extractor_for,
    random_features,
    read_extractor,
    read_own_extractor,
    train_on_labels,
    trainable,
)
from remuda.metrics.tensor_files import ROOM
from remuda.runs.identity import EXTRACTOR
from remuda.runs.portable import is_portable
from remuda.runs.store import RunFolder
from remuda.runs.threads import threads

_log = logging.getLogger(__name__)


def find_extractor(config: Config, dataset: Dataset, say: Say | None = None) -> AnyExtractor | None:
    """The extractor for a run that has none yet; None if it is to have none, or modes are known."""
    settings = config.score
    if settings.extractor_file is not None:
        return _of_file(settings.extractor_file, dataset)
    shipped = extractor_for(settings, config.data.source, dataset.shape)
    if shipped is not None or settings.extractor == "none":
        return shipped
    if settings.extractor == "auto" and dataset.modes is not None:
        return None
    return make_extractor(settings.extractor, dataset, say)


def _of_file(path: Path, dataset: Dataset) -> Extractor:
    """The classifier in a file, which must know as many classes as the data have."""
    if not path.is_file():
        raise ConfigError(
            f"score.extractor={path}: no such file; allowed: {', '.join(EXTRACTORS)}, or a "
            "classifier that a script has trained (docs/scores.md)"
        )
    found = read_extractor(path)
    labels = 0 if dataset.labels is None else len(dataset.label_names)
    if found.shape != dataset.shape or found.classes != labels:
        raise ConfigError(
            f"score.extractor={path}: knows {found.classes} classes of {shape_text(found.shape)} "
            f"images, and {dataset.name} has {labels} of {shape_text(dataset.shape)}; allowed: "
            "auto, labels, random, none, or a classifier of these data"
        )
    return found


def make_extractor(name: str, dataset: Dataset, say: Say | None = None) -> OwnExtractor:
    """`labels`, `random`, or with `auto` the first of them that these data allow."""
    say = say or _log.info
    if name != "random":
        reason = trainable(len(dataset), dataset.labels)
        if name == "labels" and dataset.labels is None:
            raise ConfigError(
                f"score.extractor=labels: {dataset.name} has no labels; allowed: auto, random, none"
            )
        if not reason:
            found = _of_labels(dataset, say)
            if found.card.has_learnt:
                return found
            reason = (
                f"a classifier of its labels is right in {found.card.accuracy:.1%} of "
                f"{found.card.held_out:,} held-out items, and the largest class has "
                f"{found.card.largest:.1%}"
            )
        if dataset.labels is not None:
            say(f"{dataset.name} is scored by random features: {reason}")
    with threads(1):
        return random_features(dataset.items)


def _of_labels(dataset: Dataset, say: Say) -> OwnExtractor:
    """The classifier of these data: from the cache, or trained now and kept there."""
    # One that was trained with this machine's kernels has other weights.
    folder = cache_dir() / "extractors" / ("portable" if is_portable() else "")
    path = folder / f"labels-{RECIPE}-{dataset.fingerprint}.safetensors"
    try:
        return read_own_extractor(path, dataset.shape)
    except StoreError:
        pass  # there is none, or it is damaged
    assert dataset.labels is not None
    say(f"training an extractor on the labels of {dataset.name} (once; kept in {folder})")
    with threads(1):  # more would give other weights: they are to depend on the data alone
        found = train_on_labels(dataset.items, dataset.labels, len(dataset.label_names), say)
    try:
        write_atomically(path, found.encoded())
    except StoreError as error:
        # The disk is full, or not ours. That only costs time.
        _log.warning("the extractor is not kept for other runs: %s", error)
    return found


def recorded_extractor(folder: RunFolder, config: Config, dataset: Dataset) -> AnyExtractor | None:
    """The extractor that a run was started with.

    None for runs of earlier versions on data that had no extractor then: they go on unscored, so
    that they end as they would have ended.
    """
    wanted, from_file = (
        folder.env().attachments.get(EXTRACTOR),
        config.score.extractor_file is not None,
    )
    if wanted is None and not from_file:
        return extractor_for(config.score, config.data.source, dataset.shape)
    path = folder.path / EXTRACTOR
    if not path.is_file() or digest(read_stored(path, room=ROOM)) != wanted:
        raise StoreError(
            f"{path}: missing, or not the file that the run started with; allowed: that file, or a "
            "new run"
        )
    return _of_file(path, dataset) if from_file else read_own_extractor(path, dataset.shape)


def attachments(extractor: AnyExtractor | None) -> dict[str, bytes]:
    """What of an extractor goes into the run folder: the weights, unless they come with remuda."""
    if isinstance(extractor, OwnExtractor) or _is_from_file(extractor):
        return {EXTRACTOR: extractor.encoded()}
    return {}


def check_ranking(config: Config, extractor: AnyExtractor) -> None:
    """Refuse a metric of classes where the extractor knows none."""
    if not extractor.classes and not METRICS[config.score.metric].needs <= {Need.FEATURES}:
        raise ConfigError(
            f"score.metric={config.score.metric}: needs classes, and {extractor.name} knows none; "
            "allowed: fid, or data with labels that can be learnt"
        )


def is_for_these_labels(extractor: AnyExtractor) -> bool:
    """Whether its classes are the labels of the data that it was made for."""
    is_own = isinstance(extractor, OwnExtractor) and extractor.classes > 0
    return is_own or _is_from_file(extractor)


def _is_from_file(extractor: AnyExtractor | None) -> TypeGuard[Extractor]:
    return isinstance(extractor, Extractor) and not extractor.is_shipped
