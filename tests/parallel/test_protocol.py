"""The run's decisions, compared as values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.parallel.protocol import Liveness, State, WorkerStatus
from remuda.runs.costs import acceptance_rate, sum_costs
from remuda.runs.retention import checkpoint_due, checkpoints_to_drop, lines_to_keep, sheet_due

rounds = st.integers(1, 1000)
losses = st.dictionaries(st.integers(0, 200), st.none() | st.floats(allow_nan=False), max_size=30)


def test_checkpoints_come_every_so_many_rounds_and_at_the_end() -> None:
    assert [r for r in range(1, 11) if checkpoint_due(r, every=3, rounds=10)] == [3, 6, 9, 10]
    assert [r for r in range(1, 4) if checkpoint_due(r, every=1, rounds=3)] == [1, 2, 3]
    assert [r for r in range(1, 6) if checkpoint_due(r, every=99, rounds=5)] == [5]


@given(every=rounds, last=rounds)
def test_the_last_round_is_always_saved_and_drawn(every: int, last: int) -> None:
    assert checkpoint_due(last, every=every, rounds=last)
    assert sheet_due(last, every=every, rounds=last)
    assert sheet_due(last, every=0, rounds=last)


@given(every=st.integers(1, 50), last=st.integers(1, 300))
def test_no_more_than_so_many_rounds_lie_between_two_checkpoints(every: int, last: int) -> None:
    saved = [r for r in range(1, last + 1) if checkpoint_due(r, every=every, rounds=last)]
    gaps = [after - before for before, after in zip([0, *saved], saved, strict=False)]
    assert max(gaps) <= every


def test_sheets_come_every_so_many_rounds_and_at_the_end() -> None:
    assert [r for r in range(1, 13) if sheet_due(r, every=5, rounds=12)] == [5, 10, 12]
    assert [r for r in range(1, 13) if sheet_due(r, every=0, rounds=12)] == [12]


# ---------------------------------------------------------------------------- dropping


@pytest.mark.parametrize(
    ("found", "keep_last", "keep_best", "dropped"),
    [
        ({}, 2, True, []),
        ({1: 5.0}, 2, True, []),
        ({1: 5.0, 2: 4.0, 3: 3.0, 4: 2.0}, 2, True, [1, 2]),
        ({1: 1.0, 2: 4.0, 3: 3.0, 4: 2.0}, 2, True, [2]),
        ({1: 1.0, 2: 4.0, 3: 3.0, 4: 2.0}, 2, False, [1, 2]),
        ({1: None, 2: None, 3: None}, 1, True, [1, 2]),
        ({1: None, 2: 7.0, 3: None, 4: None}, 1, True, [1, 3]),
        ({3: 1.0, 1: 1.0, 2: 1.0}, 1, True, [2]),
        ({1: -2.0, 2: -3.0, 3: -1.0}, 1, True, [1]),
    ],
)
def test_which_checkpoints_go(
    found: dict[int, float | None], keep_last: int, keep_best: bool, dropped: list[int]
) -> None:
    assert checkpoints_to_drop(found, keep_last=keep_last, keep_best=keep_best) == dropped


@given(found=losses, keep_last=st.integers(1, 9), keep_best=st.booleans())
def test_neither_the_newest_nor_the_best_is_ever_dropped(
    found: dict[int, float | None], keep_last: int, keep_best: bool
) -> None:
    dropped = checkpoints_to_drop(found, keep_last=keep_last, keep_best=keep_best)
    left = set(found) - set(dropped)
    assert dropped == sorted(set(dropped))
    assert set(dropped) <= set(found)
    assert set(sorted(found)[-keep_last:]) <= left
    scored = [loss for loss in found.values() if loss is not None]
    if keep_best and scored:
        assert min(scored) in [found[round] for round in left]
    assert len(left) <= keep_last + keep_best


@given(found=losses, keep_last=st.integers(1, 9), keep_best=st.booleans())
def test_dropping_again_drops_nothing(
    found: dict[int, float | None], keep_last: int, keep_best: bool
) -> None:
    dropped = checkpoints_to_drop(found, keep_last=keep_last, keep_best=keep_best)
    left = {round: loss for round, loss in found.items() if round not in dropped}
    assert checkpoints_to_drop(left, keep_last=keep_last, keep_best=keep_best) == []


@given(
    scores=st.lists(st.none() | st.floats(allow_nan=False), min_size=1, max_size=30),
    keep_last=st.integers(1, 4),
)
def test_over_a_whole_run_the_best_of_all_rounds_survives(
    scores: list[float | None], keep_last: int
) -> None:
    disk: dict[int, float | None] = {}
    for round, loss in enumerate(scores, start=1):
        disk[round] = loss
        for old in checkpoints_to_drop(disk, keep_last=keep_last, keep_best=True):
            del disk[old]
    assert len(scores) in disk
    scored = [loss for loss in scores if loss is not None]
    if scored:
        assert min(scored) in disk.values()


# ---------------------------------------------------------------------------- events


def test_events_of_rounds_that_will_be_trained_again_go() -> None:
    assert lines_to_keep([None, 1, 1, 2, None, 2, 3], committed=2) == [0, 1, 2, 3, 4, 5]
    assert lines_to_keep([None, 1, 1, 2, None], committed=0) == [0, 4]
    assert lines_to_keep([], committed=4) == []


@given(numbers=st.lists(st.none() | st.integers(0, 9), max_size=20), committed=st.integers(0, 9))
def test_history_stays_and_order_too(numbers: list[int | None], committed: int) -> None:
    kept = lines_to_keep(numbers, committed)
    assert kept == sorted(kept)
    for place, number in enumerate(numbers):
        assert (place in kept) == (number is None or number <= committed)


def test_acceptance_is_the_share_of_offspring_that_became_the_centre_by_role() -> None:
    def event(generator: object, discriminator: object) -> dict[str, object]:
        return {
            "centre": {"generator": {"from": generator}, "discriminator": {"from": discriminator}}
        }

    events = [event("offspring", 2), event(0, "offspring"), event("offspring", "offspring"), {}]
    assert acceptance_rate(events) == {"generator": 2 / 3, "discriminator": 2 / 3}


def test_methods_without_replacement_have_no_acceptance_rate() -> None:
    assert acceptance_rate([{"event": "started"}, {"event": "round", "cell": 0}]) == {}


# ---------------------------------------------------------------------------------- costs


SPENT = st.dictionaries(st.sampled_from(["train", "gather", "other"]), st.floats(0, 1e4))
MOVED = st.dictionaries(st.sampled_from(["gathered", "published", "saved"]), st.integers(0, 10**9))


@given(st.lists(st.tuples(SPENT, MOVED), min_size=1))
def test_costs_are_the_sums_over_cells_and_rounds(
    rounds: list[tuple[dict[str, float], dict[str, int]]],
) -> None:
    events: list[dict[str, Any]] = [
        {"event": "round", "seconds": seconds, "bytes": moved} for seconds, moved in rounds
    ]
    costs = sum_costs([{"event": "started"}, *events, {"event": "population", "seconds": 5.0}])
    assert costs.cell_rounds == len(rounds)
    for name in ("train", "gather", "other"):
        total = sum(seconds.get(name, 0.0) for seconds, _ in rounds)
        assert costs.seconds.get(name, 0.0) == pytest.approx(total)
    for name in ("gathered", "published", "saved"):
        total = sum(moved.get(name, 0) for _, moved in rounds)
        assert costs.bytes.get(name, 0) == total
        if name in costs.bytes:
            stored = costs.to_json()["bytes"][name]
            assert stored == {"total": total, "per_cell_round": round(total / len(rounds))}
    spent = list(costs.seconds.values())
    assert spent == sorted(spent, reverse=True)


def test_no_rounds_cost_nothing() -> None:
    nothing = {"cell_rounds": 0, "images": 0, "batches": 0, "cpu_seconds": 0.0}
    assert sum_costs([]).to_json() == {**nothing, "routines": {}, "bytes": {}}


def test_what_is_known_of_a_worker_survives_its_way_through_a_file() -> None:
    before = WorkerStatus(2, "a", 17, State.FINISHED, Liveness.DELAYED, 1.25, (3, 4), {3: 7, 4: 6})
    assert WorkerStatus.from_json(json.loads(json.dumps(before.to_json()))) == before
