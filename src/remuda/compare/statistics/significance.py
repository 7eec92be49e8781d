"""Could chance alone have made two arms this different? Permutation tests, and many of them.

Few seeds leave a normal approximation no ground, so the chances are counted: over all ways to
swap the arms within the pairs, or to deal the runs to the arms, and only where those are too many,
over random ones. The price is that few seeds cannot show much, which `smallest` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations

import numpy as np
import numpy.typing as npt
from scipy import stats

from remuda.compare.statistics.summaries import Array, Figures, two_arms, wins, worst_for_broken
from remuda.streams import choice_stream

Splits = npt.NDArray[np.bool_]

MOST_PAIRS = 30  # beyond this many, signs are drawn instead of counted
MOST_SPLITS = 200_000  # beyond this many, splits are drawn instead of counted
MOST_RUNS = 100  # beyond this many in both arms together, the t approximation is good
DRAWS = 99_999
AT_ONCE = 10_000
# Sums of the same numbers in another order differ in their last digits: they count as equal.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Significance:
    """A two-sided p, the test it is from, the smallest it could be, and whether it is exact.

    `p` is None if there is nothing to test: an unpaired arm of one run has no spread.
    """

    p: float | None
    name: str
    smallest: float
    exact: bool


def significance(a: Figures, b: Figures, *, paired: bool, lower_is_better: bool) -> Significance:
    """Whether two arms differ: a sign-flip test for pairs, else Brunner and Munzel's.

    Which figures are better matters only for runs that collapsed, as those are the worst.
    """
    one, other = two_arms(a, b, paired=paired)
    one = worst_for_broken(one, lower_is_better=lower_is_better)
    other = worst_for_broken(other, lower_is_better=lower_is_better)
    return _paired(one, other) if paired else _unpaired(one, other)


def smallest_p(n: int, m: int | None = None) -> float:
    """The smallest p that n pairs, or arms of n and m runs, can give: both extremes of all ways."""
    ways = 2**n if m is None else math.comb(n + m, n)
    return min(1.0, 2 / ways)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P-values after Holm's correction for testing them all; None and NaN are not of the family."""
    adjusted: list[float | None] = [None] * len(p_values)
    family = sorted((p, at) for at, p in enumerate(p_values) if p is not None and not math.isnan(p))
    floor = 0.0
    for before, (p, at) in enumerate(family):
        floor = max(floor, min(1.0, p * (len(family) - before)))
        adjusted[at] = floor
    return adjusted


# ---------------------------------------------------------------------------- pairs


def _paired(one: Array, other: Array) -> Significance:
    """Flip the signs of the differences; their signed ranks, if a run of a pair collapsed.

    The mean of infinite differences is no figure. By rank of size they are the largest, alike.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(one == other, 0.0, one - other)
    what = "the mean difference"
    if not np.isfinite(apart).all():
        apart = np.sign(apart) * stats.rankdata(np.abs(apart))
        what = "signed ranks"
    n = len(apart)
    if n <= MOST_PAIRS:
        p = _all_sign_flips(apart)
        return Significance(p, f"exact sign-flip test of {what}", smallest_p(n), exact=True)
    p = _random_sign_flips(apart)
    name = f"sign-flip test of {what}, {DRAWS:,} random flips"
    return Significance(p, name, max(smallest_p(n), 1 / (DRAWS + 1)), exact=False)


def _all_sign_flips(apart: Array) -> float:
    """The share of all sign flips whose sum is as far from zero as the one seen.

    Sums of all signs of one half of the pairs are looked up among those of the other half: the
    root of the work of listing all.
    """
    sizes = np.abs(apart)
    reach = abs(float(apart.sum())) - ROUNDING * float(sizes.sum())
    half = len(sizes) // 2
    left, right = _signed_sums(sizes[:half]), np.sort(_signed_sums(sizes[half:]))
    beyond = len(left) * len(right) - int(np.searchsorted(right, reach - left).sum())
    return min(1.0, 2 * beyond / (len(left) * len(right)))


def _signed_sums(sizes: Array) -> Array:
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums - size, sums + size])
    return sums


def _random_sign_flips(apart: Array) -> float:
    sizes = np.abs(apart)
    reach = abs(float(apart.sum())) - ROUNDING * float(sizes.sum())
    rng = choice_stream(0, 0, 0, "sign flips")
    beyond = 0
    for count in _portions():
        signs = 2.0 * rng.integers(0, 2, (count, len(sizes))) - 1
        beyond += int((np.abs(signs @ sizes) >= reach).sum())
    return (1 + beyond) / (1 + DRAWS)


def _portions() -> Iterator[int]:
    """The number of draws, in parts that fit into memory."""
    for start in range(0, DRAWS, AT_ONCE):
        yield min(AT_ONCE, DRAWS - start)


# ---------------------------------------------------------------------------- two samples


def _unpaired(one: Array, other: Array) -> Significance:
    """Brunner and Munzel's statistic among those of other splits (Neubert and Brunner 2007)."""
    if len(one) > len(other):  # the test is the same either way; so are its random splits
        one, other = other, one
    n, m = len(one), len(other)
    least = smallest_p(n, m)
    if n < 2:
        return Significance(None, "none: an arm of one run has no spread", least, exact=False)
    name = "Brunner-Munzel"
    if n + m > MOST_RUNS:
        p = max(least, _t_approximation(one, other))
        return Significance(p, f"{name} test, t approximation", least, exact=False)
    figures = np.concatenate([one, other])
    ranks = wins(figures[:, None], figures[None, :]).sum(1) + 0.5  # SciPy's takes far longer
    seen = float(_brunner_munzel(ranks, (np.arange(n + m) < n)[None, :])[0])
    others = _statistics_of_splits(tuple(np.sort(ranks).tolist()), n)
    # Twice the smaller tail: arms of two sizes make the tails differ, and ties make one vanish.
    slack = ROUNDING * abs(seen) if math.isfinite(seen) else 0.0
    below = int(np.searchsorted(others, seen + slack, side="right"))
    above = len(others) - int(np.searchsorted(others, seen - slack))
    beyond = min(below, above)
    if math.comb(n + m, n) <= MOST_SPLITS:
        p = min(1.0, 2 * beyond / len(others))
        return Significance(p, f"exact {name} permutation test", least, exact=True)
    p = min(1.0, 2 * (1 + beyond) / (1 + len(others)))
    name = f"{name} permutation test, {DRAWS:,} random splits"
    return Significance(p, name, max(least, 2 / (1 + len(others))), exact=False)


def _brunner_munzel(ranks: Array, splits: Splits) -> Array:
    """The statistic of every split of the ranks: rows of `splits` mark the runs of one arm.

    Positive if that arm's are larger. Infinite if all of them are: no spread, and no chance either.
    """
    n = int(splits[0].sum())
    m = len(ranks) - n
    above = wins(ranks[:, None], ranks[None, :]).T
    inside = splits.astype(np.float64)
    # How many of the other arm's runs each run is above, ties half.
    ours = ((1 - inside) @ above)[splits].reshape(-1, n)
    theirs = (inside @ above)[~splits].reshape(-1, m)
    effect = ours.mean(1) / m - 0.5
    variance = ours.var(1, ddof=1) / (n * m**2) + theirs.var(1, ddof=1) / (m * n**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.where(effect == 0, 0.0, effect / np.sqrt(variance))
    return found


@lru_cache(maxsize=32)
def _statistics_of_splits(ranks: tuple[float, ...], n: int) -> Array:
    """The statistic of all splits, or of random ones, from small to large.

    They depend on the ranks alone, so all comparisons without ties share them. In arms of one size
    every split has a mirror image, with the statistic of the other sign.
    """
    of = np.array(ranks)
    parts = [_brunner_munzel(of, splits) for splits in _splits(len(ranks), n)]
    if 2 * n == len(ranks):
        parts += [-part for part in parts]
    return np.sort(np.concatenate(parts))


def _splits(runs: int, n: int) -> Iterator[Splits]:
    """All splits, or random ones, in parts; all but their mirror images, if they have any."""
    if math.comb(runs, n) > MOST_SPLITS:
        rng = choice_stream(0, 0, 0, "splits")
        for count in _portions():
            yield _marked(rng.random((count, runs)).argpartition(n - 1, axis=1)[:, :n], runs)
        return
    # Of a split and its mirror image, the one with the first run inside.
    fixed = int(2 * n == runs)
    chosen = combinations(range(fixed, runs), n - fixed)
    flat = np.fromiter(chain.from_iterable(chosen), dtype=np.intp).reshape(-1, n - fixed)
    for start in range(0, len(flat), AT_ONCE):
        part = _marked(flat[start : start + AT_ONCE], runs)
        part[:, :fixed] = True
        yield part


def _marked(members: npt.NDArray[np.intp], runs: int) -> Splits:
    marks = np.zeros((len(members), runs), dtype=np.bool_)
    np.put_along_axis(marks, members, True, axis=1)
    return marks


def _t_approximation(one: Array, other: Array) -> float:
    """The p of Brunner and Munzel (2000), for arms of many runs."""
    n, m = len(one), len(other)
    ranks = stats.rankdata(np.concatenate([one, other]))
    seen = abs(float(_brunner_munzel(ranks, (np.arange(n + m) < n)[None, :])[0]))
    if seen == 0 or math.isinf(seen):
        return float(seen == 0)
    parts = [
        float((ranks[at] - stats.rankdata(arm)).var(ddof=1)) * len(arm)
        for arm, at in ((one, slice(n)), (other, slice(n, None)))
    ]
    total = sum(parts)
    freedom = 1 / sum(
        (part / total) ** 2 / (size - 1) for part, size in zip(parts, (n, m), strict=True)
    )
    return float(2 * stats.t.sf(seen, freedom))
