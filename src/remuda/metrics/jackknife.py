"""Scores of few samples without their bias: a delete-one-group jackknife.

A score of n samples is off by about C/n in the mean: real digits have a FID of 3 rather than 0
against themselves with 1,000 samples, and of 0.6 with 5,000. So a mixture of members with 1,000
samples each would look the better the more evenly its weights are spread, for no merit of theirs.
Statistics are therefore kept by group: scoring a mixture again without a part of its samples
shows how its score depends on their number, and where it would be with infinitely many. That is
what FID∞ (Chong and Forsyth 2020) extrapolates, here for any metric and any weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remuda.metrics.extractors import Features
from remuda.metrics.frechet import fid
from remuda.metrics.statistics import EXPECTATIONS, SampleStatistics

# More groups cost more and hardly help: with 10 the deviation of a corrected FID is 5 % less, and
# with 2 a third more (docs/scores.md).
GROUPS = 5


@dataclass(frozen=True)
class Resamples:
    """Statistics of a mixture, and again without each group; `without` may be empty."""

    whole: SampleStatistics
    without: tuple[SampleStatistics, ...] = ()

    def corrected(self, score: Callable[[SampleStatistics], float]) -> float:
        """A score freed of the part of its bias that falls with 1/n; as it is without groups.

        K·T − Σ (1 − m/n) T(without m of the n samples) is K·T − (K−1)·mean for equal groups, and
        exact for unequal ones too (Busing et al. 1999). It may fall below a metric's best value, as
        the unbiased KID does. That metrics clip what rounding leaves below their best is no
        obstacle: no set of samples has less.
        """
        value = score(self.whole)
        if not self.without:
            return value
        total = self.whole.count
        rest = sum(part.count / total * score(part) for part in self.without)
        return len(self.without) * value - rest

    def standard_error(self, score: Callable[[SampleStatistics], float]) -> float:
        """The jackknife's estimate, sqrt((K−1)/K Σ (T(without k) − their mean)²); NaN without."""
        if not self.without:
            return math.nan
        values = [score(part) for part in self.without]
        mean = sum(values) / len(values)
        squares = sum((value - mean) ** 2 for value in values)
        return math.sqrt((len(values) - 1) / len(values) * squares)


@dataclass(frozen=True, eq=False)
class GroupedStatistics:
    """Statistics of disjoint groups of one generator's samples.

    There is a single group where there are too few samples, and in files of earlier versions.
    """

    counts: tuple[int, ...]
    expectations: Mapping[str, Tensor]  # the fields of `SampleStatistics`, stacked by group

    @classmethod
    def of(cls, features: Features) -> GroupedStatistics:
        """Groups take samples by turns, so that nothing in their order matters."""
        count = len(features.features)
        groups = GROUPS if count >= 2 * GROUPS else 1
        found = [
            SampleStatistics.of(Features(features.features[i::groups], features.logits[i::groups]))
            for i in range(groups)
        ]
        return cls(
            tuple(one.count for one in found),
            {name: torch.stack([getattr(one, name) for one in found]) for name in EXPECTATIONS},
        )

    @staticmethod
    def mixture(parts: Sequence[GroupedStatistics], weights: Sequence[float]) -> Resamples:
        """Statistics of drawing from part i with probability weights[i], for the jackknife.

        Expectations of a mixture are the weighted sums of its parts', and so are those without
        the k-th group of each part. Counts are those of all parts whatever their weights, and so
        is whether there are groups, so that a score changes smoothly when a weight reaches zero.
        """
        if len(parts) != len(weights) or not parts:
            raise ValueError(f"{len(parts)} sets of samples and {len(weights)} weights")
        if not all(weight >= 0 for weight in weights) or abs(sum(weights) - 1) > 1e-6:
            raise ValueError(f"weights must be at least 0 and sum to 1, not {list(weights)}")
        groups = {len(part.counts) for part in parts}
        comparable = len(groups) == 1 and groups != {1}
        left_out = [None, *range(groups.pop())] if comparable else [None]
        # A part that is never drawn from must not spoil the sum with its infinities.
        drawn = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight > 0]
        shares = torch.cat([weight * part._shares(left_out) for part, weight in drawn], 1)
        expectations = {
            name: torch.tensordot(
                shares, torch.cat([part.expectations[name] for part, _ in drawn]), 1
            )
            for name in EXPECTATIONS
        }
        whole, *without = (
            SampleStatistics(
                count=sum(part._count(group) for part in parts),
                **{name: value[place] for name, value in expectations.items()},
            )
            for place, group in enumerate(left_out)
        )
        return Resamples(whole, tuple(without))

    def _shares(self, left_out: Sequence[int | None]) -> Tensor:
        """One row per group that is left out (None: none): the shares of the groups in the rest."""
        rows = [
            [0 if group == gone else count for group, count in enumerate(self.counts)]
            for gone in left_out
        ]
        shares = torch.tensor(rows, dtype=torch.float64)
        return shares / shares.sum(1, keepdim=True)

    def _count(self, left_out: int | None) -> int:
        return sum(self.counts) - (0 if left_out is None else self.counts[left_out])

    def tensors(self) -> dict[str, Tensor]:
        """Named tensors, for exchange between cells and for files."""
        return {"count": torch.tensor(self.counts, dtype=torch.int64), **self.expectations}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> GroupedStatistics:
        """The inverse of `tensors`; checks names, types and sizes.

        Earlier versions wrote the statistics of all samples, without a dimension for groups.
        """
        if set(tensors) != {"count", *EXPECTATIONS}:
            raise ValueError(f"not sample statistics: {sorted(tensors)}")
        if tensors["count"].dim() == 0:
            tensors = {name: value[None] for name, value in tensors.items()}
        counts = tensors["count"].flatten().tolist()
        if not counts or not all(type(count) is int and count > 0 for count in counts):
            raise ValueError(f"sample statistics of groups of {counts} samples")
        groups = len(counts)
        d, k = (tensors[name].numel() // groups for name in ("feature_mean", "class_shares"))
        sizes = [(d,), (d, d), (k,), (k, k), (k,), (k,), ()]
        for name, size in zip(EXPECTATIONS, sizes, strict=True):
            tensor = tensors[name]
            if tuple(tensor.shape) != (groups, *size) or tensor.dtype != torch.float64:
                raise ValueError(
                    f"{name} is {tensor.dtype} {tuple(tensor.shape)}, expected float64 "
                    f"{(groups, *size)}"
                )
        return cls(tuple(counts), {name: tensors[name] for name in EXPECTATIONS})


MOST_SPREAD = 16  # generators whose distances are computed: some stand for all


def spread(parts: Sequence[GroupedStatistics]) -> float:
    """How far generators are apart: the mean Fréchet distance from the mixture of all of them.

    Corrected for the number of samples, as scores are, so that equal generators have about 0.
    """
    some = parts[:: -(-len(parts) // MOST_SPREAD)]
    everything = GroupedStatistics.mixture(some, [1 / len(some)] * len(some)).whole
    distances = [
        GroupedStatistics.mixture([part], [1.0]).corrected(lambda own: fid(everything, own))
        for part in some
    ]
    return sum(distances) / len(distances)
