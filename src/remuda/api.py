"""remuda from Python: train a configuration, load a result, or fit arrays the scikit-learn way."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from remuda.config import load_config, validate
from remuda.data import dataset_from_array, selected
from remuda.errors import ConfigError, RemudaError
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import Timeouts
from remuda.runs.ensemble import Ensemble
from remuda.runs.loading import load
from remuda.runs.outcome import Result
from remuda.runs.scoring import Progress, Scores, score_run
from remuda.runs.store import fresh_path

__all__ = ["Engine", "Ensemble", "PopulationGAN", "Timeouts", "load", "resume", "score", "train"]


def train(
    source: str = "quickstart",
    *overrides: str,
    observer: Observer | None = None,
    engine: Engine = Engine(),  # noqa: B008 - frozen
) -> Result:
    """Train a preset or YAML file: `remuda.train("quickstart", "grid=3x3", "rounds=20")`.

    `engine=remuda.Engine("process")` trains on all cores; a script that asks for it must guard its
    entry with `if __name__ == "__main__":`, as with every use of multiprocessing.
    `remuda.Engine("process", timeouts=remuda.Timeouts(stuck=600))` also gives the cells of a worker
    whose trainer has not moved for ten minutes to another one.
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
    samples: int | None = None,
    real: int | None = None,
    reference: str | None = None,
    seed: int | None = None,
    extractor: str | None = None,
    weights: Path | None = None,
    data_dir: Path | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Scores:
    """Scores of a finished run, measured again; by default exactly as the run did at its end.

    `samples` (default: the run's `score.final_samples`) drawn by `seed` (the run's) are compared
    with at most `real` of the images that the cells saw (60,000, or 10,000 by Inception);
    `reference="test"` compares with those that no cell saw, `"train"` with those that cells saw
    (default: the run's `data.reference`).
    `extractor` is the name of one: `labels` and `random` are made for the data, `digits` and
    `cifar` come with remuda, and the weights of `inception` are those in the data folder or
    `weights`; a path is that of a classifier's .safetensors file. Points with known modes are
    scored by how the samples cover them. `say` hears of an extractor that must be trained first.
    """
    return score_run(
        Path(path),
        metrics,
        samples=samples,
        seed=seed,
        real=real,
        reference=reference,
        extractor=extractor,
        weights=weights,
        data_dir=data_dir,
        progress=progress,
        say=say,
    )


class PopulationGAN:
    """A population of GANs with `fit` and `sample`; any setting by name, sections joined by `__`.

    >>> PopulationGAN(method="cellular", grid=(2, 2), training__learning_rate=1e-3).fit(X)
    """

    ensemble_: Ensemble
    scores_: Scores | None
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
