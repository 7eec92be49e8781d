"""Whether samples are copies of training items: are they nearer to those than to unseen ones?

Training items and items that no cell saw are put into one pool. Without memorisation it is chance
which items of the pool were trained on, so the share of samples whose nearest item is a training
item is like that after a permutation of the pool. Samples that share a nearest item are counted
together. The same is asked of the closest tenth of the samples alone, where a few copies show.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remuda.config import MetricFacts
from remuda.metrics.items import RealItems
from remuda.metrics.metric import Findings, Items, Material, Metric, Need, Pairs
from remuda.metrics.reference import Progress, some_of
from remuda.streams import choice_stream

MOST_SAMPLES = 10_000
MOST_COMPARED = 2_000  # unseen items whose distances to training items say what is near
NEAR = 0.01  # a near-copy is nearer to a training item than all but this share of unseen items
PERMUTATIONS = 9_999
CLOSEST = 0.1
SIGNIFICANT = 0.01
PAIRS = 40  # in a picture
_BLOCK, _POOL_BLOCK = 1_000, 10_000
_FEW_DIMENSIONS = 25  # below, plain differences are as fast as a matrix product, and exact


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest items of a pool: how far away, and which."""

    distances: Tensor
    indices: Tensor

    def __getitem__(self, chosen: Tensor) -> Nearest:
        return Nearest(self.distances[chosen], self.indices[chosen])

    def or_nearer(self, other: Nearest, offset: int) -> Nearest:
        """The nearer of two, where the other pool follows the own one at an offset."""
        closer = other.distances < self.distances
        return Nearest(
            torch.where(closer, other.distances, self.distances),
            torch.where(closer, other.indices + offset, self.indices),
        )


@dataclass(frozen=True)
class ShareTest:
    """How likely a share of nearest training items is if training makes no difference."""

    share: float
    expected: float
    deviation: float
    p: float  # of a share at least as large


def nearest(items: Tensor, pool: RealItems, order: Tensor | None = None) -> Nearest:
    """The nearest item of a pool for each of some items, by Euclidean distance.

    With `order`, the pool is what these indices say, and what is found are places among them.
    """
    items, order = items.flatten(1).float(), torch.arange(len(pool)) if order is None else order
    best = Nearest(torch.full((len(items),), torch.inf), torch.zeros(len(items), dtype=torch.int64))
    for start in range(0, len(order), _POOL_BLOCK):
        # Never a copy of the whole pool: it may be most of a large data set.
        part = pool[order[start : start + _POOL_BLOCK]].flatten(1).float()
        if part.shape[1] < _FEW_DIMENSIONS:
            found = torch.cdist(items, part, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
        else:
            # |x - y|² without |x|², which is the same for all of the pool.
            found = torch.addmm(part.square().sum(1), items, part.T, alpha=-2).argmin(1)
        # The matrix product loses small distances to rounding, and those are what we look for.
        distances = (items - part[found]).square().sum(1).sqrt()
        best = best.or_nearer(Nearest(distances, found), start)
    return best


def share_test(of_training: Tensor, of_unseen: Tensor, rng: np.random.Generator) -> ShareTest:
    """Compare with permutations of the pool; the arguments say how many samples each item drew.

    Only how many items drew how many samples matters, so a permutation is one draw from a
    multivariate hypergeometric distribution. Mean and variance of the share are exact.
    """
    counts = torch.cat((of_training, of_unseen)).numpy()
    samples, items, trained = int(counts.sum()), len(counts), len(of_training)
    spread = float((counts.astype(np.float64) ** 2).sum()) - samples**2 / items
    variance = trained * (items - trained) / (items * max(1, items - 1)) * spread
    drawn, how_many = np.unique(counts, return_counts=True)
    met = int(of_training.sum())
    # "marginals" draws group by group: the other way lists all items of the pool every time.
    permuted = rng.multivariate_hypergeometric(how_many, trained, PERMUTATIONS, method="marginals")
    as_many = int((permuted @ drawn >= met).sum())
    return ShareTest(
        met / samples,
        trained / items,
        math.sqrt(max(0.0, variance)) / samples,
        (1 + as_many) / (1 + PERMUTATIONS),
    )


@dataclass(frozen=True, eq=False)
class Memorisation:
    """What is found of a set of samples."""

    test: ShareTest
    closest: ShareTest  # the same of the samples that are closest to any item of the pool
    median_training: float  # distance to the nearest of equally many training ...
    median_unseen: float  # ... and unseen items
    near_copies: float  # share of the samples
    near: float  # the distance below which they count
    pairs: Pairs


def memorisation(
    samples: Tensor,
    training: RealItems,
    unseen: RealItems,
    seed: int,
    progress: Progress | None = None,
) -> Memorisation:
    """Look for the nearest training and the nearest unseen item of every sample."""
    rng = choice_stream(seed, 0, 0, "memorisation")
    # One random order of the whole pool: of items at the same distance the first counts, whatever
    # it is, and the first ones of either kind are a random subset.
    ranks = torch.from_numpy(rng.permutation(len(training) + len(unseen)))
    rank_training, order = ranks[: len(training)].sort()
    rank_unseen, other_order = ranks[len(training) :].sort()
    equal = min(len(training), len(unseen))
    compared = unseen[other_order[:MOST_COMPARED]]
    if progress is not None:
        work = len(samples) * (len(training) + len(unseen)) + len(compared) * len(training)
        seconds = work * _seconds_per_pair(samples, training)
        progress.started(len(samples) + len(compared), seconds, "looking for the neighbours of")
    found = []
    for part in torch.split(samples, _BLOCK):
        pools = (
            *((training, order[:equal]), (training, order[equal:])),
            *((unseen, other_order[:equal]), (unseen, other_order[equal:])),
        )
        found.append([nearest(part, *pool) for pool in pools])
        if progress is not None:
            progress.advanced(len(part))
    some_training, more_training, some_unseen, more_unseen = (
        Nearest(
            torch.cat([one.distances for one in pool]), torch.cat([one.indices for one in pool])
        )
        for pool in zip(*found, strict=True)
    )
    of_training = some_training.or_nearer(more_training, equal)
    of_unseen = some_unseen.or_nearer(more_unseen, equal)
    usual = torch.cat(
        [nearest(part, training, order).distances for part in torch.split(compared, _BLOCK)]
    )
    if progress is not None:
        progress.advanced(len(compared))
    closest_tenth = torch.minimum(of_training.distances, of_unseen.distances).argsort(stable=True)
    closest_tenth = closest_tenth[: math.ceil(CLOSEST * len(samples))]
    of_all, of_closest = (
        share_test(*_drawn(of_training[some], of_unseen[some], rank_training, rank_unseen), rng)
        for some in (torch.arange(len(samples)), closest_tenth)
    )
    near = float(torch.quantile(usual.double(), NEAR))
    return Memorisation(
        of_all,
        of_closest,
        float(some_training.distances.median()),
        float(some_unseen.distances.median()),
        float((of_training.distances <= near).double().mean()),
        near,
        _closest_pairs(samples, training, order, of_training),
    )


def _closest_pairs(samples: Tensor, training: RealItems, order: Tensor, found: Nearest) -> Pairs:
    """The closest sample of each training item that is any sample's nearest, closest first."""
    closest = found.distances.argsort(stable=True)
    # The first place of each item in that order; a hub of many samples would fill the picture.
    _, first = np.unique(found.indices[closest].numpy(), return_index=True)
    shown = closest[torch.from_numpy(np.sort(first))[:PAIRS]]
    return Pairs(samples[shown], training[order[found.indices[shown]]], found.distances[shown])


def _drawn(
    of_training: Nearest, of_unseen: Nearest, rank_training: Tensor, rank_unseen: Tensor
) -> tuple[Tensor, Tensor]:
    """How many samples have each item as their nearest of the pool."""
    first = rank_training[of_training.indices] < rank_unseen[of_unseen.indices]
    tied = of_training.distances == of_unseen.distances
    is_training = torch.where(tied, first, of_training.distances < of_unseen.distances)
    return (
        of_training.indices[is_training].bincount(minlength=len(rank_training)),
        of_unseen.indices[~is_training].bincount(minlength=len(rank_unseen)),
    )


def _seconds_per_pair(samples: Tensor, pool: RealItems) -> float:
    some, others = samples[:100], pool[:_BLOCK]
    nearest(some, others)  # the first time is slower
    started = time.perf_counter()
    nearest(some, others)
    return (time.perf_counter() - started) / (len(some) * len(others))


def _memorisation(material: Material) -> Findings:
    training, unseen = material.training(), material.unseen_items()
    samples = material.samples[some_of(len(material.samples), MOST_SAMPLES)]
    found = memorisation(samples, training.items, unseen.items, material.seed, material.progress)
    return Findings(
        {
            "memorisation": found.test.share,
            "memorisation_expected": found.test.expected,
            "memorisation_deviation": found.test.deviation,
            "memorisation_p": found.test.p,
            "memorisation_closest": found.closest.share,
            "memorisation_closest_deviation": found.closest.deviation,
            "memorisation_closest_p": found.closest.p,
            "memorisation_distance": found.median_training,
            "memorisation_distance_unseen": found.median_unseen,
            "near_copies": found.near_copies,
            "near_copies_below": found.near,
        },
        {
            "memorisation_pool": f"{training.about} and {unseen.about}",
            "memorisation_kinds": f"{training.what} and as many {unseen.what}",
            "memorisation_unseen": unseen.what,
            "memorisation_space": "pixels" if samples.ndim == 4 else "coordinates",
            "memorisation_meaning": _meaning(found, unseen),
        },
        found.pairs if samples.ndim == 4 else None,
    )


def _meaning(found: Memorisation, unseen: Items) -> str:
    # Two questions are asked, so each must be twice as sure.
    if 2 * min(found.test.p, found.closest.p) <= SIGNIFICANT:
        doubt = (
            "" if unseen.alike else " (which may differ by themselves: data.validation does not)"
        )
        return f"that is more than chance: samples are less near to {unseen.what}{doubt}"
    return f"that is no more than chance: no sign of copies; {unseen.what} are as near"


MEMORISATION = Metric(
    name="memorisation",
    facts=MetricFacts("memorisation"),
    rows=(
        (
            "memorisation",
            "{memorisation:.1%} of samples are nearest to a training item; by chance "
            "{memorisation_expected:.1%} ± {memorisation_deviation:.1%}, p {memorisation_p:.4f}",
        ),
        (
            "",
            "{memorisation_closest:.1%} of the closest tenth of them, by chance "
            "{memorisation_expected:.1%} ± {memorisation_closest_deviation:.1%}, "
            "p {memorisation_closest_p:.4f}",
        ),
        ("", "{memorisation_meaning}"),
        ("", "(among {memorisation_pool}, by {memorisation_space} from -1 to 1)"),
        (
            "median distance",
            "{memorisation_distance:.2f} and {memorisation_distance_unseen:.2f} to the nearest of "
            "{memorisation_kinds}",
        ),
        (
            "near-copies",
            "{near_copies:.1%} of samples are within {near_copies_below:.2f} of a training item; "
            "of {memorisation_unseen}: 1.0%",
        ),
    ),
    needs=frozenset({Need.UNSEEN}),
    values=(
        *("memorisation", "memorisation_expected", "memorisation_deviation", "memorisation_p"),
        *("memorisation_closest", "memorisation_closest_deviation", "memorisation_closest_p"),
        *("memorisation_distance", "memorisation_distance_unseen"),
        *("near_copies", "near_copies_below"),
    ),
    directions={"near_copies": False, "memorisation_closest": False},
    from_items=_memorisation,
)
