"""How a run is scored: the one path behind its result, `remuda score` and the Python API.

All of them compare with the same real images: all that the cells see, up to REAL_IMAGES, of which
the live score takes up to LIVE_REAL_IMAGES, or with `data.reference=test` those that no cell sees.
Samples and seed are the run's own unless asked otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from remuda.config import CLASSIFIER_FILE, Config, ScoreSettings, suggest
from remuda.data import NAMED, Dataset, has_unseen, load_unseen
from remuda.data.places import cache_dir, data_dirs
from remuda.errors import ConfigError, DataError
from remuda.metrics import (
    INCEPTION,
    LIVE_REAL_IMAGES,
    METRICS,
    OWN,
    SHAPES,
    AnyExtractor,
    InceptionExtractor,
    Items,
    Material,
    Need,
    Progress,
    Reference,
    Say,
    Scores,
    check_metrics,
    evaluate,
    evaluate_items,
    evaluate_points,
    extractor_for,
    load_inception,
    reference_indices,
    some_of,
)
from remuda.runs.ensemble import Ensemble
from remuda.runs.extractors import find_extractor, is_for_these_labels, recorded_extractor
from remuda.runs.loading import load
from remuda.runs.prepare import Run, with_data_dir
from remuda.runs.store import RunFolder
from remuda.runs.threads import threads
from remuda.streams import stream_key

__all__ = ["Progress", "Scores", "check_reference", "measurable", "score_ensemble", "score_run"]

# All of MNIST or CIFAR-10. A part of a data set may differ from the whole: MNIST alternates between
# two sources, and its test images have FID 0.6 against all of it but 5 against every sixth image.
REAL_IMAGES = 60_000
SLOW_REAL_IMAGES = 10_000  # for Inception, which needs a tenth of a second for each
_ALLOWED = ", ".join([*OWN, *SHAPES, *INCEPTION, f"or a {CLASSIFIER_FILE} file"])


def score_ensemble(
    run: Run,
    ensemble: Ensemble,
    metrics: Sequence[str] = (),
    *,
    samples: int | None = None,
    seed: int | None = None,
    real: int | None = None,
    extractor: AnyExtractor | None = None,
    progress: Progress | None = None,
) -> Scores | None:
    """Scores of samples of an ensemble against the data of a run; None where nothing fits them.

    The extractor is that of the run unless another is given. Points without an extractor are scored
    by their known modes. Metrics of single items need neither.
    """
    check_metrics(metrics)
    _check_reference(run.config)
    samples = run.config.score.final_samples if samples is None else samples
    seed = run.config.seed if seed is None else seed
    extractor = run.extractor if extractor is None else extractor
    modes, only_items = run.dataset.modes, _only_items(metrics)
    if extractor is None and modes is None and not only_items:
        return None
    drawn, labels = ensemble.draw_labelled(samples, seed)
    known = extractor if extractor is not None and _knows_labels(run, extractor) else None
    material = _material(run, ensemble, (drawn, labels), known, seed, progress)
    missing = {need for name in metrics for need in METRICS[name].needs} - material.available
    # Where something is missing, those below know best what else can be measured here.
    if only_items and not (missing and (extractor or modes)):
        return evaluate_items(material, metrics)
    if extractor is not None:
        reference = _reference(run, extractor, real)
        return evaluate(
            *(drawn, reference, metrics),
            labels=None if known is None else labels,
            material=material,
            seed=seed,
            progress=progress,
        )
    assert modes is not None
    points = ensemble.rescale(drawn)
    return evaluate_points(points, modes.centres, modes.spread, metrics, material=material)


def measurable(run: Run) -> set[Need]:
    """What metrics will find to look at once a run is finished."""
    extractor, dataset = run.extractor, run.dataset
    knows = extractor is not None and _knows_labels(run, extractor)
    labelled = run.labels is not None
    found = {
        Need.FEATURES: extractor is not None,
        Need.LOGITS: extractor is not None and extractor.classes > 0,
        Need.LABELS: knows and labelled,
        Need.MODES: extractor is None and dataset.modes is not None,
        Need.UNSEEN: has_unseen(run.config.data),
        Need.CLASSES: dataset.labels is not None and (labelled or knows),
    }
    return {need for need, there in found.items() if there}


def score_run(
    path: Path,
    metrics: Sequence[str] = (),
    *,
    samples: int | None = None,
    seed: int | None = None,
    real: int | None = None,
    reference: str | None = None,
    extractor: str | None = None,
    weights: Path | None = None,
    data_dir: Path | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Scores:
    """Scores of a finished run, measured again; by default exactly as the run did at its end."""
    check_metrics(metrics)
    ensemble = load(path)
    folder = RunFolder.open(path)
    config = _comparing_with(reference, with_data_dir(folder.config(), data_dir))
    _check_reference(config)
    # The scorer would look at all the real images before anyone can be told how long it takes.
    unscored = config.score.model_copy(update={"extractor": "none"})
    run = Run.prepare(config.model_copy(update={"score": unscored}), trains=False)
    with threads(config.threads):
        chosen = _choose_extractor(extractor, folder, config, run.dataset, weights, say)
    if chosen is None and run.dataset.modes is None and not _only_items(metrics):
        raise ConfigError(
            f"score.extractor={config.score.extractor}: the run is unscored; allowed: --extractor "
            f"{_ALLOWED}"
        )
    # As the run itself did, to the last digit; Inception takes minutes and all threads there are.
    slow = isinstance(chosen, InceptionExtractor)
    with threads(torch.get_num_threads() if slow else config.threads):
        found = score_ensemble(
            run,
            ensemble,
            metrics,
            samples=samples,
            seed=seed,
            real=real,
            extractor=chosen,
            progress=progress,
        )
    assert found is not None  # there is an extractor, or modes are known
    return found


def _reference(run: Run, extractor: AnyExtractor, most: int | None) -> Reference:
    """The real images that samples are compared with, and in words which they are."""
    slow = isinstance(extractor, InceptionExtractor)
    most = most or (SLOW_REAL_IMAGES if slow else REAL_IMAGES)
    if run.config.data.reference == "test":
        return _unseen_reference(run, extractor, most, slow=slow)
    chosen, seen = reference_indices(run.reference_views, most)
    about = f"{len(chosen):,} of {seen:,} training {run.unit}"
    if seen < len(run.dataset):
        about += " that the cells see"
    live = run.scorer
    is_live = live is not None and live.extractor is extractor and live.real.count == len(chosen)
    # A classifier sees 10,000 images in a second, but would look at all of MNIST after every run.
    # Shares that cells see differ from seed to seed: keeping each would fill the cache.
    worth_keeping = slow or (len(chosen) > LIVE_REAL_IMAGES and seen == len(run.dataset))
    return Reference(
        extractor,
        run.dataset.items,
        chosen=chosen,
        about=about,
        statistics=live.real if live is not None and is_live else None,
        cache=cache_dir() / "features" if worth_keeping else None,
    )


def _unseen_reference(run: Run, extractor: AnyExtractor, most: int, *, slow: bool) -> Reference:
    """The same of the items that no cell sees."""
    unseen = _unseen(run)
    chosen = some_of(len(unseen.items), most)
    some = len(chosen) < len(unseen.items)
    return Reference(
        extractor,
        unseen.items,
        chosen=chosen,
        about=f"{len(chosen):,} of {unseen.about}" if some else unseen.about,
        cache=cache_dir() / "features" if slow or len(chosen) > LIVE_REAL_IMAGES else None,
    )


def check_reference(run: Run) -> None:
    """Before a run starts: the items that its result will be compared with are there."""
    _check_reference(run.config)
    if run.config.data.reference == "test":
        _unseen(run)


def _check_reference(config: Config) -> None:
    data = config.data
    if data.reference == "test" and not has_unseen(data):
        named = ", ".join(known.name for known in NAMED.values() if known.has_test_split)
        source = f"{data.source} with data.split={data.split}"
        raise ConfigError(
            f"data.reference=test: there are no items of {source} that no cell sees; allowed: "
            f"train, a data.validation above 0, or the training split of {named}"
        )


def _comparing_with(reference: str | None, config: Config) -> Config:
    allowed = ("train", "test")
    if reference is None:
        return config
    if reference not in allowed:
        hint = suggest(reference, allowed) or ";"
        raise ConfigError(f"--reference={reference}: unknown{hint} allowed: {', '.join(allowed)}")
    data = config.data.model_copy(update={"reference": reference})
    return config.model_copy(update={"data": data})


def _only_items(metrics: Sequence[str]) -> bool:
    """Whether nothing is asked for that compares features or modes."""
    return bool(metrics) and all(METRICS[name].from_items is not None for name in metrics)


# ---------------------------------------------------------------------------- single items


def _material(
    run: Run,
    ensemble: Ensemble,
    samples: tuple[Tensor, Tensor | None],
    extractor: AnyExtractor | None,
    seed: int,
    progress: Progress | None,
) -> Material:
    """What metrics of single items look at; an extractor that knows the labels may give them."""

    def labelled(number: int, count: int) -> tuple[Tensor, Tensor]:
        key = stream_key(seed, 0, number, "more-samples")
        items, labels = ensemble.draw_labelled(count, key) if number else samples
        if labels is None:
            assert extractor is not None
            labels = extractor(items).logits.argmax(1)
        return items, labels

    as_made = samples[1] is not None
    known = run.dataset.labels is not None and (as_made or extractor is not None)
    by = extractor.name if extractor is not None else ""
    return Material(
        samples[0],
        lambda: _training(run),
        (lambda: _unseen(run)) if has_unseen(run.config.data) else None,
        labelled if known else None,
        "with the labels they were generated for" if as_made else f"labelled by {by}",
        run.dataset.label_names,
        seed,
        progress,
    )


def _training(run: Run) -> Items:
    """The items that the cells see."""
    dataset, seen = run.dataset, _seen(run)
    what = f"training {run.unit}"
    if bool(seen.all()):
        return Items(dataset.items, dataset.labels, what)
    labels = None if dataset.labels is None else dataset.labels[seen]
    return Items(dataset.items.take(seen), labels, f"{what} that the cells see")


def _unseen(run: Run) -> Items:
    """The items that no cell sees, but none of labels that no cell sees either."""
    found, called = load_unseen(run.config.data, run.dataset)
    what, own = f"{called} {run.unit}", run.dataset.labels
    # The first images of a file may be unlike the rest, from which items were held out.
    cut = run.dataset.is_images and run.config.data.limit is not None
    alike = called == "held-out" and not cut
    if found.labels is None or own is None:
        return Items(found.items, found.labels, what, alike)
    like_seen = torch.isin(found.labels, torch.unique(own[_seen(run)]))
    if bool(like_seen.all()):
        return Items(found.items, found.labels, what, alike)
    if not bool(like_seen.any()):
        raise DataError(f"{found.name}: none of its {what} has a label that the cells see")
    what = f"{what} of the labels that the cells see"
    return Items(found.items.take(like_seen), found.labels[like_seen], what, alike)


def _seen(run: Run) -> Tensor:
    """For each item whether any cell sees it."""
    seen = torch.zeros(len(run.dataset), dtype=torch.bool)
    last = None
    for view in run.views:
        if view is not last:  # cells may share one tensor
            seen[view] = True
        last = view
    return seen


# ---------------------------------------------------------------------------- extractors


def _knows_labels(run: Run, extractor: AnyExtractor) -> bool:
    """Whether the classes of an extractor are the labels of the data."""
    if is_for_these_labels(extractor):
        return True
    automatic = run.config.score.model_copy(update={"extractor": "auto"})
    return extractor_for(automatic, run.config.data.source, run.dataset.shape) is extractor


def _choose_extractor(
    name: str | None,
    folder: RunFolder,
    config: Config,
    dataset: Dataset,
    weights: Path | None,
    say: Say | None,
) -> AnyExtractor | None:
    """The extractor of that name, or the run's own; None if it has none."""
    if name in INCEPTION:
        return load_inception(name, weights, data_dirs(config.data))
    if weights is not None:
        raise ConfigError(f"--weights={weights}: only for --extractor=inception")
    if name is not None and name not in (*OWN, *SHAPES) and not name.endswith(CLASSIFIER_FILE):
        hint = suggest(name, (*OWN, *SHAPES, *INCEPTION)) or ";"
        raise ConfigError(f"--extractor={name}: unknown{hint} allowed: {_ALLOWED}")
    if name is None or name in OWN:
        own = recorded_extractor(folder, config, dataset)
        # By name too, for a run is scored by the weights that it was trained with.
        if own is not None and (name is None or own.name.split()[0] == name):
            return own
    wanted = config.score if name is None else ScoreSettings.model_validate({"extractor": name})
    asked = config.model_copy(update={"score": wanted})
    return find_extractor(asked, dataset, say)
