from __future__ import annotations

import math

import pytest
from scipy import integrate, stats

from remuda.compare.statistics.power import detectable, power


def _t_power(n: int, effect: float, level: float, paired: bool) -> float:
    """By the definition of a noncentral t: a normal over an independent root of a chi-square."""
    freedom, shift = (n - 1, math.sqrt(n)) if paired else (2 * n - 2, math.sqrt(n / 2))
    bound = float(stats.t.isf(level / 2, freedom))

    def beyond(s: float) -> float:
        edge = bound * math.sqrt(s / freedom)
        found = stats.norm.sf(edge - effect * shift) + stats.norm.cdf(-edge - effect * shift)
        return float(found * stats.chi2.pdf(s, freedom))

    return float(integrate.quad(beyond, 0, 200)[0])


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("n", "effect"), [(6, 1.0), (10, 1.0), (10, 0.3), (20, 0.7)])
def test_power_is_that_of_students_t_at_the_level_the_permutations_have(
    n: int, effect: float, paired: bool
) -> None:
    ways = 2**n if paired else math.comb(2 * n, n)
    level = (ways // 40) * 2 / ways  # the largest share of them in two equal tails up to 0.05
    assert power(n, effect, paired=paired) == pytest.approx(
        _t_power(n, effect, level, paired), abs=1e-6
    )


def test_power_is_near_the_tables() -> None:
    # Cohen (1988): ten seeds and one deviation, 0.80 for pairs and 0.56 for two samples.
    assert power(10, 1.0, paired=True) == pytest.approx(0.80, abs=0.005)
    assert power(10, 1.0, paired=False) == pytest.approx(0.56, abs=0.005)
    assert power(64, 0.5, paired=False) == pytest.approx(0.80, abs=0.005)


def test_without_a_difference_power_is_the_level() -> None:
    assert power(10, 0.0, paired=True) == pytest.approx(25 * 2 / 1024)
    assert power(20, 0.0, paired=False, alpha=0.01) == pytest.approx(0.01, rel=1e-3)


def test_too_few_seeds_show_nothing_however_large_the_difference() -> None:
    assert power(5, 100.0, paired=True) == 0
    assert power(3, 100.0, paired=False) == 0
    assert power(1, 100.0, paired=False) == 0
    assert detectable(5, paired=True) is None
    assert detectable(5, paired=True, alpha=0.07) is not None


def test_huge_differences_are_found_for_certain_and_either_way() -> None:
    for effect in (30.0, -30.0, 300.0):
        assert power(10, effect, paired=True) == pytest.approx(1)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n", [6, 10, 20])
def test_what_is_detectable_is_found_with_the_power_wanted(n: int, paired: bool) -> None:
    for wanted in (0.5, 0.8):
        effect = detectable(n, paired=paired, wanted=wanted)
        assert effect is not None
        assert power(n, effect, paired=paired) == pytest.approx(wanted, abs=1e-6)


def test_ten_paired_seeds_show_one_deviation() -> None:
    assert detectable(10, paired=True) == pytest.approx(1.0, abs=0.01)
