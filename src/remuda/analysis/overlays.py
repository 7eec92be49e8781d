"""Samples of runs laid over their data: t-SNE for images, the plane itself for 2-D points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remuda.analysis.figures import Panel, overlay, scatters
from remuda.data import Dataset, load_dataset
from remuda.errors import ConfigError, shape_text
from remuda.metrics import evenly_spaced, mode_coverage
from remuda.metrics.coverage import REACH
from remuda.runs.ensemble import Ensemble, load
from remuda.runs.population import short_names
from remuda.runs.prepare import with_data_dir
from remuda.runs.store import RunFolder

Array = npt.NDArray[np.float32]
# t-SNE of thousands of pixels looks at these many principal components, as is customary.
_COMPONENTS = 50


def picture(
    paths: Sequence[Path], *, count: int, seed: int = 0, data_dir: Path | None = None
) -> tuple[bytes, str]:
    """A PNG of the data and `count` samples of every run, and what it shows."""
    ensembles = [load(path) for path in paths]
    dataset = load_dataset(with_data_dir(RunFolder.open(paths[0]).config(), data_dir).data)
    for path, ensemble in zip(paths, ensembles, strict=True):
        if ensemble.shape != dataset.shape:
            raise ConfigError(
                f"{path}: its items are {shape_text(ensemble.shape)} and those of {paths[0]} "
                f"{shape_text(dataset.shape)}; allowed: runs on items of one shape"
            )
    made = dict(zip(short_names(list(paths)), ensembles, strict=True))
    if dataset.shape == (2,):
        return _plane(dataset, made, count, seed), "the points themselves, for they are 2-D"
    real = _raw(dataset)[evenly_spaced(len(dataset), count).numpy()]
    samples = {name: one.sample(count, seed) for name, one in made.items()}
    embedded = embed([real, *samples.values()], seed)
    title = f"t-SNE of {dataset.name} and of samples"
    named = dict(zip(samples, embedded[1:], strict=True))
    return overlay(embedded[0], named, title), f"t-SNE of {count} samples each"


def embed(sets: Sequence[Array], seed: int) -> list[npt.NDArray[np.float64]]:
    """All sets in one plane, near where they are alike."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    flat = np.concatenate([one.reshape(len(one), -1) for one in sets])
    parts = min(_COMPONENTS, *flat.shape)
    reduced = PCA(parts, random_state=seed % 2**32).fit_transform(flat)
    perplexity = min(30.0, (len(flat) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed % 2**32)
    places = tsne.fit_transform(reduced)
    return np.split(places.astype(np.float64), np.cumsum([len(one) for one in sets])[:-1])


def _plane(dataset: Dataset, made: Mapping[str, Ensemble], count: int, seed: int) -> bytes:
    known = dataset.modes
    panels = [Panel(f"{dataset.name}, {len(dataset)} points", _raw(dataset))]
    for name, ensemble in made.items():
        points, note = ensemble.sample(count, seed), ""
        if known is not None:
            drawn = ensemble.rescale(ensemble.draw(count, seed))
            found = mode_coverage(drawn, known.centres, known.spread)
            note = (
                f"{found.covered} of {found.modes} modes covered, {found.quality:.0%} high quality"
            )
        panels.append(Panel(name, points, note))
    if known is None:
        return scatters(panels, None, 0.0)
    return scatters(panels, known.centres.numpy(), REACH * known.spread)


def _raw(dataset: Dataset) -> Array:
    """Items in their own units, as `Ensemble.sample` gives them."""
    return dataset.scaling.to_raw(dataset.items).numpy()
