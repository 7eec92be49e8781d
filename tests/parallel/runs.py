"""Settings of the runs of these tests, and how two of them are compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remuda.config import Config, load_config
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import Liveness, Timeouts, WorkerStatus
from tests.tiny_runs import happenings, tiny, tree

ROUNDS = 4
QUICK = Timeouts(interval=0.1, delayed=0.5, dead=5.0)
LONG_ROUNDS = 10
LONG = (f"rounds={LONG_ROUNDS}", "training.batches_per_round=40", "run.sheet_every=0")


def words(data: Path, run: Path, *more: str) -> list[str]:
    return tiny(data, run, f"rounds={ROUNDS}", *more)


def settings(data: Path, run: Path, *more: str) -> Config:
    source, *overrides = words(data, run, *more)
    return load_config(source, overrides)


def settings_of(method: str, data: Path, run: Path) -> list[str]:
    """A tiny run of a method with its defaults."""
    return [
        *(word for word in tiny(data, run) if not word.startswith("method.")),
        f"method={method}",
    ]


def in_order(run: Path) -> list[dict[str, Any]]:
    """What happened; workers report in the order they finish."""
    return sorted(happenings(run), key=lambda event: (event["round"], event.get("cell", -1)))


def check_equal(run: Path, undisturbed: Path) -> None:
    assert tree(run) == tree(undisturbed)
    assert in_order(run) == in_order(undisturbed)
    check_nothing_is_left()


def check_nothing_is_left() -> None:
    """No shared memory and no process of a run that this process carried."""
    assert not list(Path("/dev/shm").glob(f"remuda-{os.getpid()}-*"))
    assert not worker_processes(os.getpid())


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def process_name(pid: int) -> str:
    """As lists of processes show it; empty where there is no such process any more."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if state == "Z" else name


def servers(pid: int) -> list[int]:
    """The processes that fork the workers of this master: at most one."""
    return [child for child in children(pid) if process_name(child) == "remuda-server"]


def worker_processes(pid: int) -> list[int]:
    """The workers of this master that its server has forked."""
    forked = [child for server in servers(pid) for child in children(server)]
    return [child for child in forked if process_name(child).startswith("remuda-worker")]


class Remembering(Observer):
    """Keeps the warnings, and who was shown as dead."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.dead: set[int] = set()

    def workers_seen(self, workers: Sequence[WorkerStatus]) -> None:
        self.dead |= {seen.worker for seen in workers if seen.liveness is Liveness.DEAD}

    def warned(self, message: str) -> None:
        self.warnings.append(message)
