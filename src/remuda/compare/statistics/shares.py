"""How often runs collapse, and whether one arm's do so more often than another's.

A share of few runs says little, so it always comes with Clopper and Pearson's exact interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from remuda.compare.statistics.significance import Significance, smallest_p
from remuda.errors import ConfigError


@dataclass(frozen=True)
class Share:
    """So many of so many runs, and an interval for the share of all runs there could be."""

    count: int
    of: int
    low: float
    high: float


def share(count: int, of: int, confidence: float = 0.95) -> Share:
    """Clopper and Pearson's interval: never too narrow, whatever the true share is."""
    if not 0 <= count <= of or of == 0:
        raise ConfigError(f"{count} of {of} runs: no share")
    found = stats.binomtest(count, of).proportion_ci(confidence, method="exact")
    return Share(count, of, float(found.low), float(found.high))


def same_share(a: Sequence[bool], b: Sequence[bool], *, paired: bool) -> Significance:
    """Whether it happens to both alike: McNemar's exact test for pairs, else Boschloo's.

    Pairs in which it happened to both or to neither do not count; where that leaves none, p is 1.
    """
    if paired:
        only_a = sum(one and not other for one, other in zip(a, b, strict=True))
        only_b = sum(other and not one for one, other in zip(a, b, strict=True))
        p = 1.0
        if only_a + only_b:
            p = float(stats.binomtest(only_a, only_a + only_b).pvalue)
        return Significance(p, "McNemar's exact test", smallest_p(len(a)), exact=True)
    name = "Boschloo's exact test"
    if sum(a) + sum(b) in (0, len(a) + len(b)):  # it happened to nobody, or to all
        return Significance(1.0, name, _boschloo(len(a), 0, 0, len(b)), exact=True)
    p = _boschloo(sum(a), len(a) - sum(a), sum(b), len(b) - sum(b))
    return Significance(p, name, _boschloo(len(a), 0, 0, len(b)), exact=True)


def _boschloo(*counts: int) -> float:
    """Two arms as the columns of a table: those to whom it happened, and the others."""
    table = np.array(counts).reshape(2, 2).T
    return float(stats.boschloo_exact(table).pvalue)
