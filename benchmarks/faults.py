"""Random faults, over all methods and engines: is any run lost, and does any bit change?

Tiny runs are struck again and again: workers, ranks, masters and launchers are killed or stopped
for a while, starts are cut short, disks fill up. Each run must end with its result, and with every
byte of checkpoints and ensemble, and the scores, of the same run undisturbed in one process.

    python -m benchmarks.faults --faults 1000 --out benchmarks/results/faults.jsonl
    python -m benchmarks.faults --minutes 10 --engines process --methods gap

What happened is appended to the file, a line per fault; given the same file again, the campaign
goes on where it stopped, and `--faults` counts those that are there. Only processes that descend
from this one are ever struck: it adopts those that lose their parents.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from benchmarks.forked import PRELOADED, fork, serve_workers
from remuda.config import load_config
from remuda.files import disk
from remuda.parallel.engines import Engine
from remuda.parallel.protocol import Timeouts
from remuda.parallel.shared_memory import MEMORY, clear_stale, clear_stale_segments

CELLS, ROUNDS, LABELS = 3, 14, 3
WORKERS = {"local": 1, "process": 3, "mpi": 3}
METHODS = {
    "cellular by loss": ("method=cellular",),
    "cellular by score": ("method=cellular", "method.exchange=score"),
    "gap": ("method=gap",),
    "averaging": ("method=averaging",),
    "class_parallel": ("method=class_parallel",),
    "independent": ("method=independent",),
}
# What a run survives while it goes on, and what ends it, so that it must be resumed. A start is cut
# short at the beginning of a process or job.
GOES_ON = {
    "local": (),
    "process": ("worker", "stopped"),
    "mpi": ("worker", "stopped", "master", "mpiexec"),
}
ENDS = {
    "local": ("master", "full disk"),
    "process": ("master", "full disk"),
    "mpi": ("supervisor",),
}
STARTING = {"local": 0.3, "process": 0.5, "mpi": 4.0}  # seconds in which a start is cut short
STOPPED = {"local": 0.0, "process": 6.0, "mpi": 3.0}  # the longest stop
LIMIT = 240.0  # seconds of a run, after which it counts as lost
PATIENCE = 60.0  # seconds until a run that was struck must have moved
ATTEMPTS = 3  # at a run that ends with an error that nobody caused
_LOOK = 0.01
_PR_SET_CHILD_SUBREAPER = 36

Row = dict[str, Any]


# -------------------------------------------------------------------------- what is run


def write_data(path: Path) -> Path:
    images = np.random.default_rng(0).integers(0, 256, (60, 28, 28), dtype=np.uint8)
    np.savez(path, x=images, y=np.arange(60) % LABELS)
    return path


def words(data: Path, run: Path, method: str) -> list[str]:
    return [
        "cellular-digits",
        f"data={data}",
        f"run.dir={run}",
        f"rounds={ROUNDS}",
        *(word for word in METHODS[method] if word.startswith("method=")),
        *(() if method == "class_parallel" else (f"grid=1x{CELLS}",)),
        *(word for word in METHODS[method] if not word.startswith("method=")),
        "network.hidden=[8]",
        "network.latent=4",
        "training.batch_size=10",
        "training.batches_per_round=10",
        "score.extractor=digits",
        "score.every=2",
        "score.samples=20",
        "score.final_samples=20",
        "run.checkpoint_every=2",
        "run.sheet_every=0",
        "run.keep_last=1",
        "run.keep_best=false",
    ]


def outcome(run: Path) -> dict[str, Any]:
    """All that must be the same, however a run was disturbed."""
    files = [*sorted((run / "checkpoints").rglob("*")), run / "ensemble" / "model.safetensors"]
    found: dict[str, Any] = {
        str(path.relative_to(run)): path.read_bytes() for path in files if path.is_file()
    }
    result = json.loads((run / "result.json").read_text())
    return {**found, **{key: result[key] for key in ("rounds", "mixture", "scores")}}


def carry(given: Sequence[str], engine: str, full_after: int = 0) -> None:
    """What a user does: train, or resume what has begun; the disk may fill up after some writes."""
    config = load_config(given[0], given[1:])
    run = Path(config.run.dir or "")
    if full_after:
        _fill_disk(full_after)
    if engine == "mpi":
        _command(given, run)
    from remuda.parallel import training

    if engine == "process":
        serve_workers()
    timeouts = Timeouts(interval=0.2, delayed=1.0, dead=5.0)
    carrier = Engine(engine, WORKERS[engine], timeouts)
    if (run / "config.yaml").exists():
        training.resume(run, engine=carrier)
    else:
        training.train(config, engine=carrier)


def _command(given: Sequence[str], run: Path) -> NoReturn:
    """On MPI by the command, which supervises the job."""
    from remuda.cli import main

    begun = (run / "config.yaml").exists()
    what = ["resume", str(run)] if begun else ["train", *given]
    sys.argv = ["remuda", *what, "--engine", "mpi", "--plain", "--restarts", "9"]
    sys.argv += ["--workers", str(WORKERS["mpi"])]
    main()


def _fill_disk(after: int) -> None:
    real, count = disk.write, 0

    def write(descriptor: int, content: Any) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor, content)

    setattr(disk, "write", write)  # noqa: B010 - not a new function to mypy


# -------------------------------------------------------------------------- our own processes


def adopt_orphans() -> None:
    """Processes that lose their parents become our children, so that none is ever left."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """The living processes below one, nearest first."""
    found, waiting = [], [pid]
    while waiting:
        for children in Path(f"/proc/{waiting.pop(0)}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                own = [int(child) for child in children.read_text().split()]
                waiting += own
                found += [child for child in own if _is_alive(child)]
    return found


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _rank(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                return int(variable.partition(b"=")[2])
    return None


def end_all() -> None:
    """Kill and bury whatever descends from us."""
    while left := descendants(os.getpid()):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK)
        bury()
    bury()


def bury() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


# -------------------------------------------------------------------------- one run


def plan(engine: str, rng: random.Random) -> list[str]:
    """The faults of one run, in their order; a run that is over sooner is spared the rest."""
    found: list[str] = []
    stages = rng.randint(1, 3)
    for stage in range(stages):
        if rng.random() < 0.4:
            found.append("start")
        if GOES_ON[engine]:
            found += rng.choices(GOES_ON[engine], k=rng.randint(0, 3))
        if stage < stages - 1 or not found:
            found.append(rng.choice(ENDS[engine]))
    return found


class LostError(Exception):
    """A run that did not come to its result."""


class Struck:
    """One run, and what befalls it."""

    def __init__(self, engine: str, given: Sequence[str], run: Path, rng: random.Random) -> None:
        self._engine, self._given, self._run, self._rng = engine, given, run, rng
        self._log = run.with_name("log.txt")
        self._leader: int | None = None
        self._end = time.monotonic() + LIMIT
        self._errors = 0
        self.rows: list[Row] = []

    def carry_out(self, faults: Sequence[str]) -> None:
        """Strike, as long as the run goes on; then let it end."""
        for kind in faults:
            if self._is_finished():
                return
            if kind in ("start", "full disk") and self._leader is not None:
                self._strike("supervisor" if self._engine == "mpi" else "master")
            self._strike(kind)
        while not self._is_finished():
            self._start()
            self._pause()

    # ---------------------------------------------------------------------- how it goes

    def _is_finished(self) -> bool:
        return (self._run / "result.json").is_file() and not self._is_carried()

    def _is_carried(self) -> bool:
        """Whether the process that we started lives; one that ends by itself should end well."""
        if self._leader is None:
            return False
        pid, status = os.waitpid(self._leader, os.WNOHANG)
        if not pid:
            return True
        self._leader = None
        code = os.waitstatus_to_exitcode(status)
        if code and not (self._run / "result.json").is_file():
            self._errors += 1
            if self._errors >= ATTEMPTS:
                raise LostError(f"ended with {code} {self._errors} times: {self.said}")
        return False

    def _start(self, full_after: int = 0) -> None:
        if not self._is_carried() and not (self._run / "result.json").is_file():
            given, engine = self._given, self._engine
            self._leader = fork(lambda: carry(given, engine, full_after), self._log)

    def _pause(self, seconds: float = _LOOK) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if time.monotonic() > self._end:
                raise LostError(f"not finished within {LIMIT:.0f} seconds: {self.said}")
            time.sleep(min(left, _LOOK))

    @property
    def said(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        return " ".join(line for line in lines[-6:] if line)[-400:]

    def _moved(self) -> float:
        """When the run last completed a round."""
        with contextlib.suppress(OSError):
            for line in reversed((self._run / "events.jsonl").read_text().splitlines()):
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if event["event"] == "population":
                        return datetime.fromisoformat(event["time"]).timestamp()
        return 0.0

    def _await_round(self, since: float) -> float | None:
        """Seconds until a round is completed after this moment; None if none is."""
        patience = time.monotonic() + PATIENCE
        while time.monotonic() < patience:
            if (moved := self._moved()) > since:
                return moved - since
            if self._is_finished():
                return time.time() - since
            self._start()
            self._pause()
        return None

    # ---------------------------------------------------------------------- faults

    def _strike(self, kind: str) -> None:
        """Let one fault happen, and wait until the run has got over it."""
        if kind == "full disk":
            happened = self._fill()
        elif kind == "start":
            self._start()
            self._pause(self._rng.uniform(0, STARTING[self._engine]))
            happened = self._kill(self._any())
        else:
            self._start()
            self._await_round(time.time())
            self._pause(self._rng.uniform(0, 0.15))
            happened = self._stop() if kind == "stopped" else self._kill(self._victim(kind))
        struck = time.time()
        if happened:
            recovered = self._await_round(struck)
            self.rows.append({"kind": kind, "recovered": recovered})

    def _kill(self, pid: int | None) -> bool:
        if pid is None or not _is_alive(pid):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if pid == self._leader:
            os.waitpid(pid, 0)
            self._leader = None
        return True

    def _stop(self) -> bool:
        pid = self._victim("worker")
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self._pause(self._rng.uniform(0.2, STOPPED[self._engine]))
            os.kill(pid, signal.SIGCONT)
        return True

    def _fill(self) -> bool:
        self._start(full_after=self._rng.randint(1, 60))
        errors = self._errors
        with contextlib.suppress(LostError):
            while self._is_carried():
                self._pause()
        happened, self._errors = self._errors > errors, errors
        return happened

    def _any(self) -> int | None:
        """Some process of a run that starts."""
        if self._leader is None:
            return None
        below = descendants(self._leader)
        if self._engine == "mpi":  # not the supervisor itself
            return self._rng.choice(below) if below else None
        return self._rng.choice([self._leader, *below])

    def _victim(self, kind: str) -> int | None:
        if self._leader is None or not self._is_carried():
            return None
        if kind == "supervisor" or (kind == "master" and self._engine != "mpi"):
            return self._leader
        below = descendants(self._leader)
        if self._engine == "mpi":
            ranks = {pid: _rank(pid) for pid in below}
            wanted: Callable[[int], bool] = {
                "worker": lambda pid: (ranks[pid] or 0) > 0,
                "master": lambda pid: ranks[pid] == 0,
                "mpiexec": lambda pid: ranks[pid] is None,
            }[kind]
            found = [pid for pid in below if wanted(pid)]
            return (found[0] if kind == "mpiexec" else self._rng.choice(found)) if found else None
        workers = [pid for pid in below if _name(pid).startswith("remuda-worker")]
        return self._rng.choice(workers) if workers else None


# -------------------------------------------------------------------------- the campaign


class Campaign:
    """Runs one after the other, and what became of them in a file."""

    def __init__(self, folder: Path, report: Path, seed: int) -> None:
        self._folder, self._report, self._seed = folder, report, seed
        self._data = write_data(folder / "images.npz")
        self._wanted: dict[str, dict[str, Any]] = {}

    def run(self, number: int, engine: str, method: str) -> list[Row]:
        """One run of the campaign, a row per fault that happened to it."""
        wanted = self._undisturbed(method)
        folder = self._folder / "struck"
        folder.mkdir()
        rng = random.Random(f"{self._seed} {number}")
        given = words(self._data, folder / "run", method)
        struck, problem = Struck(engine, given, folder / "run", rng), ""
        try:
            struck.carry_out(plan(engine, rng))
        except LostError as error:
            problem = str(error)
        finally:
            end_all()
        lost = not (folder / "run" / "result.json").is_file()
        about = {
            "run": number,
            "engine": engine,
            "method": method,
            "problem": problem,
            "lost": lost,
        }
        about["changed"] = not lost and outcome(folder / "run") != wanted
        if lost or about["changed"]:
            kept = self._report.with_name(f"{self._report.stem}-run-{number}")
            shutil.copytree(folder, kept, dirs_exist_ok=True)
        shutil.rmtree(folder)
        if not struck.rows and lost:  # before any fault was over
            struck.rows.append({"kind": "start", "recovered": None})
        rows = [{**about, **row} for row in struck.rows]
        with self._report.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return rows

    def _undisturbed(self, method: str) -> dict[str, Any]:
        if method not in self._wanted:
            run = self._folder / method.replace(" ", "-")
            given = words(self._data, run, method)
            log = self._folder / "undisturbed.txt"
            _, status = os.waitpid(fork(lambda: carry(given, "local"), log), 0)
            if status:
                raise SystemExit(f"the undisturbed run of {method} failed: {log.read_text()}")
            self._wanted[method] = outcome(run)
        return self._wanted[method]


def read_rows(report: Path) -> list[Row]:
    """What is in the file already; a line that was cut short is dropped for good."""
    if not report.exists():
        return []
    rows: list[Row] = []
    for line in report.read_text().splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    whole = "".join(json.dumps(row) + "\n" for row in rows)
    if whole != report.read_text():  # else the next line would be added to half of one
        report.write_text(whole)
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Tried, lost, changed and the slowest recovery, per engine and kind."""
    lines = [
        "| engine | fault | tried | lost | changed | slowest recovery |",
        "|---|---|---:|---:|---:|---:|",
    ]
    pairs = sorted({(row["engine"], row["kind"]) for row in rows})
    groups = [(*pair, [r for r in rows if (r["engine"], r["kind"]) == pair]) for pair in pairs]
    for engine, kind, own in [*groups, ("all", "all", list(rows))]:
        times = [row["recovered"] for row in own if row["recovered"] is not None]
        slowest = f"{max(times):.1f} s" if times else "–"
        lost, changed = (sum(row[key] for row in own) for key in ("lost", "changed"))
        lines.append(f"| {engine} | {kind} | {len(own)} | {lost} | {changed} | {slowest} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--faults", type=int, help="stop when so many have happened")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--engines", nargs="+", default=list(WORKERS), choices=list(WORKERS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"))
    options = parser.parse_args()
    if options.faults is None and options.minutes is None:
        parser.error("say when to stop: --faults N, --minutes N, or both")
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in PRELOADED:
        importlib.import_module(module)
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rows = read_rows(options.out)
    number = 1 + max((row["run"] for row in rows), default=-1)
    end = time.monotonic() + 60 * options.minutes if options.minutes is not None else float("inf")
    with tempfile.TemporaryDirectory(prefix="remuda-faults-") as name:
        campaign = Campaign(Path(name), options.out, options.seed)
        while len(rows) < (options.faults or float("inf")) and time.monotonic() < end:
            # Engines in turn; every engine meets every method.
            engine = options.engines[number % len(options.engines)]
            method = options.methods[number // len(options.engines) % len(options.methods)]
            new = campaign.run(number, engine, method)
            rows += new
            state = "lost" if any(row["lost"] for row in new) else "kept"
            kinds = ", ".join(row["kind"] for row in new)
            print(f"{len(rows):5} {engine:8} {method:17} {state} {kinds}", flush=True)
            number += 1
    clear_stale(MEMORY)
    clear_stale_segments()
    print(table(rows))
    return int(any(row["lost"] or row["changed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
