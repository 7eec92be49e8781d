"""Decisions about workers: states, verdicts, placement, adoption."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.protocol import (
    TRANSITIONS,
    Event,
    Patience,
    ProtocolError,
    Seat,
    State,
    Survey,
    Verdict,
    adopt,
    judge_heartbeat,
    may_start,
    must_fence,
    next_state,
    oldest_allowed,
    place,
    seats,
    survey_hosts,
    transition_table,
)

costs_of_cells = st.dictionaries(st.integers(0, 40), st.floats(0.5, 100), min_size=1, max_size=25)
# A cell's cost is its number of images, so sums are exact and there are real ties.
whole_costs = st.dictionaries(
    st.integers(0, 40), st.integers(1, 9).map(float), min_size=1, max_size=25
)
seats_of_workers = st.lists(
    st.builds(Seat, st.integers(1, 30), st.sampled_from([0.25, 0.5, 1.0, 2.0])),
    min_size=1,
    max_size=8,
    unique_by=lambda seat: seat.worker,
)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_pair_of_state_and_event_is_a_transition_or_refused(
    state: State, event: Event
) -> None:
    expected = {
        (State.INACTIVE, Event.RUN_TASK): State.PROCESSING,
        (State.PROCESSING, Event.RUN_TASK): State.PROCESSING,
        (State.FINISHED, Event.RUN_TASK): State.PROCESSING,
        (State.PROCESSING, Event.LAST_ROUND): State.FINISHED,
    }
    if (state, event) in expected:
        assert next_state(state, event) is expected[state, event]
    else:
        with pytest.raises(ProtocolError, match=f"{state} cannot take '{event}'"):
            next_state(state, event)


def test_the_table_in_the_docs_is_drawn_from_the_code() -> None:
    docs = Path(__file__).parents[1] / "docs" / "parallel.md"
    assert transition_table() in docs.read_text("utf-8")
    assert transition_table().count("→") == len(TRANSITIONS)


def test_silence_is_first_a_delay_and_then_death() -> None:
    patience = Patience(interval=1, delayed=5, dead=60)
    found = [judge_heartbeat(silence, patience) for silence in (0, 5, 5.1, 60, 60.1)]
    assert found == [
        Verdict.WORKING,
        Verdict.WORKING,
        Verdict.DELAYED,
        Verdict.DELAYED,
        Verdict.DEAD,
    ]
    assert judge_heartbeat(0, patience, gone=True) is Verdict.DEAD


@given(st.floats(0, 1000), st.floats(1, 500))
def test_a_worker_gives_up_before_its_master_writes_it_off(silence: float, dead: float) -> None:
    patience = Patience(dead=dead)
    if judge_heartbeat(silence, patience) is Verdict.DEAD:
        assert must_fence(silence, patience)


@given(costs_of_cells, seats_of_workers)
def test_every_cell_is_placed_exactly_once_and_order_does_not_matter(
    costs: dict[int, float], seats: list[Seat]
) -> None:
    placed = place(costs, seats)
    assert sorted(cell for cells in placed.values() for cell in cells) == sorted(costs)
    assert set(placed) == {seat.worker for seat in seats}
    assert place(dict(reversed(list(costs.items()))), list(reversed(seats))) == placed


@given(st.integers(1, 40), st.integers(1, 12))
def test_equal_cells_on_equal_workers_differ_by_at_most_one(cells: int, workers: int) -> None:
    seats = [Seat(worker) for worker in range(workers)]
    sizes = [len(own) for own in place(dict.fromkeys(range(cells), 3.0), seats).values()]
    assert max(sizes) - min(sizes) <= 1


@given(whole_costs, seats_of_workers)
def test_placement_is_the_plain_greedy_one(costs: dict[int, float], seats: list[Seat]) -> None:
    cores = {seat.worker: seat.speed for seat in seats}
    loads = dict.fromkeys(cores, 0.0)
    plain: dict[int, list[int]] = {worker: [] for worker in cores}
    for cell in sorted(costs, key=lambda cell: (-costs[cell], cell)):
        after = {worker: (loads[worker] + costs[cell]) / cores[worker] for worker in cores}
        worker = min(after, key=lambda worker: (after[worker], worker))
        loads[worker] += costs[cell]
        plain[worker].append(cell)
    assert place(costs, seats) == {worker: tuple(sorted(own)) for worker, own in plain.items()}


class _Counted(dict[int, float]):
    """Costs that know how often they were looked at."""

    looks = 0

    def __getitem__(self, cell: int) -> float:
        self.looks += 1
        return super().__getitem__(cell)


def test_thousands_of_workers_are_placed_and_replaced_without_comparing_all_with_all() -> None:
    costs = _Counted(dict.fromkeys(range(3000), 1.0))
    seats = [Seat(worker) for worker in range(3000)]
    placed = place(costs, seats)
    assert placed == {worker: (worker,) for worker in range(3000)}
    after = adopt(placed, range(1500), costs, seats)
    assert {len(own) for own in after.values()} == {2}
    assert costs.looks < 10 * len(costs)


def test_workers_of_a_crowded_host_get_less() -> None:
    found = {1: Survey("small", 1), 2: Survey("small", 1), 3: Survey("large", 64)}
    assert seats(found, threads=1) == [Seat(1, 0.5), Seat(2, 0.5), Seat(3, 1.0)]
    placed = place(dict.fromkeys(range(8), 1.0), seats(found, threads=1))
    assert {worker: len(own) for worker, own in placed.items()} == {1: 2, 2: 2, 3: 4}


def test_threads_take_cores() -> None:
    found = {1: Survey("a", 4), 2: Survey("a", 4)}
    assert [seat.speed for seat in seats(found, threads=2)] == [1.0, 1.0]
    assert [seat.speed for seat in seats(found, threads=4)] == [0.5, 0.5]


def test_hosts_are_told_with_what_they_have() -> None:
    found = {2: Survey("b", 8, 64, ("gpu",)), 1: Survey("a", 4, 32), 3: Survey("a", 4, 32)}
    assert survey_hosts(found) == {
        "a": {"workers": 2, "cores": 4, "memory": 32, "devices": []},
        "b": {"workers": 1, "cores": 8, "memory": 64, "devices": ["gpu"]},
    }


def test_a_faster_worker_gets_more() -> None:
    seats = [Seat(1, 1.0), Seat(2, 3.0)]
    sizes = {worker: len(own) for worker, own in place(dict.fromkeys(range(8), 1.0), seats).items()}
    assert sizes == {1: 2, 2: 6}


def test_costly_cells_are_spread() -> None:
    placed = place({0: 10.0, 1: 10.0, 2: 1.0, 3: 1.0}, [Seat(1), Seat(2)])
    assert placed == {1: (0, 2), 2: (1, 3)}


@given(costs_of_cells, seats_of_workers, st.data())
def test_adoption_moves_only_the_lost_cells(
    costs: dict[int, float], seats: list[Seat], data: st.DataObject
) -> None:
    lost = data.draw(
        st.sets(st.sampled_from([seat.worker for seat in seats]), max_size=len(seats) - 1)
    )
    before = place(costs, seats)
    after = adopt(before, lost, costs, seats)
    assert set(after) == {seat.worker for seat in seats} - lost
    assert sorted(cell for cells in after.values() for cell in cells) == sorted(costs)
    assert all(set(before[worker]) <= set(cells) for worker, cells in after.items())


@given(whole_costs, seats_of_workers, st.data())
def test_each_lost_cell_goes_to_a_spare_or_else_the_least_loaded(
    costs: dict[int, float], seats: list[Seat], data: st.DataObject
) -> None:
    lost = data.draw(
        st.sets(st.sampled_from([seat.worker for seat in seats]), max_size=len(seats) - 1)
    )
    before = place(costs, seats)
    plain = {seat.worker: list(before[seat.worker]) for seat in seats if seat.worker not in lost}
    cores = {seat.worker: seat.speed for seat in seats}
    homeless = [cell for worker in lost for cell in before[worker]]
    for cell in sorted(homeless, key=lambda cell: (-costs[cell], cell)):
        loads = {
            worker: (bool(own), sum(costs[one] for one in own) / cores[worker], worker)
            for worker, own in plain.items()
        }
        plain[min(plain, key=lambda worker: loads[worker])].append(cell)
    expected = {worker: tuple(sorted(own)) for worker, own in plain.items()}
    assert adopt(before, lost, costs, seats) == expected


def test_spares_adopt_first() -> None:
    placement = {1: (0,), 2: (1,), 3: (), 4: ()}
    seats = [Seat(worker) for worker in placement]
    assert adopt(placement, {1}, {0: 1.0, 1: 1.0}, seats) == {2: (1,), 3: (0,), 4: ()}


def test_nobody_left_is_an_error() -> None:
    with pytest.raises(ValueError, match="no worker is left"):
        adopt({1: (0,)}, {1}, {0: 1.0}, [Seat(1)])
    with pytest.raises(ValueError, match="no workers"):
        place({0: 1.0}, [])


def test_a_cell_runs_one_round_ahead_of_the_slowest_and_no_further() -> None:
    assert [may_start(round, committed=3) for round in (4, 5, 6)] == [True, True, False]


@given(round=st.integers(1, 10**6), bound=st.integers(0, 10**6))
def test_the_oldest_allowed_is_as_stale_as_the_bound_and_the_one_before_is_not(
    round: int, bound: int
) -> None:
    oldest = oldest_allowed(round, bound)
    assert 0 <= oldest <= round - 1
    staleness = round - 1 - oldest
    # Round 0 is what everybody has from the start: nobody waits for it.
    assert staleness == bound or (staleness < bound and oldest == 0)
    assert oldest_allowed(round, bound) <= oldest_allowed(round + 1, bound)


@given(st.integers(1, 10**6))
def test_without_a_bound_nobody_is_waited_for_and_a_bound_of_none_is_the_round_before(
    round: int,
) -> None:
    assert oldest_allowed(round, None) == 0
    assert oldest_allowed(round, 0) == round - 1
