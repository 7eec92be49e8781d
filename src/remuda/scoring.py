"""Scores of a finished run, measured afresh against the data it was trained on."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from remuda.api import load
from remuda.data import load_dataset
from remuda.errors import ConfigError
from remuda.metrics import Judge, Scores, extractor_for, score_samples
from remuda.store import RunFolder


def score_run(path: Path, *, count: int, real: int, seed: int, data_dir: Path | None) -> Scores:
    """All scores of a run's ensemble: `count` samples against at most `real` real items."""
    ensemble = load(path)
    config = RunFolder.open(path).config()
    data = config.data
    if data_dir is not None:
        data = data.model_copy(update={"dir": str(data_dir)})
    with Console(stderr=True).status("scoring"):
        dataset = load_dataset(data)
        extractor = extractor_for(config.score, dataset.shape)
        if extractor is None:
            raise ConfigError(
                f"score.extractor={config.score.extractor}: no extractor for items of shape "
                f"{dataset.shape}; images of 1x28x28 can be scored"
            )
        judge = Judge(extractor, dataset.items[:real], config.score.metric)
        return score_samples(extractor, ensemble.draw(count, seed), judge.real)
