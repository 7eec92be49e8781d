from __future__ import annotations

import json
import math
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from remuda.compare.statistics import summaries
from remuda.compare.statistics.summaries import (
    Chance,
    Figures,
    difference,
    effect_word,
    next_seed_wins,
    quartiles,
    stars,
    summarise,
    vargha_delaney,
)
from remuda.errors import ConfigError

NAN, INF = math.nan, math.inf
# Whole numbers, so that ties are ties after any shift and scale; some runs collapsed.
FIGURE = st.one_of(st.integers(-20, 20).map(float), st.sampled_from([NAN, INF]))
ARM = st.lists(FIGURE, min_size=1, max_size=9)
PAIRS = st.lists(st.tuples(FIGURE, FIGURE), min_size=1, max_size=9)


def _normal(n: int, seed: int = 0, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 1, n)


# ---------------------------------------------------------------------------- summaries


def test_a_summary_is_numpys() -> None:
    values = _normal(11)
    found = summarise(values, lower_is_better=True)
    q1, median, q3 = np.quantile(values, [0.25, 0.5, 0.75])
    assert (found.n, found.not_finite) == (11, 0)
    assert found.q1 == pytest.approx(q1)
    assert found.median == pytest.approx(median)
    assert found.q3 == pytest.approx(q3)
    assert found.mean == pytest.approx(values.mean())
    assert found.deviation == pytest.approx(values.std(ddof=1))
    assert (found.least, found.most) == (values.min(), values.max())


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_quartiles_of_finite_figures_are_numpys(values: list[float]) -> None:
    found = quartiles(np.array(values))
    assert found == pytest.approx(tuple(np.quantile(values, [0.25, 0.5, 0.75])), abs=1e-6)


def test_collapsed_runs_are_the_worst_whichever_way_is_better() -> None:
    values = [1.0, 2.0, 3.0, NAN, -INF]
    low, high = (summarise(values, lower_is_better=lower) for lower in (True, False))
    assert (low.q1, low.median, low.q3) == (2.0, 3.0, None)
    assert (high.q1, high.median, high.q3) == (None, 1.0, 2.0)
    for found in (low, high):
        assert (found.n, found.not_finite) == (5, 2)
        assert found.mean is None
        assert found.deviation is None
        assert (found.least, found.most) == (1.0, 3.0)


def test_a_quartile_between_a_figure_and_a_collapsed_run_is_none() -> None:
    assert summarise([1.0, NAN], lower_is_better=True).median is None
    assert summarise([1.0, 2.0, NAN], lower_is_better=True).median == 2.0


@pytest.mark.parametrize("values", [[], [NAN, NAN], [4.0]])
def test_summaries_of_hardly_anything_can_be_written(values: list[float]) -> None:
    found = summarise(values, lower_is_better=False)
    assert found.n == len(values)
    assert found.deviation is None
    assert json.loads(json.dumps(asdict(found), allow_nan=False)) == asdict(found)


# ---------------------------------------------------------------------------- differences


@pytest.mark.parametrize("paired", [True, False])
def test_a_difference_is_that_of_the_means_inside_scipys_interval(paired: bool) -> None:
    a, b = _normal(10, 1, 2.0), _normal(10, 2)
    found = difference(a, b, paired=paired)
    assert found.estimate == pytest.approx(a.mean() - b.mean())
    # Another seed and another form of the statistic: the ends agree but for resampling noise.
    wanted = stats.bootstrap(
        (a, b),
        lambda x, y: x.mean() - y.mean(),
        paired=paired,
        vectorized=False,
        n_resamples=4000,
        random_state=np.random.default_rng(5),
    ).confidence_interval
    assert found.low == pytest.approx(wanted.low, abs=0.06)
    assert found.high == pytest.approx(wanted.high, abs=0.06)
    assert found.how == "BCa bootstrap, 9,999 resamples"


def test_an_interval_is_the_same_every_time_and_depends_on_its_seed() -> None:
    a, b = _normal(8, 1), _normal(8, 2)
    again = [difference(a, b, paired=False, seed=seed) for seed in (0, 0, 1)]
    assert again[0] == again[1]
    assert again[0] != again[2]


def test_more_confidence_is_a_wider_interval() -> None:
    a, b = _normal(8, 1), _normal(8, 2)
    some, more = (difference(a, b, paired=True, confidence=level) for level in (0.5, 0.99))
    assert some.low is not None
    assert some.high is not None
    assert more.low is not None
    assert more.high is not None
    assert more.low < some.low < some.high < more.high


def test_two_runs_get_students_interval() -> None:
    a, b = [1.0, 2.0], [4.0, 9.0]
    pairs = difference(a, b, paired=True)
    wanted = stats.ttest_1samp([-3.0, -7.0], 0).confidence_interval()
    assert (pairs.low, pairs.high) == pytest.approx((wanted.low, wanted.high))
    assert pairs.how == "Student's t, as there are two runs"
    apart = difference(a, b, paired=False)
    wanted = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert (apart.low, apart.high) == pytest.approx((wanted.low, wanted.high))
    assert apart.how == "Welch's t, as there are two runs"


def test_an_answer_that_bca_does_not_give_is_students(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "_bca", lambda *_: (NAN, 1.0))
    found = difference([1.0, 2.0, 4.0], [0.0, 0.0, 0.0], paired=True)
    wanted = stats.ttest_1samp([1.0, 2.0, 4.0], 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert found.how == "Student's t, as BCa has no answer"


def test_degenerate_differences_say_what_they_are() -> None:
    same = difference([3.0, 4.0, 5.0], [1.0, 2.0, 3.0], paired=True)
    assert (same.estimate, same.low, same.high) == (2.0, 2.0, 2.0)
    assert same.how == "no spread: all figures are equal"
    single = difference([3.0], [1.0, 2.0], paired=False)
    assert (single.estimate, single.low, single.high) == (1.5, None, None)
    assert single.how == "no interval: a single run has no spread"
    broken = difference([3.0, NAN, 1.0], [INF, 2.0, 1.0], paired=True)
    assert (broken.estimate, broken.low, broken.high) == (None, None, None)
    assert broken.how == "none: 2 of 6 figures are not finite"


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), st.booleans())
def test_every_difference_is_inside_its_interval(values: list[float], paired: bool) -> None:
    found = difference(values, [0.0] * len(values), paired=paired)
    assert found.estimate is not None
    if found.low is not None and found.high is not None:
        slack = 1e-9 * max(1.0, abs(found.estimate))
        assert found.low - slack <= found.estimate <= found.high + slack


# ---------------------------------------------------------------------------- effects


@given(ARM, ARM, st.booleans())
def test_a12_counts_the_pairs_that_a_wins(a: list[float], b: list[float], lower: bool) -> None:
    def badness(x: float) -> float:
        return (x if lower else -x) if math.isfinite(x) else INF

    won = [
        0.5 if badness(x) == badness(y) else float(badness(x) < badness(y))
        for x, y in product(a, b)
    ]
    found = vargha_delaney(a, b, lower_is_better=lower)
    assert found == pytest.approx(sum(won) / len(won))
    assert vargha_delaney(b, a, lower_is_better=lower) == pytest.approx(1 - found)


def test_a12_is_mann_and_whitneys_share() -> None:
    a, b = _normal(9, 1), _normal(12, 2)
    u = stats.mannwhitneyu(a, b).statistic
    assert vargha_delaney(a, b, lower_is_better=False) == pytest.approx(u / (9 * 12))


def test_effects_have_the_usual_words_on_both_sides() -> None:
    words = {0.5: "negligible", 0.559: "negligible", 0.56: "small", 0.64: "medium", 0.71: "large"}
    for probability, word in words.items():
        assert effect_word(probability) == word
        assert effect_word(1 - probability) == word
    assert effect_word(0.0) == "large"


def test_stars_stand_for_the_usual_levels() -> None:
    marks = {0.05: "", 0.0499: "*", 0.01: "*", 0.0099: "**", 0.001: "**", 0.0009: "***"}
    assert {p: stars(p) for p in marks} == marks
    assert stars(None) == stars(NAN) == ""


# ---------------------------------------------------------------------------- the next seed


def test_jeffreys_posterior_of_paired_wins() -> None:
    a, b = [1.0, 1.0, 1.0, 9.0, 2.0], [2.0, 3.0, NAN, 1.0, 2.0]  # 3 won, 1 lost, 1 tied
    found = next_seed_wins(a, b, paired=True, lower_is_better=True)
    posterior = stats.beta(4.0, 2.0)
    assert found.probability == pytest.approx(4 / 6)
    assert (found.low, found.high) == pytest.approx(tuple(posterior.ppf([0.025, 0.975])))


def _inverted(share: float, n: int, m: int) -> tuple[float, float]:
    """Newcombe's interval by trying every value, with Hanley and McNeil's own terms."""
    x = np.linspace(0, 1, 200_001)
    q1, q2, size = x / (2 - x), 2 * x**2 / (1 + x), (n + m) / 2
    spread = x * (1 - x) + (size - 1) * (q1 - x**2) + (size - 1) * (q2 - x**2)
    near = x[np.abs(x - share) <= stats.norm.ppf(0.975) * np.sqrt(spread / (n * m))]
    return float(near.min()), float(near.max())


@pytest.mark.parametrize(("n", "m", "shift"), [(10, 10, 0.5), (5, 9, 1.0), (5, 5, 99.0)])
def test_unpaired_chances_are_within_newcombes_interval(n: int, m: int, shift: float) -> None:
    a, b = _normal(n, 1, shift), _normal(m, 2)
    share = vargha_delaney(a, b, lower_is_better=False)
    found = next_seed_wins(a, b, paired=False, lower_is_better=False)
    assert (found.low, found.high) == pytest.approx(_inverted(share, n, m), abs=1e-5)
    assert found.low < found.probability < found.high


def test_five_wins_of_five_are_not_certain() -> None:
    ahead, behind = np.arange(5.0), np.arange(5.0) + 100
    for paired in (True, False):
        found = next_seed_wins(ahead, behind, paired=paired, lower_is_better=True)
        assert found.probability == pytest.approx(5.5 / 6)
        assert 0.5 < found.low < 0.75


@given(PAIRS, st.booleans(), st.booleans())
def test_chances_are_inside_their_intervals_and_swap(
    pairs: list[tuple[float, float]], paired: bool, lower: bool
) -> None:
    a, b = zip(*pairs, strict=True)

    def chance(x: Figures, y: Figures) -> Chance:
        return next_seed_wins(x, y, paired=paired, lower_is_better=lower)

    found, swapped = chance(a, b), chance(b, a)
    assert 0 <= found.low <= found.probability <= found.high <= 1
    wanted = (1 - swapped.probability, 1 - swapped.high, 1 - swapped.low)
    assert (found.probability, found.low, found.high) == pytest.approx(wanted, abs=1e-9)


# ---------------------------------------------------------------------------- refusals


def test_arms_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to compare: arms of 0 and 2 runs"):
        vargha_delaney([], [1.0, 2.0], lower_is_better=True)
    with pytest.raises(ConfigError, match="arms of 1 and 2 runs are not pairs"):
        difference([1.0], [1.0, 2.0], paired=True)
