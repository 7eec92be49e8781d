from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.compare.statistics.curves import band, cost_to_reach, summarise_costs
from remuda.errors import ConfigError

NAN, INF = math.nan, math.inf
CURVES = st.lists(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(-5, 5) | st.just(NAN)),
        max_size=6,
        unique_by=lambda point: point[0],
    ),
    max_size=5,
)


def test_a_target_is_reached_at_the_first_cost_that_has_it() -> None:
    costs, scores = [1.0, 2.0, 3.0, 4.0], [9.0, NAN, 5.0, 2.0]
    assert cost_to_reach(costs, scores, 5.0, lower_is_better=True) == 3.0
    assert cost_to_reach(costs, scores, 4.9, lower_is_better=True) == 4.0  # nothing in between
    assert cost_to_reach(costs, scores, 1.0, lower_is_better=True) is None
    assert cost_to_reach(costs, scores, 6.0, lower_is_better=False) == 1.0


def test_a_score_that_is_not_finite_reaches_nothing() -> None:
    for score in (NAN, INF, -INF):
        for lower in (True, False):
            assert cost_to_reach([1.0], [score], 0.0, lower_is_better=lower) is None
    assert cost_to_reach([], [], 0.0, lower_is_better=True) is None


def test_costs_need_not_come_in_order() -> None:
    assert cost_to_reach([3.0, 1.0, 2.0], [0.0, 5.0, 0.0], 1.0, lower_is_better=True) == 2.0


def test_runs_that_never_reach_a_target_cost_more_than_all_others() -> None:
    found = summarise_costs([4.0, None, 1.0, 2.0, None])
    assert (found.n, found.reached, found.share) == (5, 3, 0.6)
    assert (found.q1, found.median, found.q3) == (2.0, 4.0, None)
    assert summarise_costs([1.0, None]).median is None
    assert summarise_costs([None, None]).share == 0
    with pytest.raises(ConfigError, match="no runs"):
        summarise_costs([])


def test_costs_that_all_runs_have_are_summarised_as_usual() -> None:
    costs = list(np.random.default_rng(0).random(8))
    found = summarise_costs(costs)
    wanted = tuple(np.quantile(costs, [0.25, 0.5, 0.75]))
    assert (found.q1, found.median, found.q3) == pytest.approx(wanted)


def test_a_band_carries_scores_forward_and_starts_with_half_of_the_runs() -> None:
    curves = [
        ([1.0, 4.0], [10.0, 6.0]),
        ([2.0, 3.0], [8.0, 4.0]),
        ([2.5], [1.0]),
    ]
    found = band(curves, lower_is_better=True)
    assert found.grid == (2.0, 2.5, 3.0, 4.0)  # at 1, only one run of three has a score
    assert found.median == (9.0, 8.0, 4.0, 4.0)
    assert found.q1 == (8.5, 4.5, 2.5, 2.5)
    assert found.q3 == (9.5, 9.0, 7.0, 5.0)


def test_runs_that_collapse_leave_the_band_at_its_bad_end() -> None:
    curves = [([1.0, 2.0], [3.0, NAN]), ([1.0, 2.0], [2.0, 1.0]), ([1.0, 2.0], [4.0, 2.0])]
    low, high = (band(curves, lower_is_better=lower) for lower in (True, False))
    assert (low.q1[1], low.median[1], low.q3[1]) == (1.5, 2.0, None)
    assert (high.q1[1], high.median[1], high.q3[1]) == (None, 1.0, 1.5)
    assert json.loads(json.dumps(asdict(low), allow_nan=False))["q3"] == [3.5, None]


@given(CURVES, st.booleans())
def test_a_band_is_the_quartiles_of_what_each_run_last_scored(
    curves: list[list[tuple[int, float]]], lower: bool
) -> None:
    pairs = [([float(c) for c, _ in curve], [float(s) for _, s in curve]) for curve in curves]
    found = band(pairs, lower_is_better=lower)
    grid: list[float] = []
    for cost in sorted({cost for curve in curves for cost, _ in curve}):
        last = [
            max((p for p in curve if p[0] <= cost), default=None) for curve in map(_plain, curves)
        ]
        scores = [point[1] for point in last if point is not None]
        if 2 * len(scores) < len(curves):
            continue
        at = len(grid)
        grid.append(float(cost))
        # A collapsed run as a number far beyond all others: a quartile that it touches is huge.
        worst = 1e12 if lower else -1e12
        values = [worst if math.isnan(score) else score for score in scores]
        for mine, q in ((found.q1, 0.25), (found.median, 0.5), (found.q3, 0.75)):
            wanted = float(np.quantile(values, q))
            assert (mine[at] is None) == (abs(wanted) > 1e6)
            assert mine[at] is None or mine[at] == pytest.approx(wanted)
    assert found.grid == tuple(grid)


def _plain(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return sorted(curve, key=lambda point: point[0])
