"""The real images that samples are compared with: which ones, and how an extractor sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from remuda.metrics.extractors import CHUNK, AnyExtractor, Features
from remuda.metrics.feature_cache import cache_path, read_features, write_features
from remuda.metrics.items import RealItems
from remuda.metrics.statistics import SampleStatistics
from remuda.streams import choice_stream

# Real images behind the live score: enough for stable moments, few enough to start in a second.
LIVE_REAL_IMAGES = 10_000


class Progress(Protocol):
    """Hears how far the scoring is."""

    def started(self, images: int, seconds: float, doing: str = "scoring") -> None:
        """There are `images` to look at, which will take about `seconds`; may come repeatedly."""

    def advanced(self, images: int) -> None:
        """Another `images` are done."""


def some_of(count: int, most: int) -> Tensor:
    """At most `most` of `count` indices in ascending order, chosen at random.

    Not evenly spaced ones: MNIST alternates between two sources, and every sixth image is of one.
    The choice depends on nothing but `count`, so that runs with other seeds can be compared, and
    a larger one holds the smaller.
    """
    if most >= count:
        return torch.arange(count)
    order = choice_stream(0, 0, 0, f"some-of-{count}").permutation(count)
    return torch.from_numpy(order[:most]).sort().values


def reference_indices(views: Sequence[Tensor], most: int) -> tuple[Tensor, int]:
    """Which items to compare with, at most `most`, and how many all cells see together.

    Only what cells see counts: where each sees one label, the other labels are not missing.
    """
    seen = torch.unique(torch.cat(list(views)))
    return seen[some_of(len(seen), most)], len(seen)


def extract(
    extractor: AnyExtractor, parts: Iterable[Tensor], progress: Progress | None = None
) -> Features:
    """What an extractor sees in images that come in parts."""
    found = []
    for part in parts:
        found.append(extractor(part))
        if progress is not None:
            progress.advanced(len(part))
    return Features(
        torch.cat([one.features for one in found]), torch.cat([one.logits for one in found])
    )


class Reference:
    """Some of the real images. They are looked at when asked for, and only once.

    `statistics` are given where they are known already; most metrics need no more. With `cache`, a
    folder, the features are kept for the next time.
    """

    def __init__(
        self,
        extractor: AnyExtractor,
        items: RealItems,
        *,
        chosen: Tensor | None = None,
        about: str = "",
        statistics: SampleStatistics | None = None,
        cache: Path | None = None,
    ) -> None:
        self.extractor = extractor
        self.about = about
        self._items = items
        self._chosen = torch.arange(len(items)) if chosen is None else chosen
        self._statistics = statistics
        self._features: Features | None = None
        self._cache = None if cache is None else cache_path(cache, extractor, self._parts())

    def __len__(self) -> int:
        return len(self._chosen)

    def unseen(self, *, whole_sets: bool) -> int:
        """How many images must be looked at first, for all features or for the statistics alone."""
        if self._statistics is not None and not whole_sets:
            return 0
        if self._features is None and self._cache is not None:
            self._features = read_features(self._cache, len(self))
        return len(self) if self._features is None else 0

    def features(self, progress: Progress | None = None) -> Features:
        if self.unseen(whole_sets=True):
            self._features = extract(self.extractor, self._parts(), progress)
            if self._cache is not None:
                write_features(self._cache, self._features)
        assert self._features is not None
        return self._features

    def statistics(self, progress: Progress | None = None) -> SampleStatistics:
        if self._statistics is None:
            self._statistics = SampleStatistics.of(self.features(progress))
        return self._statistics

    def _parts(self) -> Iterable[Tensor]:
        # Never a copy of all the chosen images: they may be most of a large data set.
        return (self._items[part] for part in torch.split(self._chosen, CHUNK))
