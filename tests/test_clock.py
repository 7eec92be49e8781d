"""The clock adds up: routines and `other` are all there is."""

from __future__ import annotations

from contextlib import suppress

import pytest

from remuda.clock import Clock


class Time:
    """A clock on the wall that only moves when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Time:
    wall = Time()
    monkeypatch.setattr("remuda.clock.time.perf_counter", wall)
    return wall


def test_seconds_are_summed_by_routine_and_the_rest_is_other(wall: Time) -> None:
    clock = Clock()
    with clock.routine("train"):
        wall.now += 3
    wall.now += 0.5
    with clock.routine("mutate"):
        wall.now += 1
    with clock.routine("train"):
        wall.now += 2
    wall.now += 0.25
    assert clock.seconds() == {"train": 5.0, "mutate": 1.0, "other": 0.75}


def test_it_says_which_routine_it_is_in_after_an_error_too() -> None:
    clock = Clock()
    seen = [clock.current]
    with suppress(ValueError), clock.routine("train"):
        seen.append(clock.current)
        with clock.routine("assess"):
            seen.append(clock.current)
        seen.append(clock.current)
        raise ValueError
    assert [*seen, clock.current] == ["other", "train", "assess", "train", "other"]


def test_the_parts_sum_to_the_whole(wall: Time) -> None:
    clock = Clock()
    for number in range(7):
        with clock.routine(f"routine {number % 3}"):
            wall.now += 0.1 * number
        wall.now += 0.01
    assert sum(clock.seconds().values()) == pytest.approx(wall.now - 100, abs=1e-5)


def test_a_new_clock_has_only_other(wall: Time) -> None:
    clock = Clock()
    wall.now += 2
    assert clock.seconds() == {"other": 2.0}


def test_time_measured_elsewhere_can_be_added(wall: Time) -> None:
    clock = Clock()
    clock.add("gather", 1.5)
    clock.add("gather", 0.5)
    wall.now += 3
    assert clock.seconds() == {"gather": 2.0, "other": 1.0}


def test_other_is_never_negative(wall: Time) -> None:
    clock = Clock()
    clock.add("gather", 9.0)
    assert clock.seconds() == {"gather": 9.0, "other": 0.0}


def test_a_routine_that_fails_is_timed_too(wall: Time) -> None:
    clock = Clock()

    def fail() -> None:
        with clock.routine("train"):
            wall.now += 4
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert clock.seconds()["train"] == 4.0


def test_asking_does_not_stop_the_clock(wall: Time) -> None:
    clock = Clock()
    wall.now += 1
    assert clock.seconds() == {"other": 1.0}
    wall.now += 1
    assert clock.seconds() == {"other": 2.0}


def test_two_clocks_do_not_mix(wall: Time) -> None:
    left, right = Clock(), Clock()
    with left.routine("train"):
        wall.now += 1
    assert "train" not in right.seconds()


def test_waiting_costs_no_cpu_seconds(monkeypatch: pytest.MonkeyPatch, wall: Time) -> None:
    cpu = Time()
    monkeypatch.setattr("remuda.clock.time.process_time", cpu)
    clock = Clock()
    with clock.routine("wait"):
        wall.now += 10
    cpu.now += 0.5
    assert clock.cpu_seconds() == 0.5
