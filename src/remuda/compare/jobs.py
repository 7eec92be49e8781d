"""One run of a comparison, and the process that carries out such jobs one after the other.

The process reads jobs as lines of JSON from its standard input and tells how far it is in lines of
its standard output. When its input ends, because the comparison was stopped or killed, it stops
training after saving the last complete round.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from remuda.config import Config, validate
from remuda.config.records import Record, read_record
from remuda.errors import RemudaError, StoreError, visible
from remuda.files import digest, read_stored, write_json
from remuda.parallel.launch import usable_cores
from remuda.parallel.signals import stop_if_asked, stop_is_under_way, stop_on
from remuda.runs.records import ScoreSummary

if TYPE_CHECKING:
    from remuda.runs.store import RunFolder

# How long a run that was just told to stop may take to save and leave its folder.
PATIENCE_SECONDS = 120.0

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, eq=False)
class Job:
    """A run to make or to finish, and what to measure it by."""

    arm: str
    seed: int
    path: Path
    config: Config | None  # None for a run that exists and is only measured
    metrics: tuple[str, ...] = ()
    scores: Path | None = None  # where those are written
    engine: str = "local"
    workers: int | None = None
    data_dir: str | None = None  # where the data are now, of a run that exists
    data: str | None = None  # the fingerprint that the data must have

    @property
    def rounds(self) -> int:
        return self.config.rounds if self.config is not None else 0

    @property
    def cores(self) -> int:
        """How many cores it keeps busy; an engine that was not told how many takes them all."""
        threads = 1 if self.config is None else self.config.threads
        if self.config is None or self.engine == "local":
            return threads
        return threads * (self.workers or usable_cores())

    def to_line(self) -> str:
        return json.dumps(
            {
                "path": str(self.path),
                "config": self.config and self.config.model_dump(mode="json"),
                "metrics": self.metrics,
                "scores": self.scores and str(self.scores),
                "engine": self.engine,
                "workers": self.workers,
                "data_dir": self.data_dir,
                "data": self.data,
            }
        )


class MeasuredAgain(Record):
    """Scores of a run beyond those it ended with, as they are kept."""

    metrics: list[str]
    run: str  # the digest of the run's result: that of another run is measured again
    scores: ScoreSummary


class _StoppedError(BaseException):
    """SIGTERM, or nobody is there any more to work for."""


def main() -> NoReturn:
    """Carry out jobs until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anyone prints goes to the log
    jobs: queue.Queue[dict[str, Any] | None] = queue.Queue()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    code = 0
    try:
        with stop_on([signal.SIGTERM], lambda _: _StoppedError):
            threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
            while (job := _next(jobs)) is not None:
                tell(_answer_to(job, tell))
    except (_StoppedError, BrokenPipeError):
        code = 128 + signal.SIGTERM
    sys.stderr.flush()
    os._exit(code)  # the listening thread may hold the standard input


def _next(jobs: queue.Queue[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The next job, or None when there are no more."""
    while True:
        stop_if_asked()
        with contextlib.suppress(queue.Empty):
            return jobs.get(timeout=1.0)


def _listen(jobs: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    jobs.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _answer_to(job: dict[str, Any], tell: Tell) -> dict[str, Any]:
    try:
        carry_out(job, tell)
    except RemudaError as error:
        return {"failed": " ".join(str(error).split())}
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"done": True}


def carry_out(job: dict[str, Any], tell: Tell) -> None:
    """Make or finish a run, and measure what is asked for beyond its own scores."""
    path = Path(job["path"])
    if job["config"] is not None:
        config = validate(job["config"])
        # Portable, because this process may have loaded torch already, for another run.
        if job["engine"] == "mpi" or config.portable:
            _train_by_command(config, path, job["engine"], job["workers"], job["data"], tell)
        else:
            _train(config, path, job["engine"], job["workers"], job["data"], tell)
    if job["metrics"]:
        _measure(path, job["metrics"], Path(job["scores"]), job["data_dir"])


def begun_run(config: Config, path: Path) -> RunFolder | None:
    """The run in a folder, if it was begun with just these settings; other settings are refused."""
    from remuda.runs.environment import changed_settings
    from remuda.runs.store import RunFolder

    if not (path / "config.yaml").is_file():
        return None
    folder = RunFolder.open(path)
    then = folder.env().config or {}
    for key, old, new in changed_settings(then, config):
        if key != "run.dir":
            raise StoreError(
                f"{path}: holds a run with {key}={old}, not {new}; move it away, or compare in "
                "another folder"
            )
    return folder


def _train(
    config: Config,
    path: Path,
    engine: str,
    workers: int | None,
    data: str | None,
    tell: Tell,
) -> None:
    from remuda.parallel import training
    from remuda.parallel.engines import Engine
    from remuda.parallel.observer import RoundCounter
    from remuda.runs.prepare import load_checked

    counter = RoundCounter(
        lambda complete: tell({"round": complete}),
        lambda message: print(visible(f"{path}: {message}"), file=sys.stderr, flush=True),
    )
    folder = begun_run(config, path)
    chosen = Engine(engine, workers)
    if folder is None:
        dataset = load_checked(config, data)
        training.train(config, counter, dataset, engine=chosen)
        return
    _wait_until_free(folder)
    if folder.result() is None:
        training.resume(path, counter, engine=chosen)


def _wait_until_free(folder: RunFolder) -> None:
    """Until the process that trained here before has saved and left."""
    end = time.monotonic() + PATIENCE_SECONDS
    while folder.is_locked() and time.monotonic() < end:
        time.sleep(0.1)


def _train_by_command(
    config: Config, path: Path, engine: str, workers: int | None, data: str | None, tell: Tell
) -> None:
    """By the command, which survives the loss of an MPI job, and loads torch for this run alone."""
    from remuda.config import render
    from remuda.files import write_atomically
    from remuda.runs.prepare import load_checked
    from remuda.runs.store import RunFolder

    load_checked(config, data)
    folder = begun_run(config, path)
    words = [sys.executable, "-m", "remuda"]
    if folder is None:
        file = path.with_name(f"{path.name}.yaml")
        write_atomically(file, render(config).encode())
        words += ["train", str(file)]
    elif folder.result() is None:
        _wait_until_free(folder)
        words += ["resume", str(path)]
    else:
        return
    words += ["--engine", engine, "--plain", "--workers", str(workers or "auto")]
    command = subprocess.Popen(words, stdout=2, stdin=subprocess.DEVNULL)
    try:
        said = -1
        while command.poll() is None:
            time.sleep(0.5)
            stop_if_asked()
            status = RunFolder(path).status()
            if status is not None and status.completed != said:
                said = status.completed
                tell({"round": said})
    except BaseException:
        stop_is_under_way()
        command.terminate()
        command.wait(PATIENCE_SECONDS)
        raise
    if command.returncode:
        raise StoreError(f"{path}: `remuda` ended with exit code {command.returncode}")


def _measure(path: Path, metrics: list[str], target: Path, data_dir: str | None) -> None:
    from remuda.runs.scoring import score_run

    if kept_scores(target, path, metrics) is None:
        scores = score_run(path, metrics, data_dir=None if data_dir is None else Path(data_dir))
        kept = {"metrics": metrics, "run": _digest(path), "scores": scores.to_json()}
        write_json(target, kept)


def kept_scores(target: Path, run: Path, metrics: Sequence[str]) -> MeasuredAgain | None:
    """What was measured of a run after its end; None if nothing was, or of another run there."""
    try:
        found = read_record(target, MeasuredAgain, "record of scores")
    except StoreError:
        return None  # there is none, or it is damaged
    return found if found.run == _digest(run) and found.metrics == list(metrics) else None


def _digest(run: Path) -> str:
    result = run / "result.json"
    return digest(read_stored(result)) if result.is_file() else ""


if __name__ == "__main__":
    main()
