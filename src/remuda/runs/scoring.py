"""How a run is scored: the one path behind its result, `remuda score` and the Python API.

All of them compare with the same real images: all that the cells see, up to REAL_IMAGES, of which
the live score takes up to LIVE_REAL_IMAGES. Samples and seed are the run's own unless asked
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remuda.config import Config, suggest
from remuda.data.places import cache_dir, data_dirs
from remuda.errors import ConfigError
from remuda.metrics import (
    INCEPTION,
    LIVE_REAL_IMAGES,
    SHAPES,
    AnyExtractor,
    InceptionExtractor,
    Progress,
    Reference,
    Scores,
    check_metrics,
    evaluate,
    evaluate_points,
    extractor_for,
    load_inception,
    reference_indices,
)
from remuda.runs.ensemble import Ensemble, load
from remuda.runs.prepare import Run, with_data_dir
from remuda.runs.store import RunFolder

__all__ = ["Progress", "Scores", "score_ensemble", "score_run"]

# All of MNIST or CIFAR-10. A part of a data set may differ from the whole: MNIST alternates between
# two sources, and its test images have FID 0.6 against all of it but 5 against every sixth image.
REAL_IMAGES = 60_000
SLOW_REAL_IMAGES = 10_000  # for Inception, which needs a tenth of a second for each


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

    The extractor is that of the live score unless another is given. Points without an extractor
    are scored by their known modes.
    """
    samples = run.config.score.final_samples if samples is None else samples
    seed = run.config.seed if seed is None else seed
    if extractor is None and run.scorer is not None:
        extractor = run.scorer.extractor
    if extractor is not None:
        reference = _reference(run, extractor, real)
        images, labels = ensemble.draw_labelled(samples, seed)
        known = labels if _knows_labels(run, extractor) else None
        return evaluate(images, reference, metrics, labels=known, seed=seed, progress=progress)
    modes = run.dataset.modes
    if modes is None:
        return None
    points = ensemble.rescale(ensemble.draw(samples, seed))
    return evaluate_points(points, modes.centres, modes.spread, metrics)


def score_run(
    path: Path,
    metrics: Sequence[str] = (),
    *,
    samples: int | None = None,
    seed: int | None = None,
    real: int | None = None,
    extractor: str | None = None,
    weights: Path | None = None,
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Scores of a finished run, measured again; by default exactly as the run did at its end."""
    check_metrics(metrics)
    ensemble = load(path)
    config = with_data_dir(RunFolder.open(path).config(), data_dir)
    # The scorer would look at all the real images before anyone can be told how long it takes.
    unscored = config.score.model_copy(update={"extractor": "none"})
    run = Run.prepare(config.model_copy(update={"score": unscored}))
    chosen = None
    if extractor is not None or weights is not None or run.dataset.modes is None:
        chosen = _choose_extractor(extractor, config, ensemble.shape, weights)
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
    default = SLOW_REAL_IMAGES if slow else REAL_IMAGES
    chosen, seen = reference_indices(run.views, most or default)
    about = f"{len(chosen):,} of {seen:,} training images"
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


def _knows_labels(run: Run, extractor: AnyExtractor) -> bool:
    """Whether the classes of an extractor are the labels of the data."""
    automatic = run.config.score.model_copy(update={"extractor": "auto"})
    return extractor_for(automatic, run.config.data.source, run.dataset.shape) is extractor


def _choose_extractor(
    name: str | None, config: Config, shape: tuple[int, ...], weights: Path | None
) -> AnyExtractor:
    if name in INCEPTION:
        return load_inception(name, weights, data_dirs(config.data))
    if weights is not None:
        raise ConfigError(f"--weights={weights}: only for --extractor=inception")
    settings = config.score
    if name is not None:
        allowed = (*SHAPES, *INCEPTION)
        if name not in SHAPES:
            hint = suggest(name, allowed) or ";"
            raise ConfigError(f"--extractor={name}: unknown{hint} allowed: {', '.join(allowed)}")
        settings = settings.model_copy(update={"extractor": name})
    found = extractor_for(settings, config.data.source, shape)
    if found is None:
        raise ConfigError(
            f"score.extractor={settings.extractor}: no extractor fits {config.data.source}; "
            "allowed: --extractor digits (28x28 grey images), cifar (32x32 colour images), or "
            "inception (any images)"
        )
    return found
