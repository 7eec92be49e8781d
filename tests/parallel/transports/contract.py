"""What every engine promises: inherit the suite, say how to make one, and run it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.gan.parcels import Parcel
from remuda.parallel.exchange import CancelledError, Exchange
from tests.parallel.transports.scripted import parcel


def names(parcels: list[Parcel]) -> list[tuple[int, int]]:
    return [(found.cell, found.round) for found in parcels]


class ExchangeContract(ABC):
    """One suite for all engines: those who inherit it cannot differ in what a method sees."""

    @abstractmethod
    def make(self) -> Exchange:
        """An engine that carries nothing yet."""

    def test_what_was_published_is_collected_unchanged(self) -> None:
        exchange, sent = self.make(), parcel(3, 1)
        exchange.put(1, sent)
        (found,) = exchange.get(1, [3], 1)
        assert (found.cell, found.round) == (3, 1)
        assert dict(found.meta) == dict(sent.meta)
        assert found.tensors.keys() == sent.tensors.keys()
        for name, value in sent.tensors.items():
            assert found.tensors[name].dtype == value.dtype
            assert found.tensors[name].equal(value)

    def test_parcels_come_in_the_order_asked_for(self) -> None:
        exchange = self.make()
        for cell in (2, 0, 3, 1):
            exchange.put(1, parcel(cell, 0))
        assert names(exchange.get(1, [1, 3, 0], 0)) == [(1, 0), (3, 0), (0, 0)]
        assert names(exchange.get(1, (0, 1, 2, 3), 0)) == [(0, 0), (1, 0), (2, 0), (3, 0)]

    def test_whoever_asks_for_nobody_gets_nothing(self) -> None:
        assert self.make().get(1, [], 5) == []

    def test_rounds_are_kept_apart(self) -> None:
        exchange = self.make()
        for round in (0, 1, 2):
            exchange.put(1, parcel(0, round))
        for round in (1, 0, 2):
            (found,) = exchange.get(1, [0], round)
            assert found.tensors["weights"].tolist() == [0.0, round]

    def test_collecting_takes_nothing_away(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(0, 0))
        assert names(exchange.get(1, [0], 0)) == names(exchange.get(1, [0], 0)) == [(0, 0)]

    def test_the_same_cell_may_be_asked_for_twice(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(0, 0))
        assert names(exchange.get(1, [0, 0], 0)) == [(0, 0), (0, 0)]

    def test_a_round_nobody_published_is_an_error_that_names_it(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(0, 1))
        with pytest.raises(LookupError, match="round 2"):
            exchange.get(1, [0], 2)
        with pytest.raises(LookupError, match="round 0"):
            exchange.get(1, [0], 0)

    def test_a_missing_cell_is_an_error_that_names_it(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(0, 1))
        with pytest.raises(LookupError, match="17"):
            exchange.get(1, [0, 17], 1)

    def test_a_second_parcel_of_a_round_is_refused_and_the_first_stays(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(4, 2))
        other = Parcel(4, 2, {"weights": torch.ones(1)}, {})
        with pytest.raises(ValueError, match="cell 4 published round 2 twice"):
            exchange.put(1, other)
        (found,) = exchange.get(1, [4], 2)
        assert "statistics" in found.tensors

    def test_forgetting_drops_the_rounds_before_and_no_other(self) -> None:
        exchange = self.make()
        for round in range(4):
            for cell in (0, 1):
                exchange.put(1, parcel(cell, round))
        exchange.forget(1, 2)
        for round in (0, 1):
            with pytest.raises(LookupError):
                exchange.get(1, [0], round)
        for round in (2, 3):
            assert names(exchange.get(1, [1, 0], round)) == [(1, round), (0, round)]

    def test_forgetting_what_is_not_there_is_no_error(self) -> None:
        exchange = self.make()
        exchange.forget(1, 10)
        exchange.put(1, parcel(0, 10))
        exchange.forget(1, 10)
        exchange.forget(1, 3)
        assert names(exchange.get(1, [0], 10)) == [(0, 10)]

    @settings(suppress_health_check=[HealthCheck.differing_executors])
    @given(
        published=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=20),
        asked=st.lists(st.integers(0, 5), max_size=6),
        round=st.integers(0, 4),
        forgotten=st.integers(0, 5),
    )
    def test_exactly_what_was_published_and_not_forgotten_can_be_collected(
        self, published: set[tuple[int, int]], asked: list[int], round: int, forgotten: int
    ) -> None:
        exchange = self.make()
        for cell, when in published:
            exchange.put(1, parcel(cell, when))
        exchange.forget(1, forgotten)
        there = {key for key in published if key[1] >= forgotten}
        wanted = [(cell, round) for cell in asked]
        if set(wanted) <= there:
            assert names(exchange.get(1, asked, round)) == wanted
        else:
            with pytest.raises(LookupError):
                exchange.get(1, asked, round)

    def test_terms_do_not_see_each_other(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(0, 3))
        with pytest.raises(LookupError):
            exchange.get(2, [0], 3)
        exchange.put(2, parcel(0, 3))
        assert names(exchange.get(2, [0], 3)) == [(0, 3)]

    def test_a_new_term_forgets_the_old_ones(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(0, 9))
        exchange.put(2, parcel(0, 4))
        exchange.forget(2, 4)
        with pytest.raises(LookupError):
            exchange.get(1, [0], 9)
        assert names(exchange.get(2, [0], 4)) == [(0, 4)]

    def test_waiting_ends_when_the_parcel_comes(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(0, 1))
        timer = threading.Timer(0.05, lambda: exchange.put(1, parcel(2, 1)))
        timer.start()
        assert names(exchange.wait(1, [2, 0], 1, lambda: False)) == [(2, 1), (0, 1)]
        timer.join()

    def test_waiting_ends_when_it_is_called_off(self) -> None:
        exchange, called_off = self.make(), threading.Event()
        timer = threading.Timer(0.05, called_off.set)
        timer.start()
        with pytest.raises(CancelledError):
            exchange.wait(1, [0], 1, called_off.is_set)
        timer.join()

    # ------------------------------------------------------------------------ mailboxes

    @settings(suppress_health_check=[HealthCheck.differing_executors])
    @given(rounds=st.lists(st.integers(0, 20), min_size=1, max_size=6, unique=True).map(sorted))
    def test_the_newest_parcel_wins(self, rounds: list[int]) -> None:
        exchange = self.make()
        for round in rounds:
            exchange.put(1, parcel(2, round))
            assert names([exchange.newest(1, 2)]) == [(2, round)]

    def test_what_is_in_a_mailbox_is_unchanged_and_stays(self) -> None:
        exchange, sent = self.make(), parcel(3, 1)
        exchange.put(1, sent)
        for found in (exchange.newest(1, 3), exchange.newest(1, 3)):
            assert dict(found.meta) == dict(sent.meta)
            assert found.tensors.keys() == sent.tensors.keys()
            assert all(found.tensors[name].equal(value) for name, value in sent.tensors.items())

    def test_an_empty_mailbox_is_an_error_that_names_the_cell(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(0, 0))
        with pytest.raises(LookupError, match="17"):
            exchange.newest(1, 17)

    def test_a_refused_parcel_does_not_reach_the_mailbox(self) -> None:
        exchange = self.make()
        for round in (1, 2):
            exchange.put(1, parcel(0, round))
        with pytest.raises(ValueError, match="twice"):
            exchange.put(1, parcel(0, 1))
        assert names([exchange.newest(1, 0)]) == [(0, 2)]

    def test_mailboxes_outlive_the_rounds_that_are_forgotten(self) -> None:
        """A slow cell's newest parcel may be older than what everybody has completed."""
        exchange = self.make()
        exchange.put(1, parcel(0, 1))
        exchange.forget(1, 5)
        assert names([exchange.newest(1, 0)]) == [(0, 1)]

    def test_mailboxes_of_other_terms_are_others(self) -> None:
        exchange = self.make()
        exchange.put(1, parcel(0, 9))
        with pytest.raises(LookupError):
            exchange.newest(2, 0)
        exchange.put(2, parcel(0, 4))
        assert names([exchange.newest(2, 0)]) == [(0, 4)]
        exchange.forget(2, 4)
        assert names([exchange.newest(2, 0)]) == [(0, 4)]
        with pytest.raises(LookupError):
            exchange.newest(1, 0)

    def test_what_is_new_enough_is_not_waited_for(self) -> None:
        exchange = self.make()
        for cell, round in ((0, 3), (1, 7), (2, 5)):
            exchange.put(1, parcel(cell, round))
        found = exchange.wait_for_newest(1, [2, 0, 1], 3, lambda: False)
        assert names(found) == [(2, 5), (0, 3), (1, 7)]

    @pytest.mark.parametrize("first", [None, 1])
    def test_what_is_too_old_is_waited_for(self, first: int | None) -> None:
        exchange = self.make()
        if first is not None:
            exchange.put(1, parcel(0, first))

        def publish() -> None:
            for round in (2, 3):
                exchange.put(1, parcel(0, round))

        timer = threading.Timer(0.05, publish)
        timer.start()
        assert names(exchange.wait_for_newest(1, [0], 3, lambda: False)) == [(0, 3)]
        timer.join()

    def test_waiting_for_the_newest_ends_when_it_is_called_off(self) -> None:
        exchange, called_off = self.make(), threading.Event()
        exchange.put(1, parcel(0, 2))
        timer = threading.Timer(0.05, called_off.set)
        timer.start()
        with pytest.raises(CancelledError):
            exchange.wait_for_newest(1, [0], 3, called_off.is_set)
        timer.join()
