"""One execution of the article's cells as a command of its own, timed and watched from outside.

Round times and routines are the run's own, from its events. The resident memory of its processes is
looked at all the time; what they share (`smaps_rollup`, which takes the kernel milliseconds per
process) only while no round is timed: in the rounds that are left out, and when the result is made.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.memory import MB, descendants, smaps
from remuda.config import load_config
from remuda.parallel.shared_memory import MEMORY, PREFIX

PRESET = "cellular-mnist-paper"
SKIPPED = 1  # rounds: the first holds what a worker does once
POLL_SECONDS, TIMED_POLL_SECONDS = 0.25, 0.5
TELL_SECONDS = 5.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Case:
    """What is executed; equal cases are repetitions of one another."""

    grid: str
    workers: int
    rounds: int
    batches: int
    data: str

    def words(self, folder: Path) -> list[str]:
        settings = [f"data={self.data}", f"grid={self.grid}", f"rounds={self.rounds}"]
        settings += [f"training.batches_per_round={self.batches}", "run.sheet_every=0"]
        settings += ["score.final_samples=1000", f"run.dir={folder}"]
        return [PRESET, *settings, "--engine", "process", "--workers", str(self.workers)]


def cells_of(grid: str) -> int:
    return load_config(PRESET, [f"grid={grid}"]).cells


@dataclass
class Memory:
    """The most that was seen of all processes of a run at one time, in bytes."""

    processes: int = 0
    rss: int = 0  # summed: what processes share counts once for each of them
    once: int = 0  # what they share counted once, data and parcels in shared memory included

    def look(self, master: int, *, is_timed: bool) -> None:
        found = [master, *descendants(master)]
        self.processes = max(self.processes, len(found))
        self.rss = max(self.rss, sum(map(_resident, found)))
        if not is_timed:
            accounts = [smaps(process) for process in found]
            # Mapped parts of the shared files are left out, because the files are counted whole.
            own = sum(one.get("Pss", 0) - one.get("Pss_Shmem", 0) for one in accounts)
            self.once = max(self.once, own + _shared_files(master))


def _resident(process: int) -> int:
    with contextlib.suppress(OSError):
        return PAGE_BYTES * int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return 0


def _shared_files(master: int) -> int:
    sizes: dict[int, int] = {}  # by inode: a parcel has two names
    for folder in MEMORY.glob(f"{PREFIX}{master}-*"):
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                sizes[stat.st_ino] = stat.st_size
    return sum(sizes.values())


@dataclass(frozen=True)
class Execution:
    """What one run took, a round being the mean of the timed ones."""

    case: Case
    round_s: float
    cpu_s: float  # of the workers, in a round
    whole_s: float  # from the start of the command to its end
    beside_s: float  # of that, without the rounds
    routines: dict[str, float]  # seconds of a round, summed over cells
    processes: int
    rss_mb: float
    once_mb: float

    @classmethod
    def of(
        cls, case: Case, events: list[dict[str, Any]], whole: float, memory: Memory
    ) -> Execution:
        rounds = [one for one in events if one["event"] == "population"]
        timed = [one["seconds"] for one in rounds if one["round"] > SKIPPED]
        cells = [one for one in events if one["event"] == "round" and one["round"] > SKIPPED]
        routines: Counter[str] = Counter()
        for one in cells:
            routines.update(one["seconds"])
        return cls(
            case=case,
            round_s=sum(timed) / len(timed),
            cpu_s=sum(one["cpu_seconds"] for one in cells) / len(timed),
            whole_s=whole,
            beside_s=whole - sum(one["seconds"] for one in rounds),
            routines={name: spent / len(timed) for name, spent in routines.items()},
            processes=memory.processes,
            rss_mb=memory.rss / MB,
            once_mb=memory.once / MB,
        )


def execute(case: Case, name: str) -> Execution:
    """Train in a process of its own, and say every few seconds how far it is."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run, errors = Path(folder) / "run", Path(folder) / "errors"
        command = [sys.executable, "-m", "remuda", "train", *case.words(run)]
        with errors.open("w") as stream:
            training = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stream)
            try:
                memory = watch(training, run, case, name)
            finally:
                training.terminate()  # which has ended, unless this one was stopped
                training.wait()
        whole = time.perf_counter() - begun
        if training.returncode:
            raise SystemExit(f"{name}: {' '.join(command)} failed:\n{errors.read_text().strip()}")
        found = Execution.of(case, list(read_events(run)), whole, memory)
    times = f"{found.round_s:.2f} s a round, {found.cpu_s:.2f} s of CPU"
    print(f"{name}: {times}, {found.once_mb:.0f} MB", flush=True)
    return found


def watch(training: subprocess.Popen[bytes], run: Path, case: Case, name: str) -> Memory:
    """Look at a run until it has ended."""
    memory, begun, of = Memory(), time.perf_counter(), cells_of(case.grid) * case.rounds
    told = begun
    while training.poll() is None:
        events = [one["event"] for one in read_events(run)]
        is_timed = SKIPPED <= events.count("population") < case.rounds
        memory.look(training.pid, is_timed=is_timed)
        if (now := time.perf_counter()) > told + TELL_SECONDS:
            told, done = now, events.count("round")
            print(f"{name}: {now - begun:.0f} s, {done} of {of} cell-rounds", flush=True)
        time.sleep(TIMED_POLL_SECONDS if is_timed else POLL_SECONDS)
    return memory


def read_events(run: Path) -> Iterator[dict[str, Any]]:
    """The events so far; a line that is still being written is left out."""
    with contextlib.suppress(FileNotFoundError):
        for line in (run / "events.jsonl").read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)


class Log:
    """The executions of an interrupted command, one per line of a file; without a file, none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._left: dict[Case, list[Execution]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # cut short when it was killed
                    self._add(json.loads(line))

    def _add(self, found: dict[str, Any]) -> None:
        one = Execution(**{**found, "case": Case(**found["case"])})
        self._left.setdefault(one.case, []).append(one)

    def execution(self, case: Case, name: str) -> Execution:
        """The next of that case from the file, or else a new one, which is added to it."""
        if left := self._left.get(case):
            return left.pop(0)
        found = execute(case, name)
        if self._path is not None:
            with self._path.open("a") as stream:
                stream.write(json.dumps(asdict(found)) + "\n")
        return found
