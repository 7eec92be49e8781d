"""How many seeds are enough: what theory says about a comparison before any run is trained."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, stats

from remuda.compare.statistics.significance import smallest_p


def power(n: int, effect: float, *, paired: bool, alpha: float = 0.05) -> float:
    """The chance that n seeds per arm show a difference of `effect` standard deviations.

    By Student's t for normal figures (deviations of the differences, if paired), at the largest
    level up to alpha that a permutation test of n seeds can have: 0 if it has none.
    """
    least = smallest_p(n) if paired else smallest_p(n, n)
    level = math.floor(alpha / least) * least
    if n < 2 or level == 0:
        return 0.0
    freedom, scale = (n - 1, math.sqrt(n)) if paired else (2 * n - 2, math.sqrt(n / 2))
    bound = stats.t.isf(level / 2, freedom)
    shift = abs(effect) * scale
    # SciPy answers NaN where the tail on the wrong side is next to nothing.
    wrong_side = np.nan_to_num(stats.nct.cdf(-bound, freedom, shift))
    return float(stats.nct.sf(bound, freedom, shift) + wrong_side)


def detectable(n: int, *, paired: bool, alpha: float = 0.05, wanted: float = 0.8) -> float | None:
    """The difference, in standard deviations, that n seeds show with the wanted power, or None."""

    def lacking(effect: float) -> float:
        return power(n, effect, paired=paired, alpha=alpha) - wanted

    enough = 1.0
    while lacking(enough) < 0:
        enough *= 2
        if enough > 1000:
            return None
    return float(optimize.brentq(lacking, 0.0, enough)) if lacking(0.0) < 0 else 0.0
