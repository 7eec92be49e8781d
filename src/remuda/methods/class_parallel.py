"""One GAN per label, trained side by side: p(x) = Σ p(x | y) p(y).

DC-CGAN distributed over its labels, and W-CGAN, which is the same with the Wasserstein objective. A
cell sees the images of one label only and talks to no other; to sample, draw a label from p(y) and
ask that label's generator. Cells are laid out in rows of one per label; with more than one row, the
replicas of a label may exchange by another method, and the best of each label is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from remuda.clock import Clock
from remuda.config import ClassParallelSettings, Config
from remuda.config.geometry import GridSchedule
from remuda.data import Dataset
from remuda.errors import ConfigError, DataError
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel, parcel_assessment
from remuda.methods.base import METHODS, Details, Match, Method, Mixture
from remuda.methods.independent import Independent
from remuda.methods.state import CellState, Label, read_state
from remuda.metrics import METRICS, Scorer, some_of

# Real images of one label that its samples are compared with.
REAL_SAMPLES = 2000


class ClassParallel(Method):
    """Cell k trains on label k alone."""

    settings: ClassParallelSettings

    labelled = True
    shrinks_batches = True

    def __init__(self, config: Config, grid: GridSchedule) -> None:
        super().__init__(config, grid)
        self._labels = config.cells // self.settings.replicas
        self._within = _within(config, self.settings, self._labels)
        self.exact_peers = self._within.exact_peers
        self.reads = self._within.reads
        self.state = self._within.state
        self.needs_scores = self._within.needs_scores and "method.within.exchange"
        self._scorers: dict[int, Scorer] = {}

    @classmethod
    def resolve(cls, config: Config, dataset: Dataset) -> Config:
        """The grid follows from the data: one column per label, one row per replica."""
        assert isinstance(config.method, ClassParallelSettings)
        if dataset.labels is None:
            raise DataError(
                f"{dataset.name}: has no labels, and method=class_parallel trains one GAN per "
                "label; allowed: data with labels, or method=independent"
            )
        counts = torch.bincount(dataset.labels, minlength=len(dataset.label_names)).tolist()
        for name, count in zip(dataset.label_names, counts, strict=True):
            if count < 2:
                raise DataError(
                    f"{dataset.name}: label {name} has {count or 'no'} "
                    f"image{'' if count else 's'}, and its GAN needs two at least; "
                    "allowed: data without that label, or more of it"
                )
        given = config.method.prior
        if given is not None and len(given) != len(counts):
            raise ConfigError(
                f"method.prior has {len(given)} shares and {dataset.name} {len(counts)} labels; "
                f"allowed: {len(counts)} shares, or null for those of the data"
            )
        shape = (config.method.replicas, len(counts))
        grid = config.grid.model_copy(update={"shape": shape})
        return config.model_copy(update={"grid": grid})

    def equip(self, cell: Cell) -> None:
        self._within.equip(cell)

    def check(self, shape: tuple[int, ...]) -> None:
        super().check(shape)
        if self.settings.within is None:
            return
        for cell in range(self._labels, self.config.cells):
            own, other = (self.config.network_of(one) for one in (cell % self._labels, cell))
            if own != other:
                raise ConfigError(
                    f"members: the networks of cells {cell % self._labels} and {cell}, replicas of "
                    f"one label, differ, and method.within={self.settings.within.name} exchanges "
                    "them; allowed: equal ones, or method.within=null"
                )

    def label_shares(self, dataset: Dataset) -> list[float]:
        given = self.settings.prior
        return list(given) if given is not None else super().label_shares(dataset)

    def label(self, cell: int) -> int:
        """The label whose images a cell sees."""
        return cell % self._labels

    def view(self, dataset: Dataset, cell: int) -> Tensor:
        assert dataset.labels is not None
        return torch.nonzero(dataset.labels == self.label(cell)).flatten()

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        return self._within.peers(cell, round)

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        assert isinstance(cell.state, CellState)
        cell.state.label = Label(self.label(cell.index), len(cell.view))
        if cell.scorer is not None:
            cell.scorer = self._scorer(cell, cell.state.label.index)
        return self._within.adapt(cell, parcels, clock)

    def settle(self, cell: Cell, match: Match, *, diverged: bool, clock: Clock) -> Details:
        name = cell.dataset.label_names[self.label(cell.index)]
        found = self._within.settle(cell, match, diverged=diverged, clock=clock)
        return {"label": name, **found}

    def weigh(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Details:
        return self._within.weigh(cell, parcels, clock)

    def _scorer(self, cell: Cell, label: int) -> Scorer:
        """Compares with the real images of one label."""
        if label not in self._scorers:
            assert cell.scorer is not None
            chosen = cell.view[some_of(len(cell.view), REAL_SAMPLES)]
            items = cell.dataset.items[chosen]
            self._scorers[label] = Scorer(
                cell.scorer.extractor, items, _within_a_label(cell.scorer)
            )
        return self._scorers[label]

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        """The best replica of every label, or all where nothing scores them, in shares p(y)."""
        assessed = {cell: parcel_assessment(parcel) for cell, parcel in parcels.items()}
        scores = {cell: found.score for cell, found in assessed.items() if found is not None}
        scored = len(scores) == len(parcels)
        rows = self._rows(parcels)
        labels = [read_state(parcels[row[0]], CellState).label for row in rows]
        items = [float(label.items) for label in labels if label is not None]
        shares = self.settings.prior or items
        weights: dict[int, float] = {}
        for row, share in zip(rows, shares, strict=True):
            kept = [min(row, key=lambda cell: (_or_worst(scores[cell]), cell))] if scored else row
            weights |= {cell: share / sum(shares) / len(kept) for cell in kept}
        score = None
        if scorer is not None and scored:
            parts = [found for cell in weights if (found := assessed[cell]) is not None]
            score = scorer.mixture(parts, list(weights.values()))
        which = "the best generator" if scored and self.settings.replicas > 1 else "the generators"
        origin = "given" if self.settings.prior else "those of the data"
        return Mixture(weights, score, f"{which} of each label, in shares that are {origin}")

    def _rows(self, parcels: Mapping[int, Parcel]) -> list[list[int]]:
        """The cells of each label."""
        rows: dict[int, list[int]] = {}
        for cell in sorted(parcels):
            rows.setdefault(self.label(cell), []).append(cell)
        return [rows[label] for label in sorted(rows)]


def _within_a_label(scorer: Scorer) -> str:
    """What ranks samples of one label: inception score would praise those of many."""
    return "fid" if METRICS[scorer.metric].higher_is_better else scorer.metric


def _or_worst(score: float) -> float:
    return math.inf if math.isnan(score) else score


def _within(config: Config, settings: ClassParallelSettings, labels: int) -> Method:
    """What a cell does with the other replicas of its label; alone, nothing."""
    rows = settings.replicas
    table = tuple(
        tuple(row * labels + label for row in range(rows) if row != own)
        for own in range(rows)
        for label in range(labels)
    )
    grid = config.grid.model_copy(update={"neighbourhood": "table", "table": table})
    if settings.within is None:
        return Independent(config, grid.build())
    chosen = config.model_copy(update={"grid": grid, "method": settings.within})
    return METHODS[settings.within.name].among_replicas(chosen, grid.build(), labels)
