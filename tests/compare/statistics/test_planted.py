"""Simulated comparisons whose truth is known: how often the statistics are right about it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from remuda.compare.statistics import summaries
from remuda.compare.statistics.power import power
from remuda.compare.statistics.significance import holm, significance
from remuda.compare.statistics.summaries import difference, next_seed_wins, stars

SEEDS = 10


def _figures(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Normal figures, or as skewed as FIDs of unstable runs are."""
    noise = rng.normal(size=shape)
    return noise if kind == "normal" else np.exp(noise)


def _within(count: int, of: int, rate: float) -> bool:
    """Whether a count is where all but one of a thousand would be at this rate."""
    low, high = stats.binom.interval(0.999, of, rate)
    return bool(low <= count <= high)


@pytest.mark.parametrize("kind", ["normal", "skewed"])
@pytest.mark.parametrize("paired", [True, False])
def test_arms_that_are_alike_get_a_star_in_one_comparison_of_twenty(
    kind: str, paired: bool
) -> None:
    """Three arms and three scores, all pairs, one family: a star anywhere is a false one."""
    rng = np.random.default_rng([1, kind == "normal"])
    comparisons, starred = 200, 0
    for _ in range(comparisons):
        by_seed = rng.normal(size=(3, 1, SEEDS)) * paired  # what arms with one seed share
        figures = _figures(rng, kind, (3, 3, SEEDS)) + by_seed
        p_values = [
            significance(score[one], score[other], paired=paired, lower_is_better=True).p
            for score in figures
            for one, other in combinations(range(3), 2)
        ]
        starred += any(stars(p) for p in holm(p_values))
    print(f"{kind}, paired {paired}: a false star in {starred} of {comparisons} comparisons")
    assert starred <= stats.binom.ppf(0.999, comparisons, 0.05)


@pytest.mark.parametrize("paired", [True, False])
def test_a_better_arm_is_found_as_often_as_theory_says(paired: bool) -> None:
    rng = np.random.default_rng(2)
    comparisons, found = 1000, 0
    for _ in range(comparisons):
        worse, better = _figures(rng, "normal", (2, SEEDS)) / (np.sqrt(2) if paired else 1)
        p = significance(better + 1, worse, paired=paired, lower_is_better=False).p
        found += p is not None and p < 0.05
    theory = power(SEEDS, 1.0, paired=paired)
    print(f"paired {paired}: found in {found} of {comparisons}; Student's t: {theory:.3f}")
    # Brunner and Munzel's statistic looks at ranks alone, which costs three per cent.
    assert _within(found, comparisons, theory if paired else theory - 0.03)


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_hold_the_truth_nearly_as_often_as_they_say(
    paired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BCa intervals of ten seeds hold it in some 90 of 100 cases, not 95."""
    monkeypatch.setattr(summaries, "RESAMPLES", 999)
    rng = np.random.default_rng(3)
    comparisons, held = 150, 0
    for _ in range(comparisons):
        a, b = _figures(rng, "normal", (2, SEEDS))
        found = difference(a, b, paired=paired)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0 <= found.high
    print(f"paired {paired}: {held} of {comparisons} intervals hold the difference")
    assert _within(held, comparisons, 0.90 if paired else 0.92)


@pytest.mark.parametrize("paired", [True, False])
def test_chances_of_the_next_seed_hold_the_truth_as_often_as_they_say(paired: bool) -> None:
    rng = np.random.default_rng(4)
    comparisons, held = 150, 0
    truth = stats.norm.cdf(1 / np.sqrt(2))
    for _ in range(comparisons):
        a, b = _figures(rng, "normal", (2, SEEDS))
        found = next_seed_wins(a + 1, b, paired=paired, lower_is_better=False)
        held += found.low <= truth <= found.high
    print(f"paired {paired}: {held} of {comparisons} intervals hold the chance {truth:.3f}")
    assert _within(held, comparisons, 0.95)
