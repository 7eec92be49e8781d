"""remuda from Python: train a configuration, load a result, or fit arrays the scikit-learn way."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from remuda.config import Config, load_config, suggest, validate
from remuda.data import dataset_from_array, selected
from remuda.data.places import cache_dir, data_dirs
from remuda.errors import ConfigError, RemudaError
from remuda.metrics import (
    INCEPTION,
    SHAPES,
    AnyExtractor,
    Coverage,
    InceptionExtractor,
    Progress,
    Scores,
    check_metrics,
    default_metrics,
    evaluate,
    evenly_spaced,
    extractor_for,
    load_inception,
)
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.observer import Observer
from remuda.runs.ensemble import Ensemble, load
from remuda.runs.outcome import Result
from remuda.runs.prepare import Run, with_data_dir
from remuda.runs.store import RunFolder, fresh_path

# Real images behind the scores of `score`, unless it is told otherwise.
REAL_SAMPLES = 60_000
SLOW_REAL_SAMPLES = 10_000

__all__ = ["Engine", "Ensemble", "PopulationGAN", "load", "resume", "score", "train"]


def train(
    source: str = "quickstart",
    *overrides: str,
    observer: Observer | None = None,
    engine: Engine = Engine(),  # noqa: B008 - frozen
) -> Result:
    """Train a preset or YAML file: `remuda.train("quickstart", "grid=3x3", "rounds=20")`.

    `engine=remuda.Engine("process")` trains on all cores; a script that asks for it must guard its
    entry with `if __name__ == "__main__":`, as with every use of multiprocessing.
    """
    return training.train(load_config(source, overrides), observer, engine=engine)


def resume(
    path: str | Path,
    observer: Observer | None = None,
    engine: Engine = Engine(),  # noqa: B008 - frozen
) -> Result | None:
    """Continue an interrupted run; None if there is nothing left to do."""
    return training.resume(Path(path), observer, engine=engine)


def score(
    path: str | Path,
    metrics: Sequence[str] = (),
    *,
    samples: int = 10_000,
    real: int | None = None,
    seed: int = 0,
    extractor: str | None = None,
    weights: Path | None = None,
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> Scores | Coverage:
    """Scores of a finished run, measured afresh against the data it was trained on.

    `extractor` is a classifier's name (`digits`, `cifar`), or `inception`, whose weights are those
    in the data folder or `weights`. At most `real` images of the data are looked at: by default
    60,000, and 10,000 by Inception, which needs a tenth of a second for each. Points with known
    modes are scored by how the samples cover them.
    """
    check_metrics(metrics)
    ensemble = load(path)
    config = with_data_dir(RunFolder.open(Path(path)).config(), data_dir)
    unscored = config.score.model_copy(update={"extractor": "none"})
    run = Run.prepare(config.model_copy(update={"score": unscored}))
    covered = run.score(ensemble, samples, seed) if extractor is None else None
    if covered is not None:
        return covered
    network = _extractor(extractor, config, ensemble.shape, weights)
    slow = isinstance(network, InceptionExtractor)
    # Against what the cells saw: of one label each, the others are not missing.
    seen = torch.unique(torch.cat(run.views))
    chosen = seen[evenly_spaced(len(seen), real or (SLOW_REAL_SAMPLES if slow else REAL_SAMPLES))]
    images, labels = ensemble.draw_labelled(samples, seed)
    return evaluate(
        network,
        images,
        run.dataset.items[chosen],
        metrics or default_metrics(network),
        seed=seed,
        cache=cache_dir() / "features" if slow else None,
        progress=progress,
        labels=labels if run.knows_labels(network) else None,
    )


def _extractor(
    name: str | None, config: Config, shape: tuple[int, ...], weights: Path | None
) -> AnyExtractor:
    if name in INCEPTION:
        return load_inception(name, weights, data_dirs(config.data))
    if weights is not None:
        raise ConfigError(f"--weights={weights}: only for --extractor=inception")
    if name is not None:
        allowed = (*SHAPES, *INCEPTION)
        if name not in SHAPES:
            hint = suggest(name, allowed) or ";"
            raise ConfigError(f"--extractor={name}: unknown{hint} allowed: {', '.join(allowed)}")
        config = config.model_copy(
            update={"score": config.score.model_copy(update={"extractor": name})}
        )
    found = extractor_for(config.score, config.data.source, shape)
    if found is None:
        raise ConfigError(
            f"score.extractor={config.score.extractor}: scores nothing of {config.data.source}; "
            "allowed: --extractor digits (28x28 grey images), cifar (32x32 colour images), or "
            "inception (any images)"
        )
    return found


class PopulationGAN:
    """A population of GANs with `fit` and `sample`; any setting by name, sections joined by `__`.

    >>> PopulationGAN(method="cellular", grid=(2, 2), training__learning_rate=1e-3).fit(X)
    """

    ensemble_: Ensemble
    scores_: Scores | Coverage | None
    run_dir_: Path

    def __init__(
        self,
        method: str = "cellular",
        grid: tuple[int, int] | str = (2, 2),
        rounds: int = 10,
        seed: int = 0,
        run_dir: str | Path | None = None,
        **settings: Any,
    ) -> None:
        self.method = method
        self.grid = grid
        self.rounds = rounds
        self.seed = seed
        self.run_dir = run_dir
        self.settings = settings

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Self:  # noqa: N803
        """Train on images (N,H,W), (N,C,H,W) or (N,H,W,C), or on points (N,D)."""
        items = np.asarray(X)
        labels = None if y is None else np.asarray(y)
        dataset = dataset_from_array(items, labels)
        given = self.run_dir
        path = fresh_path("population") if given is None else Path(given).expanduser()
        # The data lie in the run folder, so that `remuda resume` finds them again.
        data = (path / "data.npz").absolute()
        values: dict[str, Any] = {
            "name": "population",
            "rounds": self.rounds,
            "seed": self.seed,
            "method": {"name": self.method},
            "grid": {"shape": self.grid},
            "data": {"source": str(data)},
            "run": {"dir": str(path)},
        }
        for key, value in self.settings.items():
            section, _, name = key.partition("__")
            if name:
                values.setdefault(section, {})[name] = value
            elif isinstance(value, dict):
                values[section] = {**values.get(section, {}), **value}
            else:
                values[section] = value
        config = validate(values)
        if Path(config.run.dir or "") != path or Path(config.data.source) != data:
            raise ConfigError(
                "run.dir and data.source follow from fit; allowed: PopulationGAN(run_dir=...)"
            )
        archive = io.BytesIO()
        if labels is None:
            np.savez_compressed(archive, x=items)
        else:
            np.savez_compressed(archive, x=items, y=labels)
        result = training.train(
            config,
            dataset=selected(dataset, config.data),
            attachments={data.name: archive.getvalue()},
        )
        self.ensemble_ = result.ensemble
        self.scores_ = result.scores
        self.run_dir_ = result.path
        return self

    def sample(
        self, count: int, seed: int = 0, label: int | str | None = None
    ) -> npt.NDArray[np.float32]:
        """Samples of the fitted mixture: images as floats in [0, 1], NCHW; points as they came.

        `label` asks for one label, where the mixture knows labels.
        """
        if not hasattr(self, "ensemble_"):
            raise RemudaError("this PopulationGAN is not fitted yet; call fit(X) first")
        return self.ensemble_.sample(count, seed, label)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        named = ("method", "grid", "rounds", "seed", "run_dir")
        return {**{name: getattr(self, name) for name in named}, **self.settings}

    def set_params(self, **params: Any) -> Self:
        PopulationGAN.__init__(self, **{**self.get_params(), **params})
        return self

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"PopulationGAN({shown})"
