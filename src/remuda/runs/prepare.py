"""All a run needs, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from remuda.config import Config
from remuda.data import NAMED, Dataset, load_dataset
from remuda.data.places import cache_dir
from remuda.errors import ConfigError, StoreError
from remuda.files import check_memory
from remuda.gan.cell import Cell
from remuda.gan.networks import check_size, sampling_bytes
from remuda.gan.parcels import Parcel
from remuda.methods import Method, build_method, resolved
from remuda.metrics import (
    LIVE_REAL_IMAGES,
    AnyExtractor,
    RealStatistics,
    Say,
    Scorer,
    kept_statistics,
    reference_indices,
)
from remuda.runs.ensemble import Labels
from remuda.runs.extractors import check_ranking, find_extractor, recorded_extractor
from remuda.runs.store import RunFolder


@dataclass
class Run:
    """A configuration with everything it needs, checked before anything is written to disk."""

    config: Config
    dataset: Dataset
    method: Method
    scorer: Scorer | None
    sizes: tuple[int, ...] = ()  # how many items each cell sees
    extractor: AnyExtractor | None = None  # of the live score, and of the result

    @classmethod
    def prepare(
        cls,
        config: Config,
        dataset: Dataset | None = None,
        real_samples: int = LIVE_REAL_IMAGES,
        *,
        folder: RunFolder | None = None,
        say: Say | None = None,
        trains: bool = True,
    ) -> Run:
        """A new run, or with `folder` the one there, scored as it was when it started.

        One that only looks at what was trained (not `trains`) need not be able to train.
        """
        dataset = dataset if dataset is not None else load_dataset(config.data)
        config = _with_labels(config, dataset)
        config = resolved(config, dataset)
        method = build_method(config)
        method.check(dataset.shape)
        sizes = tuple(len(method.view(dataset, cell)) for cell in range(config.cells))
        _check_batches(config, dataset, sizes, shrinks=method.shrinks_batches)
        _check_memory(config, dataset.shape, max(sizes), trains=trains)
        run = cls(config, dataset, method, None, sizes)
        # Last: to make one may take seconds, and mistakes should be told before.
        if folder is None:
            run.extractor = find_extractor(config, dataset, say)
        else:
            run.extractor = recorded_extractor(folder, config, dataset)
        if run.extractor is not None:
            check_ranking(config, run.extractor)
            chosen, _ = reference_indices(run.reference_views, real_samples)
            real = _real_statistics(run.extractor, dataset, chosen)
            run.scorer = Scorer(run.extractor, real, config.score.metric)
        elif trains and method.needs_scores is not None:
            raise ConfigError(
                f"{method.needs_scores}=score: nothing scores {dataset.name} (score.extractor="
                f"{config.score.extractor}); allowed: another extractor, or "
                f"{method.needs_scores}=loss"
            )
        return run

    def view(self, cell: int) -> torch.Tensor:
        """Indices of the items that a cell sees.

        Not kept: for all cells of a large grid they take more memory than the data, and a worker
        needs those of its own cells.
        """
        return self.method.view(self.dataset, cell)

    @property
    def views(self) -> Iterator[torch.Tensor]:
        """Of every cell in turn."""
        return map(self.view, range(len(self.sizes)))

    @property
    def reference_views(self) -> Sequence[torch.Tensor]:
        """What samples are compared with: what the cells see, each list once.

        Where each sees a random share, it is all of the data that shares are of.
        """
        if self.config.data.view == "share":
            return [torch.arange(len(self.dataset))]
        return list({id(view): view for view in self.views}.values())

    @property
    def unit(self) -> str:
        """What its data are, in the plural."""
        return "images" if self.dataset.is_images else "points"

    def cell(self, index: int) -> Cell:
        """A new cell of this run."""
        return self.method.cell(index, self.dataset, self.view(index), self.scorer)

    def restored(self, parcel: Parcel) -> Cell:
        """The cell that made this parcel, as it was then."""
        # Without a scorer at first: what it would score is replaced at once.
        cell = self.method.cell(parcel.cell, self.dataset, self.view(parcel.cell), None)
        cell.scorer = self.scorer
        cell.restore(parcel)
        return cell

    def probe(self, index: int) -> Cell:
        """A cell of this run to look at parcels with; needs none of the run's devices."""
        return self.method.probe(index, self.dataset, self.view(index))

    @property
    def costs(self) -> dict[int, float]:
        """What a round costs each cell: the items it trains on. Cells differ in nothing else."""
        size = self.config.training.batch_size
        return {
            cell: float(self.config.round_batches(items) * min(size, items))
            for cell, items in enumerate(self.sizes)
        }

    @property
    def labels(self) -> Labels | None:
        """The labels that samples of this run can be asked for by, in their shares."""
        dataset = self.dataset
        conditional = any(network.num_classes for network in self.config.networks)
        if dataset.labels is None or not (conditional or self.method.labelled):
            return None
        shares = self.method.label_shares(dataset)
        return Labels(dataset.label_names, tuple(share / sum(shares) for share in shares))

    @property
    def warnings(self) -> list[str]:
        """What the user should know before it starts."""
        size = self.config.training.batch_size
        return [
            f"cell {cell} sees {items} items, fewer than training.batch_size={size}"
            f"{_of_label(self.dataset, self.view(cell))}: it trains with batches of that many"
            for cell, items in enumerate(self.sizes)
            if items < size
        ]


def _real_statistics(
    extractor: AnyExtractor, dataset: Dataset, chosen: torch.Tensor
) -> RealStatistics:
    """From the cache where they were looked at before: by another process, or by another run."""
    return kept_statistics(
        cache_dir() / "statistics",
        extractor,
        dataset.fingerprint,
        chosen,
        lambda some: dataset.items[some],
    )


def _of_label(dataset: Dataset, view: torch.Tensor) -> str:
    found = set() if dataset.labels is None else set(dataset.labels[view].tolist())
    return f" (label {dataset.label_names[found.pop()]})" if len(found) == 1 else ""


def _with_labels(config: Config, dataset: Dataset) -> Config:
    """Networks that are conditioned on labels know as many as the data have."""
    labels = 0 if dataset.labels is None else len(dataset.label_names)
    config = config.for_labels(labels)
    for network in config.networks:
        if network.is_conditional and not labels:
            raise ConfigError(
                f"network.condition: {dataset.name} has no labels; allowed: network.condition="
                "none, or auto, which uses labels where there are any"
            )
        if network.is_conditional and config.data.view == "label":
            raise ConfigError(
                f"data.view=label: all items have the label {config.data.label}, so there is "
                "nothing to condition networks on; allowed: network.condition=none or auto, or "
                "another data.view"
            )
        if network.is_conditional and network.num_classes != labels:
            raise ConfigError(
                f"network.classes={network.num_classes}: {dataset.name} has {labels} labels; "
                f"allowed: {labels}, or null"
            )
    return config


def _check_batches(
    config: Config, dataset: Dataset, sizes: Sequence[int], *, shrinks: bool
) -> None:
    """Every cell must see a whole batch, and its generator must train at least once."""
    training = config.training
    for cell, items in enumerate(sizes):
        if training.batch_size > items and not shrinks:
            raise ConfigError(
                f"training.batch_size={training.batch_size}: larger than the "
                f"{items} items that cell {cell} sees of {dataset.name} "
                f"(data.view={config.data.view}); allowed: 2 to {items}"
            )
        batches = config.round_batches(items)
        if training.n_critic > config.rounds * batches:
            raise ConfigError(
                f"training.n_critic={training.n_critic}: larger than the {batches} "
                f"batches of cell {cell} in each of rounds={config.rounds}, so its generator "
                f"would never train; allowed: 1 to {config.rounds * batches}"
            )


def _check_memory(config: Config, shape: tuple[int, ...], items: int, *, trains: bool) -> None:
    """Refuse, before anything is built, settings that take more memory than there is."""
    for network in dict.fromkeys(config.networks):
        check_size(network, shape, min(config.training.batch_size, items))
    for key in ("samples", "final_samples") if trains else ():
        count = getattr(config.score, key)
        needed = sampling_bytes([], shape, count, 0, 0)
        check_memory(f"score.{key}={count}", needed, "samples", ConfigError)


def load_checked(config: Config, fingerprint: str | None) -> Dataset:
    """The data of a run, which must have this fingerprint, if one is given."""
    dataset = load_dataset(config.data)
    if fingerprint is not None and dataset.fingerprint != fingerprint:
        raise StoreError(
            f"{dataset.name}: not the data that were planned with ({dataset.fingerprint}, not "
            f"{fingerprint}); allowed: the same data (--data-dir, REMUDA_DATA)"
        )
    return dataset


def with_absolute_paths(config: Config) -> Config:
    """The same configuration with absolute paths of files, so that it works from any folder."""
    data, score = config.data, config.score
    update: dict[str, Any] = {}
    if data.dir is not None:
        update["dir"] = str(Path(data.dir).expanduser().absolute())
    if data.source not in NAMED and Path(data.source).expanduser().exists():
        update["source"] = str(Path(data.source).expanduser().absolute())
    if score.extractor_file is not None:
        path = str(score.extractor_file.absolute())
        score = score.model_copy(update={"extractor": path})
    return config.model_copy(
        update={"data": data.model_copy(update=update), "score": score},
    )


def with_data_dir(config: Config, data_dir: Path | None) -> Config:
    """The same configuration with its data looked for elsewhere."""
    if data_dir is None:
        return config
    data = config.data.model_copy(update={"dir": str(data_dir)})
    return config.model_copy(update={"data": data})
