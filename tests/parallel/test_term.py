"""The bookkeeping of a term: whose cell is whose, and nothing kept of what is over."""

from __future__ import annotations

import sys

import pytest

from remuda.parallel.messages import Failed, Status
from remuda.parallel.protocol import Plan, State
from remuda.parallel.term import Term


def term() -> Term:
    plan = Plan(3, 5, 1, 1, dict.fromkeys(range(3), 1.0))
    return Term(1, plan, 0, {1: (0, 2), 2: (1,), 3: ()})


@pytest.mark.parametrize(
    ("worker", "cell", "fits"),
    [(1, 0, True), (1, 2, True), (2, 1, True), (2, 2, False), (3, 0, False), (1, 3, False)],
)
def test_a_worker_may_speak_only_of_its_own_cells(worker: int, cell: int, fits: bool) -> None:
    failed = Failed(term=1, cell=cell, round=1, error="no", user_error=False)
    status = Status(number=1, state=State.PROCESSING, term=1, rounds={}, cell=cell)
    for message in (failed, status):
        complaint = term().complaint(worker, message)
        assert (complaint is None) == fits
        assert fits or f"about cell {cell}, which is not its own" in str(complaint)


def test_complete_rounds_leave_nothing_behind() -> None:
    found = term()
    before = _size(found)
    for round in range(1, 1001):
        for _ in range(3):
            found._reports[round] += 1
        assert found.is_reported(round)
        found.complete(round)
        assert not found.is_reported(round)
    assert _size(found) <= before + 500


def _size(found: Term) -> int:
    return sum(sys.getsizeof(value) for value in vars(found).values())
