"""What the figures of two arms say: how large they are, how far apart, and who wins how often.

An arm has one figure per seed. A figure that is not finite, of a run that collapsed, is the worst
there is: worse than any number and as bad as any other of its kind. What goes by order counts it
so; what adds figures up answers None, and says how many there were. None stands wherever a figure
would be infinite, so that everything here can be written as JSON.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from remuda.errors import ConfigError
from remuda.streams import choice_stream

Array = npt.NDArray[np.float64]
Figures = Sequence[float] | Array

RESAMPLES = 9999
# From which probability on an effect is called so (Vargha and Delaney 2000).
EFFECTS = ((0.71, "large"), (0.64, "medium"), (0.56, "small"))
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


@dataclass(frozen=True)
class Summary:
    """The figures of one arm; quartiles over all runs, the least and the most of finite figures."""

    n: int
    not_finite: int
    median: float | None
    q1: float | None
    q3: float | None
    mean: float | None
    deviation: float | None
    least: float | None
    most: float | None


@dataclass(frozen=True)
class Difference:
    """The mean of A less that of B, an interval for it, and how that was found."""

    estimate: float | None
    low: float | None
    high: float | None
    how: str


@dataclass(frozen=True)
class Chance:
    """That A beats B with a seed that neither has seen: an estimate and an interval."""

    probability: float
    low: float
    high: float


def summarise(values: Figures, *, lower_is_better: bool) -> Summary:
    """Order statistics with collapsed runs as the worst; a mean only if no run collapsed."""
    figures = worst_for_broken(values, lower_is_better=lower_is_better)
    finite = figures[np.isfinite(figures)]
    whole = 0 < len(finite) == len(figures)
    q1, median, q3 = quartiles(figures)
    return Summary(
        n=len(figures),
        not_finite=len(figures) - len(finite),
        median=median,
        q1=q1,
        q3=q3,
        mean=float(finite.mean()) if whole else None,
        deviation=float(finite.std(ddof=1)) if whole and len(finite) > 1 else None,
        least=float(finite.min()) if len(finite) else None,
        most=float(finite.max()) if len(finite) else None,
    )


def difference(
    a: Figures, b: Figures, *, paired: bool, confidence: float = 0.95, seed: int = 0
) -> Difference:
    """The mean difference a − b with a BCa bootstrap interval; where that fails, Student's."""
    one, other = two_arms(a, b, paired=paired)
    broken = sum(int((~np.isfinite(arm)).sum()) for arm in (one, other))
    if broken:
        return Difference(
            None, None, None, f"none: {broken} of {len(one) + len(other)} figures are not finite"
        )
    samples = (one - other,) if paired else (one, other)
    estimate = _mean_difference(*samples)
    least = min(map(len, samples))
    if least < 2:
        return Difference(estimate, None, None, "no interval: a single run has no spread")
    if all(np.ptp(sample) == 0 for sample in samples):
        return Difference(estimate, estimate, estimate, "no spread: all figures are equal")
    if least > 2:
        low, high = _bca(samples, confidence, seed)
        if math.isfinite(low) and math.isfinite(high):
            return Difference(estimate, low, high, f"BCa bootstrap, {RESAMPLES:,} resamples")
    why = "there are two runs" if least == 2 else "BCa has no answer"
    name = "Student's t" if paired else "Welch's t"
    return Difference(estimate, *_student(samples, confidence), f"{name}, as {why}")


def vargha_delaney(a: Figures, b: Figures, *, lower_is_better: bool) -> float:
    """A12: how likely a random run of A is better than a random run of B; ties count half."""
    one, other = two_arms(a, b, paired=False)
    ours, theirs = (worst_for_broken(x, lower_is_better=lower_is_better) for x in (one, other))
    larger = float(wins(ours[:, None], theirs[None, :]).mean())
    return 1 - larger if lower_is_better else larger


def effect_word(probability: float) -> str:
    """The usual word for an effect of this probability, whichever side it favours."""
    size = round(max(probability, 1 - probability), 12)
    return next((word for least, word in EFFECTS if size >= least), "negligible")


def next_seed_wins(
    a: Figures, b: Figures, *, paired: bool, lower_is_better: bool, confidence: float = 0.95
) -> Chance:
    """How likely A beats B on the next seed; ties count half.

    Paired: the posterior of the share of seeds that A wins, under Jeffreys' prior. Unpaired: A12,
    drawn towards one half as that prior would from as many pairs, in Newcombe's (2006) score
    interval, which needs no spread: it holds where all of A beat all of B.
    """
    one, other = two_arms(a, b, paired=paired)
    if not paired:
        n, m = len(one), len(other)
        share = vargha_delaney(one, other, lower_is_better=lower_is_better)
        pairs = 2 * n * m / (n + m)
        low, high = _newcombe(share, n, m, confidence)
        return Chance((share * pairs + 0.5) / (pairs + 1), low, high)
    ours, theirs = (worst_for_broken(x, lower_is_better=lower_is_better) for x in (one, other))
    larger = float(wins(ours, theirs).sum())
    won = len(ours) - larger if lower_is_better else larger
    lost = len(ours) - won
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    low, high = special.betaincinv(won + 0.5, lost + 0.5, tails)
    return Chance((won + 0.5) / (len(ours) + 1), float(low), float(high))


def stars(p: float | None) -> str:
    """One, two or three for a p below 0.05, 0.01, 0.001."""
    return next((mark for most, mark in STARS if p is not None and p < most), "")


# ---------------------------------------------------------------------------- shared


def worst_for_broken(values: Figures, *, lower_is_better: bool) -> Array:
    """Figures with infinity, of the sign that is worst, for all that are not finite."""
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, np.inf if lower_is_better else -np.inf)


def two_arms(a: Figures, b: Figures, *, paired: bool) -> tuple[Array, Array]:
    """Both as arrays; refused if one is empty, or if they should be pairs and are not."""
    one, other = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not len(one) or not len(other):
        raise ConfigError(f"nothing to compare: arms of {len(one)} and {len(other)} runs")
    if paired and len(one) != len(other):
        raise ConfigError(
            f"arms of {len(one)} and {len(other)} runs are not pairs: both need the same seeds"
        )
    return one, other


def quartiles(values: Array) -> tuple[float | None, float | None, float | None]:
    """As numpy's, but infinite figures may be among them; None for one that is not finite."""
    ordered = np.sort(values)
    found: list[float | None] = []
    for place in (len(ordered) - 1) * np.array([0.25, 0.5, 0.75]):
        around = ordered[[math.floor(place), math.ceil(place)]] if len(ordered) else np.array([])
        if len(around) and np.isfinite(around).all():
            found.append(float(around[0] + (around[1] - around[0]) * (place % 1)))
        else:
            found.append(None)
    q1, median, q3 = found
    return q1, median, q3


def wins(ours: Array, theirs: Array) -> Array:
    """1 where ours is larger, 0 where theirs is, one half where they are equal."""
    share: Array = (ours > theirs) + 0.5 * (ours == theirs)
    return share


# ---------------------------------------------------------------------------- intervals


def _mean_difference(one: Array, other: Array | None = None) -> float:
    return float(one.mean() if other is None else one.mean() - other.mean())


def _bca(samples: tuple[Array, ...], confidence: float, seed: int) -> tuple[float, float]:
    def along(one: Array, other: Array | None = None, *, axis: int) -> Array:
        mean: Array = one.mean(axis) if other is None else one.mean(axis) - other.mean(axis)
        return mean

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # hardly any spread: the answer is NaN
        found = stats.bootstrap(
            samples,
            along,
            n_resamples=RESAMPLES,
            vectorized=True,
            confidence_level=confidence,
            method="BCa",
            random_state=choice_stream(seed, 0, 0, "bootstrap"),
        ).confidence_interval
    return float(found.low), float(found.high)


def _student(samples: tuple[Array, ...], confidence: float) -> tuple[float, float]:
    """Student's interval for one sample, Welch's for two."""
    parts = [float(sample.var(ddof=1)) / len(sample) for sample in samples]
    total, middle = sum(parts), _mean_difference(*samples)
    if total == 0:
        return middle, middle
    freedom = 1 / sum(
        (part / total) ** 2 / (len(sample) - 1) for part, sample in zip(parts, samples, strict=True)
    )
    reach = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(total)
    return middle - reach, middle + reach


def _newcombe(share: float, n: int, m: int, confidence: float) -> tuple[float, float]:
    """Newcombe's fifth interval for A12: all values that are not too far from the one found."""
    z = float(stats.norm.ppf((1 + confidence) / 2))

    def excess(x: float) -> float:
        """The squared distance from what was found, less the largest that chance explains."""
        more = (n + m) / 2 - 1
        spread = x * (1 - x) * (1 + more * ((1 - x) / (2 - x) + x / (1 + x))) / (n * m)
        return (x - share) ** 2 - z**2 * spread

    # At 0 and 1 chance explains nothing, and the excess is 0 there if that is what was found.
    low = float(optimize.brentq(excess, 0.0, min(share, 1 - 1e-9))) if share > 0 else 0.0
    high = float(optimize.brentq(excess, max(share, 1e-9), 1.0)) if share < 1 else 1.0
    return low, high
