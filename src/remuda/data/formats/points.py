"""Points in the plane whose modes are known: R15, a grid of 25 Gaussians, a ring of eight.

R15 (Veenman et al., 2002) is read from `r15/R15.txt` or `R15.txt` in the data folders. Without the
file, points with the same geometry are drawn: a central cluster and two rings of seven.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from remuda.config import DataSettings
from remuda.data.dataset import Dataset, Modes
from remuda.data.formats.arrays import dataset_from_array, load_points
from remuda.data.formats.base import NamedSet
from remuda.data.places import WHERE_TO_PUT, data_dirs
from remuda.data.reading import reading
from remuda.errors import DataError
from remuda.streams import choice_stream

Array = npt.NDArray[np.float64]

_CENTRE, _INNER, _OUTER = 10.0, 2.05, 6.4  # of R15: both coordinates, and the rings' radii
_log = logging.getLogger(__name__)


def load_mog25(settings: DataSettings) -> Dataset:
    """A 5x5 grid of Gaussians, two apart."""
    ticks = np.arange(-4.0, 5.0, 2.0)
    centres = np.array([(x, y) for x in ticks for y in ticks])
    return _drawn("mog25", centres, spread=0.05, each=100, seed=settings.seed)


def load_ring8(settings: DataSettings) -> Dataset:
    """Eight Gaussians on a circle of radius two."""
    return _drawn("ring8", _ring(8, 2.0), spread=0.02, each=250, seed=settings.seed)


def load_r15(settings: DataSettings) -> Dataset:
    """R15 itself, or points drawn with its geometry where the file is missing."""
    path = _file(settings)
    if path is None:
        _log.warning(
            "R15.txt is not in %s (or its sub-folder r15): drawing points with the same geometry",
            WHERE_TO_PUT,
        )
        rings = np.concatenate(([[0.0, 0.0]], _ring(7, _INNER), _ring(7, _OUTER)))
        return _drawn("r15-drawn", _CENTRE + rings, spread=0.3, each=40, seed=settings.seed)
    dataset = load_points(path)
    labels = dataset.labels
    if labels is None or dataset.shape != (2,):
        raise DataError(f"{path}: not R15; expected lines of x, y and a label from 1 to 15")
    raw = dataset.scaling.to_raw(dataset.items[:].double())
    clusters = [raw[labels == label] for label in range(len(dataset.label_names))]
    centres = torch.stack([cluster.mean(0) for cluster in clusters])
    variance = torch.stack([cluster.var(0) for cluster in clusters]).mean()
    return dataset.replace(name="r15", modes=Modes(centres.float(), math.sqrt(float(variance))))


def _file(settings: DataSettings) -> Path | None:
    for base in data_dirs(settings):
        for path in (base / "r15" / "R15.txt", base / "R15.txt"):
            with reading(path):
                if path.is_file():
                    return path
    return None


def _ring(count: int, radius: float) -> Array:
    angles = 2 * np.pi * np.arange(count) / count
    return radius * np.column_stack((np.cos(angles), np.sin(angles)))


def _drawn(name: str, centres: Array, *, spread: float, each: int, seed: int) -> Dataset:
    rng = choice_stream(seed, 0, 0, f"points-{name}")
    labels = np.repeat(np.arange(len(centres)), each)
    points = centres[labels] + rng.normal(0.0, spread, (len(labels), 2))
    dataset = dataset_from_array(points, labels, name)
    return dataset.replace(modes=Modes(torch.from_numpy(centres).float(), spread))


R15 = NamedSet("r15", load_r15)
MOG25 = NamedSet("mog25", load_mog25)
RING8 = NamedSet("ring8", load_ring8)
