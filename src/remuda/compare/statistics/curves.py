"""Scores against cost: when the runs of an arm reach a target, and the band they move in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remuda.compare.statistics.summaries import Figures, quartiles, worst_for_broken
from remuda.errors import ConfigError


@dataclass(frozen=True)
class CostSummary:
    """What an arm's runs paid to reach a target; None where too few of them reached it."""

    n: int
    reached: int
    share: float
    median: float | None
    q1: float | None
    q3: float | None


@dataclass(frozen=True)
class Band:
    """Quartiles of an arm's scores at each cost of `grid`; None where that is a collapsed run's."""

    grid: tuple[float, ...]
    median: tuple[float | None, ...]
    q1: tuple[float | None, ...]
    q3: tuple[float | None, ...]


def cost_to_reach(
    costs: Figures, scores: Figures, target: float, *, lower_is_better: bool
) -> float | None:
    """The least cost with a score as good as the target; None if there is none.

    Nothing is assumed between two scores, and a score that is not finite reaches nothing.
    """
    paid, found = np.asarray(costs, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    reached = (found <= target) if lower_is_better else (found >= target)
    enough = paid[reached & np.isfinite(found)]
    return float(enough.min()) if len(enough) else None


def summarise_costs(costs: Sequence[float | None]) -> CostSummary:
    """Quartiles over all runs, in which "not reached" is more than any cost."""
    if not costs:
        raise ConfigError("no runs whose costs could be summarised")
    paid = np.array([np.inf if cost is None else cost for cost in costs])
    reached = int(np.isfinite(paid).sum())
    q1, median, q3 = quartiles(paid)
    return CostSummary(len(paid), reached, reached / len(paid), median, q1, q3)


def band(curves: Sequence[tuple[Figures, Figures]], *, lower_is_better: bool) -> Band:
    """Quartiles over runs, each a pair of costs and scores, at every cost that any of them has.

    A run keeps its last score until it has a new one, also after its end. Nothing is said where
    fewer than half of the runs have been scored. A score that is not finite is the worst, so leave
    out rounds that were not scored.
    """
    runs = []
    for costs, scores in curves:
        paid = np.asarray(costs, dtype=np.float64)
        order = np.argsort(paid, kind="stable")
        runs.append((paid[order], worst_for_broken(scores, lower_is_better=lower_is_better)[order]))
    grid: list[float] = []
    rows = []
    for cost in np.unique(np.concatenate([paid for paid, _ in runs])) if runs else ():
        seen = [(int(np.searchsorted(paid, cost, side="right")), found) for paid, found in runs]
        now = np.array([found[count - 1] for count, found in seen if count])
        if 2 * len(now) >= len(runs):
            grid.append(float(cost))
            rows.append(quartiles(now))
    return Band(
        tuple(grid),
        median=tuple(row[1] for row in rows),
        q1=tuple(row[0] for row in rows),
        q3=tuple(row[2] for row in rows),
    )
