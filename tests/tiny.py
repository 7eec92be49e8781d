"""Populations small enough to train hundreds of in a minute, without a run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from remuda.clock import Clock
from remuda.config import Config, validate
from remuda.data import Dataset, dataset_from_array
from remuda.gan.cell import Cell
from remuda.gan.learner import Gan, Learner
from remuda.gan.parcels import Parcel
from remuda.methods import METHODS, RoundReport, build_method, resolved
from remuda.metrics import Extractor, Features, Scorer
from remuda.parallel.exchange import MemoryExchange

MLP: dict[str, Any] = {"family": "mlp", "latent": 4, "hidden": [8]}
DCGAN: dict[str, Any] = {"family": "dcgan", "latent": 4, "width": 2}


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tiny_dataset(count: int = 24, side: int = 8, labels: bool = False, seed: int = 0) -> Dataset:
    """Random grey images in [-1, 1]; with labels, 0 and 1 by turns."""
    pixels = np.random.default_rng(seed).uniform(-1, 1, (count, side, side)).astype(np.float32)
    return dataset_from_array(pixels, np.arange(count) % 2 if labels else None)


def labelled(dataset: Dataset, classes: int = 4) -> Dataset:
    """The same items with labels by turns: as many as a 2x2 grid has cells."""
    labels = torch.arange(len(dataset)) % classes
    return replace(dataset, labels=labels, label_names=tuple(map(str, range(classes))))


def tiny_config(**changes: Any) -> Config:
    """A 2x2 cellular run of tiny networks; `changes` are merged into its sections."""
    values: dict[str, Any] = {
        "seed": 3,
        "rounds": 3,
        "network": MLP,
        "training": {"batch_size": 6, "learning_rate": 0.01},
        "grid": {"shape": "2x2"},
        "method": {"name": "cellular"},
        "score": {"samples": 12, "final_samples": 20},
    }
    for key, value in changes.items():
        replaced = not isinstance(value, Mapping) or {"family", "name"} & value.keys()
        values[key] = value if replaced else {**values.get(key, {}), **value}
    return validate(values)


class PixelExtractor(Extractor):
    """Stands in for a trained classifier: fixed random projections of the pixels."""

    def __init__(self, pixels: int) -> None:
        self.name = self.identity = "pixels"
        self.scaling = "[-1, 1]"
        self.classes = 3
        rng = torch.Generator().manual_seed(1)
        self.for_features = torch.randn(pixels, 4, generator=rng)
        self.for_logits = torch.randn(pixels, 3, generator=rng)

    def __call__(self, images: Tensor) -> Features:
        flat = images.flatten(1)
        return Features(flat @ self.for_features, flat @ self.for_logits)


def pixel_scorer(dataset: Dataset, metric: str = "fid") -> Scorer:
    return Scorer(PixelExtractor(dataset.items[0].numel()), dataset.items[:], metric)


class Letters:
    """An exchange with a single term, for tests that lose no worker."""

    def __init__(self) -> None:
        self._exchange = MemoryExchange()

    def publish(self, parcel: Parcel) -> None:
        self._exchange.put(1, parcel)

    def collect(self, cells: Sequence[int], round: int) -> list[Parcel]:
        return self._exchange.get(1, cells, round)

    def forget(self, round: int) -> None:
        self._exchange.forget(1, round)


class Population:
    """All cells of a run with their method; plays rounds the way the runtime does."""

    def __init__(
        self, config: Config, dataset: Dataset | None = None, scorer: Scorer | None = None
    ) -> None:
        self.dataset = dataset or tiny_dataset()
        if METHODS[config.method.name].labelled and self.dataset.labels is None:
            self.dataset = labelled(self.dataset)
        self.config = config = resolved(config, self.dataset)
        self.method = build_method(config)
        self.comm = Letters()
        self.round = 0
        self.cells = [
            self.method.cell(index, self.dataset, self.method.view(self.dataset, index), scorer)
            for index in range(config.cells)
        ]
        for cell in self.cells:
            self.comm.publish(cell.parcel())

    def play(self) -> list[RoundReport]:
        """One round of every cell."""
        self.round += 1
        reports = []
        for cell in self.cells:
            cell.round = self.round
            peers = self.method.peers(cell.index, self.round)
            parcels = self.comm.collect(peers, self.round - 1)
            reports.append(self.method.advance(cell, parcels, Clock()))
            self.comm.publish(cell.parcel())
        return reports

    def parcels(self) -> dict[int, Parcel]:
        """What the cells published last."""
        return dict(enumerate(self.comm.collect(range(self.config.cells), self.round)))


def tiny_cell(config: Config | None = None, dataset: Dataset | None = None, index: int = 0) -> Cell:
    """One cell that is about to train its first round."""
    config = config or tiny_config()
    dataset = dataset or tiny_dataset()
    method = build_method(config)
    cell = method.cell(index, dataset, method.view(dataset, index), None)
    cell.round = 1
    return cell


def take_step(learner: Learner, loss: Tensor) -> None:
    """One step of descent on a loss."""
    learner.descend(torch.autograd.grad(loss, learner.optimiser.parameters))


def gan_tensors(gan: Gan) -> dict[str, Tensor]:
    """Copies of all weights, buffers and Adam moments of both networks."""
    return {
        f"{role}.{name}": value.detach().clone()
        for role, one in (("generator", gan.generator), ("discriminator", gan.discriminator))
        for name, value in one.tensors().items()
    }


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Bit for bit, names included."""
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)
