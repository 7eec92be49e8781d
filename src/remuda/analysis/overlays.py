"""Samples of runs laid over their data: t-SNE for images, the plane itself for 2-D points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from remuda.analysis.extras import require
from remuda.analysis.figures import Panel, overlay, scatters
from remuda.analysis.naming import short_names
from remuda.errors import ConfigError, shape_text
from remuda.metrics import mode_coverage, some_of
from remuda.metrics.coverage import REACH
from remuda.runs.ensemble import Ensemble
from remuda.runs.loading import load
from remuda.runs.population import run_data

Array = npt.NDArray[np.float32]
# Of images, t-SNE sees this many principal components of the pixels, as is customary.
_COMPONENTS = 50


def picture(
    paths: Sequence[Path], *, count: int, seed: int = 0, data_dir: Path | None = None
) -> tuple[bytes, str]:
    """A PNG of the data and `count` samples of every run, and what it shows."""
    ensembles = [load(path) for path in paths]
    dataset, _ = run_data(paths[0], data_dir)
    for path, ensemble in zip(paths, ensembles, strict=True):
        if ensemble.shape != dataset.shape:
            raise ConfigError(
                f"{path}: its items are {shape_text(ensemble.shape)} and those of {paths[0]} "
                f"{shape_text(dataset.shape)}; allowed: runs on items of one shape"
            )
    named = dict(zip(short_names(list(paths)), ensembles, strict=True))
    if dataset.shape == (2,):
        modes = None if dataset.modes is None else (dataset.modes.centres, dataset.modes.spread)
        points = dataset.scaling.to_raw(dataset.items[:]).numpy()
        first = Panel(f"{dataset.name}, {len(dataset)} points", points)
        return _plane(first, modes, named, count, seed), "the points themselves, as they are 2-D"
    samples = {name: one.sample(count, seed) for name, one in named.items()}
    items = dataset.items[some_of(len(dataset), count)]
    chosen: Array = dataset.scaling.to_raw(items).numpy()
    data, *embedded = embed([chosen, *samples.values()], seed)
    title = f"t-SNE of {dataset.name} and of samples"
    places = dict(zip(samples, embedded, strict=True))
    return overlay(data, places, title), f"t-SNE of {count} samples each"


def embed(sets: Sequence[Array], seed: int) -> list[npt.NDArray[np.float64]]:
    """All sets in one plane, near where they are alike."""
    require("sklearn", "t-SNE plots", "scikit-learn")
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    flat = np.concatenate([one.reshape(len(one), -1) for one in sets])
    parts = min(_COMPONENTS, *flat.shape)
    reduced = PCA(parts, random_state=seed % 2**32).fit_transform(flat)
    perplexity = min(30.0, (len(flat) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed % 2**32)
    places = tsne.fit_transform(reduced)
    return np.split(places.astype(np.float64), np.cumsum([len(one) for one in sets])[:-1])


def _plane(
    data: Panel,
    modes: tuple[Tensor, float] | None,
    ensembles: Mapping[str, Ensemble],
    count: int,
    seed: int,
) -> bytes:
    """The data and every run's samples side by side; `modes` are their centres and spread."""
    panels = [data]
    for name, ensemble in ensembles.items():
        note = ""
        if modes is not None:
            found = mode_coverage(ensemble.rescale(ensemble.draw(count, seed)), *modes)
            note = (
                f"{found.covered} of {found.modes} modes covered, {found.quality:.0%} high quality"
            )
        panels.append(Panel(name, ensemble.sample(count, seed), note))
    if modes is None:
        return scatters(panels, None, 0.0)
    centres, spread = modes
    return scatters(panels, centres.numpy(), REACH * spread)
