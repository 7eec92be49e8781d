"""The ranks of a job on this host, as /proc shows them: who is there, and who has gone.

A rank that is lost while MPI starts leaves the others inside it for good, and mpiexec says nothing.
Only the supervisor can know, and only of its own host. Elsewhere than on Linux it sees no rank.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

LOSS_SECONDS = 5.0  # for the launcher to end a job that has lost a rank
_APPEAR_SECONDS = 5.0  # for all ranks of a host to appear, after the first
# What launchers tell a rank: its number, and how many of them are on its host.
_VARIABLES = (
    (b"OMPI_COMM_WORLD_RANK", b"OMPI_COMM_WORLD_LOCAL_SIZE"),
    (b"PMI_RANK", b"MPI_LOCALNRANKS"),
)


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int


class RankWatch:
    """Watches the ranks that are in the session of a launcher until their job stands."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._seen: dict[int, int] = {}  # the process of each rank, as it was first seen
        self._expected = 0  # on this host
        self._first = 0.0
        self._lost: list[int] = []
        self._lost_at = 0.0

    def complaint(self) -> str | None:
        """Why the job cannot start any more, once its launcher has had time to end by itself."""
        now = time.monotonic()
        alive = self._look(now)
        lost = sorted(rank for rank, pid in self._seen.items() if pid not in alive)
        if lost != self._lost:
            self._lost, self._lost_at = lost, now  # others may follow: it is ending
        if lost and now - self._lost_at > LOSS_SECONDS:
            names = ", ".join(map(str, lost))
            return f"rank{'s' * (len(lost) > 1)} {names} ended while it started"
        missing = self._expected - len(self._seen)
        if self._seen and missing > 0 and now - self._first > _APPEAR_SECONDS:
            return f"{missing} of {self._expected} ranks on this host never started"
        return None

    def _look(self, now: float) -> set[int]:
        """The living processes of the session; ranks among them are noted."""
        found = _session(self._leader)
        ranks = {process.pid: _rank_of(process.pid) for process in found}
        ranks[self._leader] = (None, 0)  # whatever it was started in
        for process in found:
            rank, expected = ranks[process.pid]
            # What a rank starts has its variables too.
            is_child = ranks.get(process.parent, (None, 0))[0] is not None
            if rank is None or is_child or rank in self._seen:
                continue
            if not self._seen:
                self._first = now
            self._seen[rank] = process.pid
            self._expected = max(self._expected, expected)
        return {process.pid for process in found}


def session_of(leader: int) -> list[int]:
    """The living processes of a session."""
    return [process.pid for process in _session(leader)]


def _session(leader: int) -> list[_Process]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(_Process(int(stat.parent.name), int(parent)))
    return found


def _rank_of(pid: int) -> tuple[int | None, int]:
    """A process's rank, and the number of ranks on its host; None if it is not a rank's."""
    try:
        lines = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None, 0
    variables = {name: value for name, _, value in (line.partition(b"=") for line in lines)}
    for rank, size in _VARIABLES:
        found, expected = variables.get(rank, b""), variables.get(size, b"")
        if found.isdigit():
            return int(found), int(expected) if expected.isdigit() else 0
    return None, 0
