from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from remuda.compare.statistics import significance as module
from remuda.compare.statistics.significance import holm, significance, smallest_p
from remuda.errors import ConfigError

NAN, INF = math.nan, math.inf
FIGURE = st.one_of(st.integers(-6, 6).map(float), st.just(NAN))
PAIRS = st.lists(st.tuples(FIGURE, FIGURE), min_size=1, max_size=7)
ARM = st.lists(FIGURE, min_size=2, max_size=5)
P_VALUES = st.lists(st.one_of(st.floats(0, 1), st.none(), st.just(NAN)), max_size=12)


def _p(a: object, b: object, *, paired: bool, lower_is_better: bool = True) -> float:
    one, other = np.asarray(a, float), np.asarray(b, float)
    found = significance(one, other, paired=paired, lower_is_better=lower_is_better)
    assert found.p is not None
    assert found.smallest <= found.p <= 1
    return found.p


def _normal(n: int, seed: int, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 1, n)


# ---------------------------------------------------------------------------- pairs


def _every_flip(apart: np.ndarray) -> float:
    sums = [abs(np.dot(signs, apart)) for signs in product((-1, 1), repeat=len(apart))]
    return float(np.mean(np.array(sums) >= abs(apart.sum()) - 1e-9))


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=8))
def test_paired_p_is_the_share_of_all_sign_flips(apart: list[int]) -> None:
    found = _p(apart, np.zeros(len(apart)), paired=True)
    assert found == pytest.approx(_every_flip(np.array(apart, float)), abs=1e-12)


def test_paired_p_is_scipys() -> None:
    a, b = _normal(11, 1, 0.6), _normal(11, 2)
    wanted = stats.permutation_test((a - b,), np.sum, permutation_type="samples", n_resamples=9999)
    found = significance(a, b, paired=True, lower_is_better=True)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-9)
    assert found.name == "exact sign-flip test of the mean difference"
    assert found.exact


def test_thirty_pairs_are_still_counted_and_close_to_student() -> None:
    a, b = _normal(30, 1, 0.5), _normal(30, 2)
    found = significance(a, b, paired=True, lower_is_better=True)
    assert found.exact
    assert found.p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=0.2)


def test_many_pairs_are_drawn_close_to_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = _normal(20, 1, 0.8), _normal(20, 2)
    exact = _p(a, b, paired=True)
    monkeypatch.setattr(module, "MOST_PAIRS", 19)
    found = significance(a, b, paired=True, lower_is_better=True)
    assert not found.exact
    assert found.smallest == 1e-5
    assert found.p == pytest.approx(exact, abs=5 * math.sqrt(exact / module.DRAWS))
    assert found == significance(a, b, paired=True, lower_is_better=True)
    # Nothing beats this, so the smallest p that draws can give is given.
    assert _p(np.arange(20.0) + 1, np.zeros(20), paired=True) == 1e-5


def test_pairs_with_a_collapsed_run_go_by_signed_ranks() -> None:
    a = [1.0, NAN, 3.0, 9.0, 2.0, NAN]
    b = [2.0, 5.0, 7.0, 2.0, INF, NAN]
    found = significance(a, b, paired=True, lower_is_better=True)
    assert found.name == "exact sign-flip test of signed ranks"
    # Sizes 0, 1, 4, 7, ∞, ∞ have ranks 1, 2, 3, 4, 5½, 5½; the tie counts neither way.
    ranks = np.array([-2, 5.5, -3, 4, -5.5, 0])
    assert found.p == pytest.approx(_every_flip(ranks))


def test_signed_ranks_without_ties_are_wilcoxons() -> None:
    b = np.zeros(9)
    a = np.array([1.5, -0.5, 2.0, 3.0, -1.0, 4.0, 5.0, 6.0, NAN])
    largest = np.where(np.isnan(a), 99.0, a)
    assert _p(a, b, paired=True) == pytest.approx(stats.wilcoxon(largest).pvalue)


def test_five_losses_to_collapsed_runs_are_as_sure_as_five_pairs_can_be() -> None:
    found = significance([1.0] * 5, [NAN] * 5, paired=True, lower_is_better=False)
    assert found.p == found.smallest == 2 / 32


def test_a_collapsed_run_counts_against_its_arm_whichever_way_is_better() -> None:
    a, b = [5.0, 6.0, 7.0, 8.0, 9.0, NAN], [4.0, 5.0, 6.0, 7.0, 8.0, 5.0]
    all_one_way = _p(a, b, paired=True, lower_is_better=True)  # larger is worse, and so is NaN
    assert all_one_way == 2 / 64
    assert _p(a, b, paired=True, lower_is_better=False) > all_one_way


# ---------------------------------------------------------------------------- two samples


def _plain_statistic(x: np.ndarray, y: np.ndarray) -> float:
    """Brunner and Munzel's formula as it is printed, with separation as infinity."""
    n, m = len(x), len(y)
    both = stats.rankdata(np.concatenate([x, y]))
    a, b = both[:n], both[n:]
    parts = [
        sum(
            (r - s - rank.mean() + (len(rank) + 1) / 2) ** 2 for r, s in zip(rank, own, strict=True)
        )
        / (len(rank) - 1)
        for rank, own in ((a, stats.rankdata(x)), (b, stats.rankdata(y)))
    ]
    above, below = n * m * (b.mean() - a.mean()), (n + m) * math.sqrt(n * parts[0] + m * parts[1])
    if abs(above) < 1e-9:
        return 0.0
    return math.copysign(INF, above) if below < 1e-9 else float(above / below)


def _every_split(x: np.ndarray, y: np.ndarray) -> float:
    both, n = np.concatenate([x, y]), len(x)
    seen = _plain_statistic(x, y)
    found = []
    for members in combinations(range(len(both)), n):
        inside = np.isin(np.arange(len(both)), members)
        found.append(_plain_statistic(both[inside], both[~inside]))
    above = sum(one >= seen or math.isclose(one, seen) for one in found)
    below = sum(one <= seen or math.isclose(one, seen) for one in found)
    return min(1.0, 2 * min(above, below) / len(found))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1.0, 4.0, 2.0, 8.0], [3.0, 9.0, 7.0, 10.0]),
        ([1.0, 1.0, 2.0], [2.0, 2.0, 3.0, 3.0, 1.0]),  # ties, unequal arms
        ([5.0, 6.0, 7.0, 8.0, NAN], [1.0, 2.0, NAN]),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]),
        ([0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]),
        ([0.0, 0.0], [1.0, 1.0, 1.0]),  # apart, and no split is as far apart the other way
    ],
)
def test_unpaired_p_is_the_share_of_all_splits(a: list[float], b: list[float]) -> None:
    wanted = _every_split(np.nan_to_num(a, nan=99.0), np.nan_to_num(b, nan=99.0))
    assert _p(a, b, paired=False) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_the_statistic_is_scipys(ties: bool) -> None:
    a, b = _normal(9, 1, 0.7), _normal(6, 2)
    if ties:
        a, b = a.round(), b.round()
    ranks = stats.rankdata(np.concatenate([a, b]))
    found = module._brunner_munzel(ranks, (np.arange(15) < 9)[None, :])[0]
    assert found == pytest.approx(-stats.brunnermunzel(a, b).statistic)


@pytest.mark.parametrize(("n", "m"), [(60, 70), (99, 40)])
def test_many_runs_get_scipys_p(n: int, m: int) -> None:
    a, b = _normal(n, 1, 0.3).round(1), _normal(m, 2).round(1)
    found = significance(a, b, paired=False, lower_is_better=True)
    assert found.name == "Brunner-Munzel test, t approximation"
    assert not found.exact
    assert found.p == pytest.approx(stats.brunnermunzel(a, b).pvalue, rel=1e-9)


def test_counted_drawn_and_approximate_p_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = _normal(10, 1, 0.2), _normal(10, 2)
    exact = _p(a, b, paired=False)
    module._statistics_of_splits.cache_clear()
    monkeypatch.setattr(module, "MOST_SPLITS", 1000)
    drawn = significance(a, b, paired=False, lower_is_better=True)
    module._statistics_of_splits.cache_clear()
    assert not drawn.exact
    assert drawn.p == pytest.approx(exact, abs=5 * math.sqrt(exact / module.DRAWS))
    assert exact == pytest.approx(stats.brunnermunzel(a, b).pvalue, rel=0.1)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (5, 5), (4, 7), (10, 10), (12, 12), (60, 60)])
def test_complete_separation_gives_the_smallest_p(n: int, m: int) -> None:
    ahead, behind = np.arange(100.0, 100 + n), np.arange(float(m))
    found = significance(ahead, behind, paired=False, lower_is_better=True)
    assert found.p == pytest.approx(found.smallest)
    wanted = 2 / math.comb(n + m, n) if n != 12 else 1 / module.DRAWS
    assert found.smallest == pytest.approx(wanted, rel=1e-4)


def test_an_unpaired_arm_of_one_run_has_no_p() -> None:
    found = significance([1.0], [2.0, 3.0, 4.0], paired=False, lower_is_better=True)
    assert found.p is None
    assert found.name == "none: an arm of one run has no spread"
    assert found.smallest == 0.5


def test_equal_arms_do_not_differ() -> None:
    same = [NAN, 1.0, 1.0, 2.0]
    assert _p(same, same, paired=True) == 1
    assert _p(same, same, paired=False) == 1
    assert _p([1.0] * 60, [1.0] * 60, paired=False) == 1


# ---------------------------------------------------------------------------- properties


@given(PAIRS, st.booleans(), st.sampled_from([0.5, 3.0, 100.0]), st.integers(-5, 5))
def test_paired_p_ignores_order_names_shift_and_scale(
    pairs: list[tuple[float, float]], lower: bool, scale: float, shift: int
) -> None:
    a, b = np.array(pairs, float).T
    order = np.random.default_rng(shift + 5).permutation(len(a))
    found = _p(a, b, paired=True, lower_is_better=lower)
    assert _p(b, a, paired=True, lower_is_better=lower) == found
    assert _p(a[order], b[order], paired=True, lower_is_better=lower) == found
    assert _p(a * scale + shift, b * scale + shift, paired=True, lower_is_better=lower) == found
    assert _p(-a, -b, paired=True, lower_is_better=not lower) == found


@given(ARM, ARM, st.booleans(), st.sampled_from([0.5, 3.0, 100.0]), st.integers(-5, 5))
def test_unpaired_p_ignores_order_names_and_all_that_keeps_ranks(
    one: list[float], other: list[float], lower: bool, scale: float, shift: int
) -> None:
    a, b = np.array(one), np.array(other)
    order = np.random.default_rng(shift + 5).permutation(len(a))
    found = _p(a, b, paired=False, lower_is_better=lower)
    assert _p(b, a, paired=False, lower_is_better=lower) == found
    assert _p(a[order], b, paired=False, lower_is_better=lower) == found
    assert _p(a * scale + shift, b * scale + shift, paired=False, lower_is_better=lower) == found
    assert _p(np.exp(a), np.exp(b), paired=False, lower_is_better=lower) == found
    assert _p(-a, -b, paired=False, lower_is_better=not lower) == found


def test_the_smallest_p_says_what_few_seeds_can_show() -> None:
    assert smallest_p(5) == 2 / 32
    assert smallest_p(6) == 2 / 64
    assert smallest_p(5, 5) == 2 / 252
    assert smallest_p(1) == smallest_p(1, 1) == 1


def test_pairs_need_the_same_seeds() -> None:
    with pytest.raises(ConfigError, match="not pairs"):
        significance([1.0, 2.0], [1.0], paired=True, lower_is_better=True)


# ---------------------------------------------------------------------------- many tests


def test_holms_own_steps() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(P_VALUES)
def test_holm_keeps_order_and_lies_between_nothing_and_bonferroni(
    p_values: list[float | None],
) -> None:
    found = holm(p_values)
    valid = [(p, q) for p, q in zip(p_values, found, strict=True) if p is not None and p == p]
    for p, q in zip(p_values, found, strict=True):
        assert (q is None) == (p is None or math.isnan(p))
    for p, q in valid:
        assert q is not None
        assert p <= q <= min(1.0, p * len(valid)) + 1e-15
    adjusted = [q for _, q in sorted(valid, key=lambda pair: pair[0]) if q is not None]
    assert adjusted == sorted(adjusted)
    assert [q for q in found if q is not None] == holm([p for p, _ in valid])


@given(P_VALUES, st.floats(0.001, 0.5))
def test_holm_rejects_what_stepping_down_rejects(
    p_values: list[float | None], alpha: float
) -> None:
    family = sorted(p for p in p_values if p is not None and p == p)
    rejected = 0
    while rejected < len(family) and family[rejected] * (len(family) - rejected) <= alpha:
        rejected += 1
    assert sum(q is not None and q <= alpha for q in holm(p_values)) == rejected
