"""What every engine promises: inherit the suite, say how to make one, and run it."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell import Parcel
from remuda.comm import CommManager


def parcel(cell: int, round: int) -> Parcel:
    tensors = {
        "weights": torch.tensor([float(cell), float(round)]),
        "step": torch.tensor(7, dtype=torch.int64),
        "empty": torch.zeros(0, 3),
        "statistics": torch.full((2, 2), cell + round / 3, dtype=torch.float64),
    }
    meta = {"genes": {"loss": "heuristic", "learning_rate": 0.1 + 0.2}, "memory": {"fitness": None}}
    return Parcel(cell, round, tensors, meta)


def names(parcels: list[Parcel]) -> list[tuple[int, int]]:
    return [(found.cell, found.round) for found in parcels]


class CommContract(ABC):
    """One suite for all engines: those who inherit it cannot differ in what a method sees."""

    @abstractmethod
    def make(self) -> CommManager:
        """An engine that carries nothing yet."""

    def test_what_was_published_is_collected_unchanged(self) -> None:
        comm, sent = self.make(), parcel(3, 1)
        comm.publish(sent)
        (found,) = comm.collect([3], 1)
        assert (found.cell, found.round) == (3, 1)
        assert dict(found.meta) == dict(sent.meta)
        assert found.tensors.keys() == sent.tensors.keys()
        for name, value in sent.tensors.items():
            assert found.tensors[name].dtype == value.dtype
            assert found.tensors[name].equal(value)

    def test_parcels_come_in_the_order_asked_for(self) -> None:
        comm = self.make()
        for cell in (2, 0, 3, 1):
            comm.publish(parcel(cell, 0))
        assert names(comm.collect([1, 3, 0], 0)) == [(1, 0), (3, 0), (0, 0)]
        assert names(comm.collect((0, 1, 2, 3), 0)) == [(0, 0), (1, 0), (2, 0), (3, 0)]

    def test_whoever_asks_for_nobody_gets_nothing(self) -> None:
        assert self.make().collect([], 5) == []

    def test_rounds_are_kept_apart(self) -> None:
        comm = self.make()
        for round in (0, 1, 2):
            comm.publish(parcel(0, round))
        for round in (1, 0, 2):
            (found,) = comm.collect([0], round)
            assert found.tensors["weights"].tolist() == [0.0, round]

    def test_collecting_takes_nothing_away(self) -> None:
        comm = self.make()
        comm.publish(parcel(0, 0))
        assert names(comm.collect([0], 0)) == names(comm.collect([0], 0)) == [(0, 0)]

    def test_the_same_cell_may_be_asked_for_twice(self) -> None:
        comm = self.make()
        comm.publish(parcel(0, 0))
        assert names(comm.collect([0, 0], 0)) == [(0, 0), (0, 0)]

    def test_a_round_nobody_published_is_an_error_that_names_it(self) -> None:
        comm = self.make()
        comm.publish(parcel(0, 1))
        with pytest.raises(LookupError, match="round 2"):
            comm.collect([0], 2)
        with pytest.raises(LookupError, match="round 0"):
            comm.collect([0], 0)

    def test_a_missing_cell_is_an_error_that_names_it(self) -> None:
        comm = self.make()
        comm.publish(parcel(0, 1))
        with pytest.raises(LookupError, match="17"):
            comm.collect([0, 17], 1)

    def test_a_second_parcel_of_a_round_is_refused_and_the_first_stays(self) -> None:
        comm = self.make()
        comm.publish(parcel(4, 2))
        other = Parcel(4, 2, {"weights": torch.ones(1)}, {})
        with pytest.raises(ValueError, match="cell 4 published round 2 twice"):
            comm.publish(other)
        (found,) = comm.collect([4], 2)
        assert "statistics" in found.tensors

    def test_forgetting_drops_the_rounds_before_and_no_other(self) -> None:
        comm = self.make()
        for round in range(4):
            for cell in (0, 1):
                comm.publish(parcel(cell, round))
        comm.forget(2)
        for round in (0, 1):
            with pytest.raises(LookupError):
                comm.collect([0], round)
        for round in (2, 3):
            assert names(comm.collect([1, 0], round)) == [(1, round), (0, round)]

    def test_forgetting_what_is_not_there_is_no_error(self) -> None:
        comm = self.make()
        comm.forget(10)
        comm.publish(parcel(0, 10))
        comm.forget(10)
        comm.forget(3)
        assert names(comm.collect([0], 10)) == [(0, 10)]

    @given(
        published=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=20),
        asked=st.lists(st.integers(0, 5), max_size=6),
        round=st.integers(0, 4),
        forgotten=st.integers(0, 5),
    )
    def test_exactly_what_was_published_and_not_forgotten_can_be_collected(
        self, published: set[tuple[int, int]], asked: list[int], round: int, forgotten: int
    ) -> None:
        comm = self.make()
        for cell, when in published:
            comm.publish(parcel(cell, when))
        comm.forget(forgotten)
        there = {key for key in published if key[1] >= forgotten}
        wanted = [(cell, round) for cell in asked]
        if set(wanted) <= there:
            assert names(comm.collect(asked, round)) == wanted
        else:
            with pytest.raises(LookupError):
                comm.collect(asked, round)
