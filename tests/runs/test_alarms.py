"""Alarms: what is wrong is told, and nothing else is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.gan.objectives import OBJECTIVES
from remuda.runs.alarms import GRACE_BATCHES, find_alarms


def kinds(**changes: Any) -> list[str]:
    healthy = {
        "batches": GRACE_BATCHES + 1,
        "diverged": False,
        "discriminator_loss": 0.6,
        "objective": "heuristic",
        "classes": 10,
        "real_classes": 10,
        "duplicates": 0.0,
    }
    return [alarm.kind for alarm in find_alarms(**{**healthy, **changes})]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("batches", [1, 10 * GRACE_BATCHES])
def test_a_healthy_cell_raises_none(objective: str, batches: int) -> None:
    assert kinds(objective=objective, batches=batches) == []


def test_data_that_nothing_can_score_raise_none() -> None:
    assert kinds(classes=None, real_classes=None, duplicates=None) == []
    assert kinds(classes=0, real_classes=0) == []


@pytest.mark.parametrize("batches", [1, GRACE_BATCHES, 10 * GRACE_BATCHES])
def test_divergence_is_told_at_once(batches: int) -> None:
    assert kinds(diverged=True, batches=batches) == ["diverged"]


@pytest.mark.parametrize(("loss", "told"), [(0.0, True), (0.001, True), (0.1, False)])
def test_a_discriminator_that_hardly_errs_is_told_at_once(loss: float, told: bool) -> None:
    for batches in (1, 10 * GRACE_BATCHES):
        assert kinds(discriminator_loss=loss, batches=batches) == ["saturated"] * told


@pytest.mark.parametrize("loss", [-50.0, 0.0, 0.001])
def test_the_loss_of_a_critic_says_nothing_about_saturation(loss: float) -> None:
    assert kinds(discriminator_loss=loss, objective="wasserstein") == []


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_not_saturation(loss: float) -> None:
    assert kinds(discriminator_loss=loss) == []
    assert kinds(discriminator_loss=loss, diverged=True) == ["diverged"]


@pytest.mark.parametrize(("classes", "told"), [(0, True), (1, True), (4, True), (5, False)])
def test_fewer_than_half_of_the_classes_is_collapse(classes: int, told: bool) -> None:
    assert kinds(classes=classes) == ["collapsed"] * told


@pytest.mark.parametrize(("share", "told"), [(0.0, False), (0.5, False), (0.51, True), (1.0, True)])
def test_copies_are_told_when_they_are_the_most(share: float, told: bool) -> None:
    assert kinds(duplicates=share) == ["duplicates"] * told


def test_a_generator_gets_a_fair_start() -> None:
    collapsed: dict[str, Any] = {"classes": 1, "duplicates": 1.0}
    assert kinds(**collapsed, batches=GRACE_BATCHES // 2) == []
    assert kinds(**collapsed, batches=GRACE_BATCHES) == ["collapsed", "duplicates"]


def test_the_words_carry_the_figures_and_an_advice() -> None:
    alarms = find_alarms(
        batches=GRACE_BATCHES,
        diverged=True,
        discriminator_loss=0.0042,
        objective="heuristic",
        classes=2,
        real_classes=10,
        duplicates=0.87,
    )
    text = " | ".join(alarm.message for alarm in alarms)
    for figure in ("NaN", "0.0042", "2 of 10", "87%"):
        assert figure in text
    assert all(alarm.advice for alarm in alarms)
    assert len({alarm.kind for alarm in alarms}) == len(alarms) == 4


@given(
    batches=st.integers(0, 10**7),
    diverged=st.booleans(),
    loss=st.floats(),
    objective=st.sampled_from(sorted(OBJECTIVES)),
    classes=st.none() | st.integers(0, 100),
    real=st.none() | st.integers(0, 100),
    duplicates=st.none() | st.floats(0, 1),
)
def test_whatever_is_seen_it_is_told_at_most_once(
    batches: int,
    diverged: bool,
    loss: float,
    objective: str,
    classes: int | None,
    real: int | None,
    duplicates: float | None,
) -> None:
    found = kinds(
        batches=batches,
        diverged=diverged,
        discriminator_loss=loss,
        objective=objective,
        classes=classes,
        real_classes=real,
        duplicates=duplicates,
    )
    assert len(set(found)) == len(found)
    assert ("diverged" in found) == diverged
