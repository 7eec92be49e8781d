"""The model behind `benchmarks/predict.py` against cases that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.predict import Steps, bottleneck, cells_the_master_keeps_up_with, play, square
from remuda.config.geometry import Grid

IDEAL = Steps(cell_round=2.0, spread=0.0, exchange=0.0, report=0.0, beat=0.0, reduction=0.0)


def test_nothing_is_lost_where_nothing_costs_anything_but_training() -> None:
    assert play(IDEAL, square(16), 16).seconds == pytest.approx(2.0)
    assert play(IDEAL, square(16), 4).seconds == pytest.approx(8.0)


def test_nine_cells_on_two_workers_take_as_long_as_five() -> None:
    found = play(IDEAL, Grid(3, 3), 2)
    assert found.seconds == pytest.approx(5 * 2.0)
    assert bottleneck(IDEAL, found, 9, 2, ideal=9.0) == "uneven division"


def test_a_master_with_more_to_do_than_a_round_lasts_sets_the_pace() -> None:
    steps = replace(IDEAL, report=0.01, reduction=0.03)
    found = play(steps, square(100), 100)
    assert found.seconds == pytest.approx(100 * 0.04)
    assert found.busy == pytest.approx(1.0)
    assert bottleneck(steps, found, 100, 100, ideal=2.0) == "master"


def test_heartbeats_take_their_share_of_the_master() -> None:
    steps = replace(IDEAL, reduction=0.04, beat=0.005)
    assert play(steps, square(100), 100).seconds == pytest.approx(100 * 0.04 / 0.5)


def test_a_master_with_less_to_do_costs_nothing_because_workers_are_a_round_ahead() -> None:
    steps = replace(IDEAL, report=0.005, reduction=0.01)
    assert play(steps, square(100), 100).seconds == pytest.approx(2.0)


def test_rounds_that_vary_make_neighbours_wait_for_each_other() -> None:
    varied = play(replace(IDEAL, spread=0.1), square(64), 64).seconds
    assert 2.0 < varied < 2.0 * 1.3  # no cell waits for all of the others


def test_the_limit_is_where_the_masters_work_fills_a_round() -> None:
    steps = replace(IDEAL, report=0.001, reduction=0.003)
    assert cells_the_master_keeps_up_with(steps) == pytest.approx(
        {"scored": 500.0, "unscored": 2000.0}
    )
