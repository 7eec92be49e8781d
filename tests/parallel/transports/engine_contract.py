"""What every engine promises as a whole: master and workers, control, exchange and results.

An engine inherits the suite and says how to start a master whose workers run `scripted`. Nothing
here knows a method or a run folder. The suite asks the master how many workers there are, so an
engine whose number is given from outside (ranks) passes it as well, from one worker on.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from remuda.gan.parcels import Parcel
from remuda.parallel.exchange import LostResultsError
from remuda.parallel.messages import Configure, Failed, GetStatus, Hello, Message, RunTask, Status
from remuda.parallel.protocol import Timeouts
from remuda.parallel.transports.base import MasterComm
from tests.parallel.transports.scripted import BIG, SECONDS, Garbage, Order, Seen, checksum, payload

_terms = itertools.count(1)  # never used twice, also where workers outlive a test


def order(master: MasterComm, worker: int, **what: Any) -> None:
    text = Order(**what).model_dump_json()
    timeouts = Timeouts()
    master.send(
        worker, Configure(config=text, folder="", data="", fingerprint="", timeouts=timeouts)
    )


def hear_seen(master: MasterComm, term: int, workers: Collection[int]) -> dict[int, Seen]:
    """What every one of these workers saw in its task of this term."""
    said = hear(master, Failed, workers)
    assert all(message.term == term for (message,) in said.values())
    return {worker: Seen.model_validate_json(message.error) for worker, (message,) in said.items()}


def hear(
    master: MasterComm, kind: type[Message], workers: Collection[int], count: int = 1
) -> dict[int, list[Any]]:
    """What these workers said, until each has said `count` of a kind; nothing else may come."""
    said: dict[int, list[Any]] = {worker: [] for worker in workers}
    deadline = time.monotonic() + SECONDS
    while any(len(words) < count for words in said.values()):
        assert time.monotonic() < deadline, f"only heard {said}"
        for worker, message in master.receive(timeout=0.2):
            assert worker in said, f"worker {worker} was not asked, but said {message}"
            assert isinstance(message, kind), f"worker {worker} said {message}"
            said[worker].append(message)
    assert all(len(words) == count for words in said.values()), said
    return said


def until_gone(master: MasterComm, workers: Collection[int]) -> None:
    """Until the master knows that these have ended; what they say is not to be heard."""
    deadline = time.monotonic() + SECONDS
    while not set(workers) <= master.gone():
        assert time.monotonic() < deadline, f"{master.gone()} of {workers} are gone"
        heard = master.receive(timeout=0.05)
        assert not [word for word in heard if word[0] in workers], heard


def assign(master: MasterComm, owners: Sequence[int], term: int, round: int) -> set[int]:
    """Give every worker its cells; those that got a task."""
    for worker in sorted(set(owners)):
        cells = tuple(cell for cell, owner in enumerate(owners) if owner == worker)
        master.send(worker, RunTask(term=term, cells=cells, start=round, owners=tuple(owners)))
    return set(owners)


def exchange(master: MasterComm, owners: Sequence[int], term: int, round: int) -> dict[int, Seen]:
    """One task for all; what every worker saw."""
    return hear_seen(master, term, assign(master, owners, term, round))


def expected(owners: Sequence[int], round: int) -> Seen:
    """What a worker sees that collects every cell's parcel of a round, in reverse order."""
    cells = list(reversed(range(len(owners))))
    return Seen(
        cells=cells,
        rounds=[round] * len(cells),
        sums=[checksum(payload(cell, round)) for cell in cells],
    )


def check_exchange(master: MasterComm, owners: Sequence[int], term: int, round: int) -> None:
    reports = exchange(master, owners, term, round)
    right = expected(owners, round)
    assert reports == dict.fromkeys(set(owners), right)


def owned(owners: Sequence[int]) -> dict[int, list[int]]:
    """The cells of every worker."""
    return {
        worker: [cell for cell, owner in enumerate(owners) if owner == worker]
        for worker in sorted(set(owners))
    }


def check_results(found: Mapping[int, Parcel], cells: Collection[int], round: int) -> None:
    assert set(found) == set(cells)
    for cell, one in found.items():
        assert checksum(one) == checksum(payload(cell, round))


class EngineContract(ABC):
    """One suite for whole engines. Tests that lose no worker share one master."""

    # Whether tests may lose workers for good, and in which ways; False skips those tests.
    can_kill: ClassVar[bool] = True
    endings: ClassVar[tuple[str, ...]] = ("raise", "exit", "kill")
    _shared: ClassVar[MasterComm | None] = None
    _before: ClassVar[set[str]] = set()

    @classmethod
    @abstractmethod
    def start(cls, workers: int) -> MasterComm:
        """A master whose workers run `scripted`; this many, where the engine can choose.

        The one before it is closed by then.
        """

    @classmethod
    @abstractmethod
    def inventory(cls) -> set[str]:
        """What of this engine is there now: processes, threads, shared memory."""

    @classmethod
    def _begin(cls, workers: int) -> MasterComm:
        cls._end_shared()
        master = cls.start(workers)
        hear(master, Hello, master.workers())
        return master

    @classmethod
    def _end_shared(cls) -> None:
        if cls._shared is not None:
            cls._shared.close()
            cls._shared = None

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _close_shared(cls) -> Iterator[None]:
        cls._before = cls.inventory()
        yield
        cls._end_shared()

    @pytest.fixture
    def master(self) -> MasterComm:
        cls = type(self)
        if cls._shared is None:
            cls._shared = cls._begin(3)
        return cls._shared

    @pytest.fixture
    def expendable(self, request: pytest.FixtureRequest) -> MasterComm:
        """A master with this many workers, which the test may lose."""
        if not self.can_kill:
            pytest.skip("this engine's workers must outlive the test")
        cls = type(self)
        if cls._shared is None:
            cls._shared = cls._begin(request.param)
        while len(cls._shared.workers()) < request.param:
            number = cls._shared.replace()
            if number is None:  # all that live take part again
                cls._shared = cls._begin(request.param)
                break
            hear(cls._shared, Hello, [number])
        return cls._shared

    @pytest.fixture
    def term(self) -> int:
        return next(_terms)

    # ------------------------------------------------------------------------ control

    def test_every_worker_answers_for_itself(self, master: MasterComm) -> None:
        workers = master.workers()
        assert workers == sorted(set(workers))
        for number, worker in enumerate(workers):
            master.send(worker, GetStatus(number=number))
        said = hear(master, Status, workers)
        assert {worker: status.number for worker, (status,) in said.items()} == {
            worker: number for number, worker in enumerate(workers)
        }

    def test_only_the_worker_that_is_asked_answers(self, master: MasterComm) -> None:
        last = master.workers()[-1]
        master.send(last, GetStatus(number=7))
        assert [status.number for status in hear(master, Status, [last])[last]] == [7]
        assert master.receive(timeout=0.1) == []

    def test_messages_of_one_worker_arrive_in_order(self, master: MasterComm) -> None:
        workers, count = master.workers(), 50
        for number in range(count):
            for worker in workers:
                master.send(worker, GetStatus(number=number))
        for statuses in hear(master, Status, workers, count).values():
            assert [status.number for status in statuses] == list(range(count))

    def test_a_master_that_hears_nothing_goes_on(self, master: MasterComm) -> None:
        start = time.monotonic()
        assert master.receive(timeout=0.05) == []
        assert time.monotonic() - start < SECONDS

    def test_living_workers_are_not_gone(self, master: MasterComm) -> None:
        assert master.gone() == set()

    def test_an_unknown_worker_is_told_nothing_without_error(self, master: MasterComm) -> None:
        master.send(max(master.workers()) + 1000, GetStatus(number=1))
        assert master.receive(timeout=0.1) == []

    # ------------------------------------------------------------------------ exchange

    def test_parcels_arrive_unchanged_at_every_worker(self, master: MasterComm, term: int) -> None:
        check_exchange(master, master.workers(), term, 1)

    def test_several_cells_per_worker(self, master: MasterComm, term: int) -> None:
        workers = master.workers()
        owners = [workers[cell % len(workers)] for cell in range(2 * len(workers) + 1)]
        check_exchange(master, owners, term, 1)

    def test_a_worker_may_have_all_cells_and_the_others_none(
        self, master: MasterComm, term: int
    ) -> None:
        check_exchange(master, [master.workers()[-1]] * 3, term, 1)
        assert master.receive(timeout=0.1) == []

    def test_large_parcels_arrive_unchanged(self, master: MasterComm, term: int) -> None:
        assert payload(0, BIG).nbytes > 8 * 10**6
        owners = [master.workers()[0], *master.workers()]
        check_exchange(master, owners, term, BIG)
        check_results(master.results(owned(owners), term, BIG), range(len(owners)), BIG)

    def test_round_after_round(self, master: MasterComm, term: int) -> None:
        owners = master.workers()
        for round in range(5):
            check_exchange(master, owners, term, round)
            master.forget(term, round)

    def test_whoever_comes_early_waits_for_the_last(self, master: MasterComm, term: int) -> None:
        owners = [*master.workers(), master.workers()[-1]]
        *early, last = sorted(set(owners))
        for worker in early:
            cells = tuple(owned(owners)[worker])
            master.send(worker, RunTask(term=term, cells=cells, start=2, owners=tuple(owners)))
        assert master.receive(timeout=0.3) == []
        cells = tuple(owned(owners)[last])
        master.send(last, RunTask(term=term, cells=cells, start=2, owners=tuple(owners)))
        seen = hear_seen(master, term, set(owners))
        assert seen == dict.fromkeys(set(owners), expected(owners, 2))

    def test_waiting_ends_when_it_is_called_off(self, master: MasterComm, term: int) -> None:
        first = master.workers()[0]
        order(master, first, timeouts=0.2)
        # Cell 1 is nobody's in this task, so it is never published.
        master.send(first, RunTask(term=term, cells=(0,), start=1, owners=(first, first)))
        assert hear_seen(master, term, [first]) == {first: Seen(cancelled=True)}

    def test_terms_do_not_see_each_other(self, master: MasterComm) -> None:
        old, new = next(_terms), next(_terms)
        workers = master.workers()
        owners = [workers[0], *workers]
        check_exchange(master, owners, old, 1)
        order(master, workers[0], timeouts=0.2)
        # In the new term its first cell alone is published; the others were, in the old one.
        task = RunTask(term=new, cells=(0,), start=1, owners=tuple(owners))
        master.send(workers[0], task)
        assert hear_seen(master, new, [workers[0]]) == {workers[0]: Seen(cancelled=True)}
        newest = next(_terms)
        check_exchange(master, owners, newest, 1)

    def test_a_mailbox_holds_the_newest_and_never_goes_back(
        self, master: MasterComm, term: int
    ) -> None:
        workers = master.workers()
        owners = [workers[0], *workers]
        for oldest, publish, least in ((0, (0,), 0), (3, (1, 2, 3), 3), (0, (), 3)):
            for worker in workers:
                order(master, worker, publish=publish, oldest=oldest)
            reports = exchange(master, owners, term, 0)
            for report in reports.values():
                assert report.cells == list(reversed(range(len(owners))))
                # Somebody may be ahead; nobody is behind what was allowed or already seen.
                assert all(least <= round <= 3 for round in report.rounds)
                pairs = zip(report.cells, report.rounds, strict=True)
                assert report.sums == [checksum(payload(*pair)) for pair in pairs]

    def test_a_mailbox_is_waited_for_only_where_it_is_too_old(
        self, master: MasterComm, term: int
    ) -> None:
        workers = master.workers()
        check_exchange(master, workers, term, 4)
        for oldest, report in ((4, expected(workers, 4)), (5, Seen(cancelled=True))):
            for worker in workers:
                order(master, worker, publish=(), oldest=oldest, timeouts=0.5)
            reports = exchange(master, workers, term, 4)
            assert reports == dict.fromkeys(workers, report)

    # ------------------------------------------------------------------------ results

    def test_results_are_the_parcels_of_all_cells(self, master: MasterComm, term: int) -> None:
        owners = [*master.workers(), *master.workers()]
        check_exchange(master, owners, term, 1)
        check_results(master.results(owned(owners), term, 1), range(len(owners)), 1)

    def test_results_of_any_cells(self, master: MasterComm, term: int) -> None:
        owners = [*master.workers(), *master.workers()]
        check_exchange(master, owners, term, 1)
        count = len(master.workers())
        for cells in ([0], [count], [0, count], [2 * count - 1, 0], []):
            wanted: dict[int, list[int]] = {}
            if len(cells) < 2:  # workers of whom nothing is wanted may be named or not
                wanted = {worker: [] for worker in set(owners)}
            for cell in cells:
                wanted.setdefault(owners[cell], []).append(cell)
            check_results(master.results(wanted, term, 1), cells, 1)

    def test_a_part_of_the_results_is_at_least_that_part(
        self, master: MasterComm, term: int
    ) -> None:
        owners = master.workers()
        check_exchange(master, owners, term, BIG)
        for cell, found in master.results(owned(owners), term, BIG, "s").items():
            sent = payload(cell, BIG)
            assert {"step", "statistics"} <= found.tensors.keys() <= sent.tensors.keys()
            assert all(value.equal(sent.tensors[name]) for name, value in found.tensors.items())
            assert (found.cell, found.round, dict(found.meta)) == (cell, BIG, dict(sent.meta))

    def test_forgetting_drops_the_rounds_before_and_no_other(
        self, master: MasterComm, term: int
    ) -> None:
        owners = master.workers()
        for round in (1, 2, 3):
            check_exchange(master, owners, term, round)
        master.forget(term, 2)
        for round in (2, 3):
            found = master.results(owned(owners), term, round)
            check_results(found, range(len(owners)), round)
        with pytest.raises(LostResultsError):
            master.results(owned(owners), term, 1)

    def test_forgetting_drops_other_terms(self, master: MasterComm) -> None:
        old, new = next(_terms), next(_terms)
        owners = master.workers()
        check_exchange(master, owners, old, 3)
        check_exchange(master, owners, new, 1)
        master.forget(new, 1)
        check_results(master.results(owned(owners), new, 1), range(len(owners)), 1)
        with pytest.raises(LostResultsError):
            master.results(owned(owners), old, 3)

    # ------------------------------------------------------------------------ losses

    @pytest.mark.parametrize("expendable", [2], indirect=True)
    def test_a_dismissed_worker_is_forgotten_and_another_takes_its_place(
        self, expendable: MasterComm, term: int
    ) -> None:
        first, *others = expendable.workers()
        check_exchange(expendable, [first, *others], term, 1)
        expendable.dismiss(first)
        assert expendable.workers() == others
        assert expendable.gone() == set()
        expendable.send(first, GetStatus(number=1))
        assert expendable.receive(timeout=0.1) == []
        self._check_survivors(expendable, others)
        number = expendable.replace()
        if number is not None:
            assert number != first
            hear(expendable, Hello, [number])
            self._check_survivors(expendable, [*others, number])

    def test_closing_ends_all_and_leaves_nothing(self) -> None:
        cls = type(self)
        master = cls._shared or cls._begin(2)
        cls._shared = None
        owners = master.workers()
        check_exchange(master, owners, next(_terms), BIG)
        master.close()
        assert master.workers() == []
        master.send(owners[0], GetStatus(number=1))
        assert self.inventory() == cls._before

    # Last, for ranks that are lost here are lost to all tests that follow.
    @pytest.mark.parametrize("expendable", [4], indirect=True)
    def test_what_is_no_message_is_refused_and_its_sender_written_off(
        self, expendable: MasterComm
    ) -> None:
        """Wrong types, too large; and a worker that cannot read what its master says."""
        workers = expendable.workers()
        garbled = dict(zip(workers, ("garbage", "too large", ""), strict=False))
        for worker, how in garbled.items():
            order(expendable, worker, end=how)
            if not how:
                expendable.send(worker, Garbage())
        until_gone(expendable, garbled)
        for worker in garbled:
            expendable.dismiss(worker)
        self._check_survivors(expendable, workers[len(garbled) :])

    @pytest.mark.parametrize("expendable", [4], indirect=True)
    def test_workers_that_ended_are_gone_and_the_others_go_on(
        self, expendable: MasterComm, term: int
    ) -> None:
        workers = expendable.workers()
        check_exchange(expendable, workers, term, 1)
        lost = dict(zip(workers, self.endings, strict=False))
        for worker, how in lost.items():
            order(expendable, worker, end=how)
        until_gone(expendable, lost)
        assert expendable.gone() == set(lost)
        self._check_lost_results(expendable, workers, term)
        for worker in lost:
            expendable.send(worker, GetStatus(number=1))
            expendable.dismiss(worker)
            expendable.send(worker, GetStatus(number=2))
        assert expendable.gone() == set()
        self._check_survivors(expendable, [one for one in workers if one not in lost])

    def _check_survivors(self, master: MasterComm, survivors: Sequence[int]) -> None:
        """In a new term, as after a loss."""
        assert master.workers() == sorted(survivors)
        if survivors:
            check_exchange(master, [*survivors, survivors[0]], next(_terms), 1)

    def _check_lost_results(self, master: MasterComm, owners: Sequence[int], term: int) -> None:
        """A lost worker's parcels are there and right, or it is named."""
        try:
            found = master.results(owned(owners), term, 1)
        except LostResultsError as error:
            lost = error.worker
        else:
            check_results(found, range(len(owners)), 1)
            return
        assert lost in master.gone()
