from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from remuda.compare.statistics import ranking
from remuda.compare.statistics.ranking import critical_difference
from remuda.errors import ConfigError

# Demšar (2006), table 6: AUC of C4.5 and three variants on 14 data sets. On "voting" two arms print
# as 0.975 and have ranks 2 and 3.
DEMSAR = {
    "C4.5": "763 599 954 628 882 936 661 583 775 1000 940 619 972 957",
    "C4.5+m": "768 591 971 661 888 931 668 583 838 1000 962 666 981 978",
    "C4.5+cf": "771 590 968 654 886 916 609 563 866 1000 965 614 975.1 946",
    "C4.5+m+cf": "798 569 967 657 898 931 685 625 875 1000 962 669 975 970",
}
TABLE = {arm: [float(figure) for figure in row.split()] for arm, row in DEMSAR.items()}
FIGURE = st.integers(0, 4).map(float) | st.just(math.nan)


def _random(sets: int, arms: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 5, (sets, arms)).astype(float)


def test_demsars_example() -> None:
    found = critical_difference(TABLE, lower_is_better=False)
    assert list(found.mean_ranks) == ["C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"]
    assert list(found.mean_ranks.values()) == pytest.approx([1.964, 2.000, 2.893, 3.143], abs=5e-4)
    assert found.distance == pytest.approx(1.25, abs=0.005)
    # The largest difference, 1.18, is less than that: "the post-hoc test is not powerful enough".
    assert found.groups == (("C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"),)


def test_demsars_example_at_ten_per_cent_has_his_two_groups() -> None:
    found = critical_difference(TABLE, lower_is_better=False, alpha=0.1)
    assert found.distance == pytest.approx(1.12, abs=0.005)
    assert found.groups == (("C4.5+m+cf", "C4.5+m", "C4.5+cf"), ("C4.5+cf", "C4.5"))


def test_demsars_chi_square_and_f_but_for_ties() -> None:
    # He corrects for no ties and prints 9.28 and 3.69: give our test ranks of his means without.
    found = critical_difference(TABLE, lower_is_better=False)
    ties = 1 - (3 * 6 + 60) / (14 * 4 * 15)
    chi_square = stats.chi2.isf(found.friedman_p, 3) * ties
    assert chi_square == pytest.approx(9.28, abs=0.005)
    f = 13 * chi_square / (14 * 3 - chi_square)
    assert f == pytest.approx(3.69, abs=0.005)
    corrected = chi_square / ties
    wanted = stats.f.sf(13 * corrected / (42 - corrected), 3, 39)
    assert found.iman_davenport_p == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("alpha", "printed"),
    [
        (0.05, [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]),
        (0.10, [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]),
    ],
)
def test_demsars_table_of_critical_values(alpha: float, printed: list[float]) -> None:
    found = [ranking._quantile(arms, alpha) for arms in range(2, 11)]
    assert found == pytest.approx(printed, abs=0.0012)


def test_friedmans_p_is_scipys_and_the_f_is_that_of_an_analysis_of_ranks() -> None:
    values = _random(9, 4)
    table = {f"arm {at}": column for at, column in enumerate(values.T)}
    found = critical_difference(table, lower_is_better=True)
    assert found.friedman_p == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)
    # Two-way analysis of variance of the ranks: arms against the residual.
    ranks = stats.rankdata(values, axis=1)
    arms = 9 * ((ranks.mean(0) - 2.5) ** 2).sum()
    rest = ((ranks - ranks.mean(0)) ** 2).sum()
    f = (arms / 3) / (rest / (3 * 8))
    assert found.iman_davenport_p == pytest.approx(stats.f.sf(f, 3, 24))


def test_arms_in_the_same_order_everywhere_differ_and_equal_ones_do_not() -> None:
    apart = {name: np.arange(20.0) + 100 * at for at, name in enumerate("abcd")}
    found = critical_difference(apart, lower_is_better=True)
    assert found.mean_ranks == {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    assert found.friedman_p < 1e-10
    assert found.iman_davenport_p == 0
    assert found.groups == (("a", "b"), ("b", "c"), ("c", "d"))  # 1 apart; the distance is 1.05
    alike = critical_difference({name: [1.0] * 5 for name in "ab"}, lower_is_better=True)
    assert (alike.friedman_p, alike.iman_davenport_p) == (1, 1)
    assert alike.groups == (("a", "b"),)


def test_a_collapsed_arm_is_last_whichever_way_is_better() -> None:
    table = {"broken": [math.nan] * 5, "sound": [1.0, -2.0, 3.0, 0.0, 5.0]}
    for lower in (True, False):
        found = critical_difference(table, lower_is_better=lower)
        assert found.mean_ranks == {"sound": 1.0, "broken": 2.0}
        assert json.dumps(asdict(found), allow_nan=False)


@given(st.lists(st.lists(FIGURE, min_size=3, max_size=3), min_size=5, max_size=8), st.booleans())
def test_groups_hold_all_pairs_within_the_distance_and_no_others(
    rows: list[list[float]], lower: bool
) -> None:
    table = dict(zip("abc", map(list, zip(*rows, strict=True)), strict=True))
    found = critical_difference(table, lower_is_better=lower)
    assert sum(found.mean_ranks.values()) == pytest.approx(6)
    for one in "abc":
        for other in "abc":
            if one != other:
                near = abs(found.mean_ranks[one] - found.mean_ranks[other]) <= found.distance
                assert any({one, other} <= set(group) for group in found.groups) == near
    # No group is a part of another.
    sets = [set(group) for group in found.groups]
    assert not any(a < b for a in sets for b in sets)


def test_too_little_to_rank_is_refused() -> None:
    with pytest.raises(ConfigError, match="over 4 data sets say nothing: at least 5 are needed"):
        critical_difference({"a": [1.0] * 4, "b": [2.0] * 4}, lower_is_better=True)
    with pytest.raises(ConfigError, match=r"every arm needs a figure for every data set.*a 5, b 6"):
        critical_difference({"a": [1.0] * 5, "b": [2.0] * 6}, lower_is_better=True)
    with pytest.raises(ConfigError, match="arms to rank: a; at least two"):
        critical_difference({"a": [1.0] * 5}, lower_is_better=True)
