"""How long a trainer may stay where it is: as values, without a clock."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.parallel.messages import Status
from remuda.parallel.pace import (
    FACTOR,
    PATIENCE,
    REMEMBERED,
    STARTING,
    TRAINING,
    WAITING,
    Pace,
    limit,
    patience,
    progress_of,
)
from remuda.parallel.protocol import Liveness, State, Timeouts

TIMEOUTS = Timeouts(still=30)
STUCK = Timeouts(still=30, stuck=60)
seconds = st.none() | st.floats(0, 1e6)
routines = st.sampled_from([STARTING, TRAINING, "assess", "checkpoint", "publish", "other"])


def at(batch: int, doing: str = TRAINING, cell: int = 0, rounds: int = 0) -> Status:
    return Status(
        number=1,
        state=State.PROCESSING,
        term=1,
        rounds={cell: rounds},
        cell=cell,
        batch=batch,
        batches=9,
        doing=doing,
    )


def after(stays: Iterable[tuple[float, Status]], beat: float = 1.0) -> tuple[Pace, float]:
    """A trainer that stayed at each place for so long and was asked at every beat, and the time."""
    pace, now = Pace(), 100.0
    for stay, status in stays:
        end = now + stay
        while now < end:
            pace.see(status, now)
            now += beat
    return pace, now


def steps(length: float, count: int, doing: str = TRAINING) -> list[tuple[float, Status]]:
    return [(length, at(batch, doing)) for batch in range(count)]


@given(st.floats(1, 5000), st.integers(2, 8))
def test_a_slow_worker_that_moves_is_not_delayed(step: float, count: int) -> None:
    """Every place but the first is reached after one like it, and left in the same time."""
    pace, _ = after(steps(step, count), beat=step / 5)
    assert progress_of(pace, pace.longest(TRAINING), TIMEOUTS) is Liveness.WORKING
    # Nor because all others are a thousand times faster.
    assert progress_of(pace, step / 1000, TIMEOUTS) is Liveness.WORKING


def test_a_trainer_that_stands_still_is_delayed_after_ten_times_its_pace() -> None:
    pace, now = after([*steps(20, 5), (FACTOR * 20 - 5, at(6))])
    assert progress_of(pace, 20.0, TIMEOUTS) is Liveness.WORKING
    pace.see(at(6), now + 10)
    assert progress_of(pace, 20.0, TIMEOUTS) is Liveness.DELAYED
    assert pace.still == pytest.approx(FACTOR * 20 + 5, abs=1)
    pace.see(at(7), now + 11)
    assert progress_of(pace, 20.0, TIMEOUTS) is Liveness.WORKING


def test_a_fast_one_is_given_half_a_minute_and_where_all_are_slow_ten_times_what_is_usual() -> None:
    pace, _ = after([*steps(1, 5), (40, at(6))])
    assert progress_of(pace, 1.0, TIMEOUTS) is Liveness.DELAYED
    assert progress_of(pace, 5.0, TIMEOUTS) is Liveness.WORKING
    pace, _ = after([*steps(1, 5), (28, at(6))])
    assert progress_of(pace, 1.0, TIMEOUTS) is Liveness.WORKING


def test_the_first_batches_and_what_seldom_comes_are_given_ten_minutes() -> None:
    for doing in (TRAINING, STARTING, "assess", "checkpoint"):
        assert patience(doing, None, None, TIMEOUTS) == PATIENCE * 30 == 600
    assert patience("checkpoint", 1.0, 1.0, TIMEOUTS) == 600  # seen once by chance, in a second
    assert patience("assess", 90.0, 70.0, TIMEOUTS) == 900


@given(st.sampled_from(WAITING), st.floats(0, 1e6))
def test_waiting_for_others_is_no_delay_however_long(doing: str, long: float) -> None:
    pace = Pace()
    pace.see(at(0, doing), 0.0)
    pace.see(at(0, doing), long)
    assert pace.still == 0.0
    assert progress_of(pace, 0.1, STUCK) is Liveness.WORKING
    assert pace.longest(doing) is None


@pytest.mark.parametrize("state", [State.INACTIVE, State.FINISHED])
def test_a_worker_that_has_nothing_to_train_is_never_delayed(state: State) -> None:
    pace, now = after(steps(1, 3))
    idle = at(3).model_copy(update={"state": state})
    for late in (0.0, 10_000.0):
        pace.see(idle, now + late)
    assert progress_of(pace, 1.0, STUCK) is Liveness.WORKING
    # And the time until it is given something is no stay of its trainer.
    pace.see(at(0), now + 20_000)
    pace.see(at(1), now + 20_001)
    assert pace.longest(TRAINING) == pytest.approx(1.0)


def test_scoring_is_compared_with_scoring_and_batches_with_batches() -> None:
    pace, _ = after([*steps(1, 3), (300, at(3, "assess")), *steps(1, 3)])
    assert pace.longest(TRAINING) == pytest.approx(1.0)
    assert pace.longest("assess") == pytest.approx(300.0)


def test_light_cells_do_not_make_a_heavy_one_late() -> None:
    """A worker may carry cells with networks of several sizes: the longest counts."""
    cells = [(40.0 if cell == 0 else 2.0, at(0, cell=cell)) for cell in (0, 1, 2, 3)]
    pace, _ = after([*cells, *((2.0, at(9, cell=1)), (200.0, at(9, cell=0)))])
    assert progress_of(pace, 2.0, TIMEOUTS) is Liveness.WORKING


def test_what_was_long_ago_is_forgotten() -> None:
    pace, _ = after([(500, at(0)), *steps(1, REMEMBERED + 2), (40, at(3, cell=1))])
    assert pace.longest(TRAINING) == pytest.approx(1.0)
    assert progress_of(pace, 1.0, TIMEOUTS) is Liveness.DELAYED


def test_time_in_which_nobody_could_be_heard_does_not_count() -> None:
    pace, now = after([*steps(1, 5), (2, at(6))])
    pace.see(at(6), now + 500)
    pace.excuse(500)
    assert progress_of(pace, 1.0, STUCK) is Liveness.WORKING


def test_answers_that_waited_for_the_master_do_not_look_like_a_fast_worker() -> None:
    """Moves of many minutes arrive at once: their worker is not expected to go on like that."""
    pace, now = after(steps(60, 4))
    pace.excuse(600)
    for batch in range(4, 4 + 2 * REMEMBERED):
        pace.see(at(batch), now + 600)
    assert pace.longest(TRAINING) == pytest.approx(60.0)


@given(routines, seconds, seconds, st.floats(0.1, 1e4))
def test_nobody_is_written_off_without_a_limit_or_for_its_usual_pace(
    doing: str, own: float | None, usual: float | None, stuck: float
) -> None:
    assert limit(doing, own, usual, Timeouts()) == float("inf")
    found = limit(doing, own, usual, Timeouts(stuck=stuck))
    assert found >= max(stuck, FACTOR * (own or 0.0))
    assert doing == TRAINING or found >= patience(doing, own, usual, Timeouts())


def test_with_a_limit_a_trainer_that_hangs_in_a_batch_is_dead_when_it_is_reached() -> None:
    for before in ([], steps(1, 5)):
        for stay, liveness in ((58, Liveness.WORKING), (63, Liveness.DEAD)):
            pace, _ = after([*before, (stay, at(9))])
            expected = Liveness.DELAYED if before and stay == 58 else liveness
            assert progress_of(pace, None, STUCK) is expected


def test_the_table_in_the_docs_is_that_of_the_code() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "parallel.md").read_text("utf-8")
    least, long = Timeouts().still, PATIENCE * Timeouts().still
    waiting = ", ".join(f"`{name}`" for name in WAITING)
    for row in (
        f"| {waiting} | never |",
        f"| `{TRAINING}`, if it has trained before | {FACTOR} × its pace, at least {least:.0f} s |",
        f"| anything else | {FACTOR} × its pace, at least {long:.0f} s |",
    ):
        assert row in docs
    assert f"the longest of its last {REMEMBERED} stays" in docs
