"""Arms over many data sets: mean ranks, and how far apart they must be (Demšar 2006)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from remuda.compare.statistics.summaries import Array, Figures, worst_for_broken
from remuda.errors import ConfigError

LEAST_DATA_SETS = 5


@dataclass(frozen=True)
class CriticalDifference:
    """Mean ranks, best (1) first; Friedman's test that all arms are alike; who does not differ.

    `groups` are the largest sets of two or more arms whose mean ranks are within `distance`. Iman
    and Davenport's form of Friedman's test is the less timid one. Unless it finds a difference, do
    not look for one between two arms.
    """

    mean_ranks: dict[str, float]
    friedman_p: float
    iman_davenport_p: float
    distance: float
    groups: tuple[tuple[str, ...], ...]


def critical_difference(
    table: Mapping[str, Figures], *, lower_is_better: bool, alpha: float = 0.05
) -> CriticalDifference:
    """Friedman's test and Nemenyi's distance for arms with one figure per data set each."""
    figures = _checked(table, lower_is_better)
    sets, arms = figures.shape
    ranks = stats.rankdata(figures if lower_is_better else -figures, axis=1)
    means = ranks.mean(axis=0)
    order = np.argsort(means, kind="stable")
    names = list(table)
    mean_ranks = {names[at]: float(means[at]) for at in order}
    distance = _quantile(arms, alpha) * math.sqrt(arms * (arms + 1) / (6 * sets))
    friedman, iman_davenport = _friedman(ranks)
    return CriticalDifference(
        mean_ranks, friedman, iman_davenport, distance, _groups(mean_ranks, distance)
    )


def _checked(table: Mapping[str, Figures], lower_is_better: bool) -> Array:
    """A row per data set, a column per arm."""
    sizes = {arm: len(figures) for arm, figures in table.items()}
    if len(sizes) < 2:
        raise ConfigError(f"arms to rank: {', '.join(sizes) or 'none'}; at least two are needed")
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{arm} {size}" for arm, size in sizes.items())
        raise ConfigError(f"every arm needs a figure for every data set; there are: {counts}")
    if min(sizes.values()) < LEAST_DATA_SETS:
        raise ConfigError(
            f"mean ranks over {min(sizes.values())} data sets say nothing: "
            f"at least {LEAST_DATA_SETS} are needed"
        )
    columns = [worst_for_broken(x, lower_is_better=lower_is_better) for x in table.values()]
    return np.stack(columns, axis=1)


def _friedman(ranks: Array) -> tuple[float, float]:
    """The p of Friedman's chi-square, corrected for ties, and of Iman and Davenport's F."""
    sets, arms = ranks.shape
    between = float(((ranks.mean(axis=0) - (arms + 1) / 2) ** 2).sum()) * sets
    within = float(((ranks - (arms + 1) / 2) ** 2).sum()) / (sets * (arms - 1))
    if between == 0 or within == 0:  # all alike, or tied everywhere
        return 1.0, 1.0
    chi_square = between / within
    rest = sets * (arms - 1) - chi_square
    f = (sets - 1) * chi_square / rest if rest > 1e-9 else math.inf
    p = float(stats.f.sf(f, arms - 1, (arms - 1) * (sets - 1)))
    return float(stats.chi2.sf(chi_square, arms - 1)), p


@lru_cache
def _quantile(arms: int, alpha: float) -> float:
    return float(stats.studentized_range.ppf(1 - alpha, arms, np.inf)) / math.sqrt(2)


def _groups(mean_ranks: Mapping[str, float], distance: float) -> tuple[tuple[str, ...], ...]:
    names, ranks = list(mean_ranks), list(mean_ranks.values())
    found: list[tuple[str, ...]] = []
    reached = 0  # how far the groups found so far extend
    for start in range(len(names)):
        end = max(at for at in range(start, len(ranks)) if ranks[at] - ranks[start] <= distance) + 1
        if end > reached and end - start > 1:
            found.append(tuple(names[start:end]))
        reached = max(reached, end)
    return tuple(found)
