"""Shares of collapsed runs: their intervals against closed forms, their tests against counting."""

from __future__ import annotations

from itertools import product
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from remuda.compare.statistics.shares import same_share, share
from remuda.errors import ConfigError


@pytest.mark.parametrize("of", [1, 5, 10, 40])
def test_where_it_never_or_always_happened_the_interval_is_the_closed_form(of: int) -> None:
    never, always = share(0, of), share(of, of)
    # The share at which `of` runs of the other kind in a row have a chance of 0.025.
    edge = 0.025 ** (1 / of)
    assert (never.low, never.high) == pytest.approx((0, 1 - edge))
    assert (always.low, always.high) == pytest.approx((edge, 1))


@given(st.integers(1, 30).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_the_interval_ends_where_the_count_becomes_unlikely(case: tuple[int, int]) -> None:
    count, of = case
    found = share(count, of)
    assert found.low <= count / of <= found.high
    if count:
        assert stats.binom.sf(count - 1, of, found.low) == pytest.approx(0.025, rel=1e-3)
    if count < of:
        assert stats.binom.cdf(count, of, found.high) == pytest.approx(0.025, rel=1e-3)


@pytest.mark.parametrize(("count", "of"), [(0, 0), (3, 2), (-1, 4)])
def test_what_is_no_share_is_refused(count: int, of: int) -> None:
    with pytest.raises(ConfigError, match=f"{count} of {of} runs"):
        share(count, of)


def test_pairs_are_tested_by_those_that_differ() -> None:
    a = [True] * 7 + [False] * 3
    b = [False] * 6 + [True] + [False] * 2 + [True]
    # Six pairs only in a, one only in b; both ends of a fair coin thrown seven times.
    both_ends = 2 * sum(comb(7, k) for k in (0, 1)) / 2**7
    found = same_share(a, b, paired=True)
    assert found.p == pytest.approx(both_ends)
    assert same_share(a, a, paired=True).p == 1.0
    assert found.smallest == pytest.approx(2 / 2**10)


@pytest.mark.parametrize(("first", "second"), [((10, 10), (0, 10)), ((3, 10), (2, 8))])
def test_unpaired_arms_are_tested_either_way_alike(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    one, other = ([True] * n + [False] * (of - n) for n, of in (first, second))
    p = same_share(one, other, paired=False).p
    assert p is not None
    assert p == pytest.approx(same_share(other, one, paired=False).p)
    assert (p < 0.001) == (first == (10, 10))


def test_it_errs_no_more_often_than_it_says() -> None:
    """Over all outcomes of two alike arms of six runs, whatever the common share."""
    outcomes = list(product(range(7), repeat=2))
    rejected = [
        (k, m)
        for k, m in outcomes
        if (same_share([True] * k + [False] * (6 - k), [True] * m + [False] * (6 - m), paired=False)
            .p or 1.0) <= 0.05
    ]  # fmt: skip
    assert rejected
    for common in (0.1, 0.3, 0.5, 0.7):
        weight = stats.binom.pmf(range(7), 6, common)
        assert sum(weight[k] * weight[m] for k, m in rejected) <= 0.05 + 1e-6


@pytest.mark.parametrize("fallen", [True, False])
def test_arms_that_all_fared_alike_differ_in_nothing(fallen: bool) -> None:
    assert same_share([fallen] * 4, [fallen] * 6, paired=False).p == 1.0
