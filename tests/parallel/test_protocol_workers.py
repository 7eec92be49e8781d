"""Decisions about workers: states, liveness, placement, adoption."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.parallel.protocol import (
    TRANSITIONS,
    Capacity,
    Event,
    HostInfo,
    Liveness,
    ProtocolError,
    State,
    Timeouts,
    adopt,
    capacities,
    describe_hosts,
    liveness_of,
    may_start,
    must_fence,
    next_state,
    oldest_allowed,
    place,
    transition_table,
)

costs_of_cells = st.dictionaries(st.integers(0, 40), st.floats(0.5, 100), min_size=1, max_size=25)
# A cell's cost is its number of images, so sums are exact and there are real ties.
whole_costs = st.dictionaries(
    st.integers(0, 40), st.integers(1, 9).map(float), min_size=1, max_size=25
)
capacities_of_workers = st.lists(
    st.builds(Capacity, st.integers(1, 30), st.sampled_from([0.25, 0.5, 1.0, 2.0])),
    min_size=1,
    max_size=8,
    unique_by=lambda capacity: capacity.worker,
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
    docs = Path(__file__).parents[2] / "docs" / "parallel.md"
    assert transition_table() in docs.read_text("utf-8")
    assert transition_table().count("→") == len(TRANSITIONS)


def test_silence_is_first_a_delay_and_then_death() -> None:
    timeouts = Timeouts(interval=1, delayed=5, dead=60)
    found = [liveness_of(silence, timeouts) for silence in (0, 5, 5.1, 60, 60.1)]
    assert found == [
        Liveness.WORKING,
        Liveness.WORKING,
        Liveness.DELAYED,
        Liveness.DELAYED,
        Liveness.DEAD,
    ]
    assert liveness_of(0, timeouts, gone=True) is Liveness.DEAD


@given(st.floats(0, 1000), st.floats(1, 500))
def test_a_worker_gives_up_before_its_master_writes_it_off(silence: float, dead: float) -> None:
    timeouts = Timeouts(dead=dead)
    if liveness_of(silence, timeouts) is Liveness.DEAD:
        assert must_fence(silence, timeouts)


@given(costs_of_cells, capacities_of_workers)
def test_every_cell_is_placed_exactly_once_and_order_does_not_matter(
    costs: dict[int, float], capacities: list[Capacity]
) -> None:
    placed = place(costs, capacities)
    assert sorted(cell for cells in placed.values() for cell in cells) == sorted(costs)
    assert set(placed) == {capacity.worker for capacity in capacities}
    assert place(dict(reversed(list(costs.items()))), list(reversed(capacities))) == placed


@given(st.integers(1, 40), st.integers(1, 12))
def test_equal_cells_on_equal_workers_differ_by_at_most_one(cells: int, workers: int) -> None:
    capacities = [Capacity(worker) for worker in range(workers)]
    sizes = [len(own) for own in place(dict.fromkeys(range(cells), 3.0), capacities).values()]
    assert max(sizes) - min(sizes) <= 1


@given(whole_costs, capacities_of_workers)
def test_placement_is_the_plain_greedy_one(
    costs: dict[int, float], capacities: list[Capacity]
) -> None:
    cores = {capacity.worker: capacity.speed for capacity in capacities}
    loads = dict.fromkeys(cores, 0.0)
    plain: dict[int, list[int]] = {worker: [] for worker in cores}
    for cell in sorted(costs, key=lambda cell: (-costs[cell], cell)):
        after = {worker: (loads[worker] + costs[cell]) / cores[worker] for worker in cores}
        worker = min(after, key=lambda worker: (after[worker], worker))
        loads[worker] += costs[cell]
        plain[worker].append(cell)
    assert place(costs, capacities) == {worker: tuple(sorted(own)) for worker, own in plain.items()}


class _Counted(dict[int, float]):
    """Costs that know how often they were looked at."""

    looks = 0

    def __getitem__(self, cell: int) -> float:
        self.looks += 1
        return super().__getitem__(cell)


def test_thousands_of_workers_are_placed_and_replaced_without_comparing_all_with_all() -> None:
    costs = _Counted(dict.fromkeys(range(3000), 1.0))
    capacities = [Capacity(worker) for worker in range(3000)]
    placed = place(costs, capacities)
    assert placed == {worker: (worker,) for worker in range(3000)}
    after = adopt(placed, range(1500), costs, capacities)
    assert {len(own) for own in after.values()} == {2}
    assert costs.looks < 10 * len(costs)


def test_workers_of_a_crowded_host_get_less() -> None:
    found = {1: HostInfo("small", 1), 2: HostInfo("small", 1), 3: HostInfo("large", 64)}
    assert capacities(found, threads=1) == [Capacity(1, 0.5), Capacity(2, 0.5), Capacity(3, 1.0)]
    placed = place(dict.fromkeys(range(8), 1.0), capacities(found, threads=1))
    assert {worker: len(own) for worker, own in placed.items()} == {1: 2, 2: 2, 3: 4}


def test_threads_take_cores() -> None:
    found = {1: HostInfo("a", 4), 2: HostInfo("a", 4)}
    assert [capacity.speed for capacity in capacities(found, threads=2)] == [1.0, 1.0]
    assert [capacity.speed for capacity in capacities(found, threads=4)] == [0.5, 0.5]


def test_hosts_are_told_with_what_they_have() -> None:
    found = {2: HostInfo("b", 8, 64, ("gpu",)), 1: HostInfo("a", 4, 32), 3: HostInfo("a", 4, 32)}
    assert describe_hosts(found) == {
        "a": {"workers": 2, "cores": 4, "memory": 32, "devices": []},
        "b": {"workers": 1, "cores": 8, "memory": 64, "devices": ["gpu"]},
    }


def test_a_faster_worker_gets_more() -> None:
    capacities = [Capacity(1, 1.0), Capacity(2, 3.0)]
    sizes = {
        worker: len(own) for worker, own in place(dict.fromkeys(range(8), 1.0), capacities).items()
    }
    assert sizes == {1: 2, 2: 6}


def test_costly_cells_are_spread() -> None:
    placed = place({0: 10.0, 1: 10.0, 2: 1.0, 3: 1.0}, [Capacity(1), Capacity(2)])
    assert placed == {1: (0, 2), 2: (1, 3)}


@given(costs_of_cells, capacities_of_workers, st.data())
def test_adoption_moves_only_the_lost_cells(
    costs: dict[int, float], capacities: list[Capacity], data: st.DataObject
) -> None:
    lost = data.draw(
        st.sets(
            st.sampled_from([capacity.worker for capacity in capacities]),
            max_size=len(capacities) - 1,
        )
    )
    before = place(costs, capacities)
    after = adopt(before, lost, costs, capacities)
    assert set(after) == {capacity.worker for capacity in capacities} - lost
    assert sorted(cell for cells in after.values() for cell in cells) == sorted(costs)
    assert all(set(before[worker]) <= set(cells) for worker, cells in after.items())


@given(whole_costs, capacities_of_workers, st.data())
def test_each_lost_cell_goes_to_a_spare_or_else_the_least_loaded(
    costs: dict[int, float], capacities: list[Capacity], data: st.DataObject
) -> None:
    lost = data.draw(
        st.sets(
            st.sampled_from([capacity.worker for capacity in capacities]),
            max_size=len(capacities) - 1,
        )
    )
    before = place(costs, capacities)
    plain = {
        capacity.worker: list(before[capacity.worker])
        for capacity in capacities
        if capacity.worker not in lost
    }
    cores = {capacity.worker: capacity.speed for capacity in capacities}
    orphaned = [cell for worker in lost for cell in before[worker]]
    for cell in sorted(orphaned, key=lambda cell: (-costs[cell], cell)):
        loads = {
            worker: (bool(own), sum(costs[one] for one in own) / cores[worker], worker)
            for worker, own in plain.items()
        }
        plain[min(plain, key=lambda worker: loads[worker])].append(cell)
    expected = {worker: tuple(sorted(own)) for worker, own in plain.items()}
    assert adopt(before, lost, costs, capacities) == expected


def test_spares_adopt_first() -> None:
    placement = {1: (0,), 2: (1,), 3: (), 4: ()}
    capacities = [Capacity(worker) for worker in placement]
    assert adopt(placement, {1}, {0: 1.0, 1: 1.0}, capacities) == {2: (1,), 3: (0,), 4: ()}


def test_nobody_left_is_an_error() -> None:
    with pytest.raises(ValueError, match="no worker is left"):
        adopt({1: (0,)}, {1}, {0: 1.0}, [Capacity(1)])
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
