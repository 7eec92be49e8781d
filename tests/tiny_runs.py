"""Tiny runs for the tests, and the `remuda` command in real processes that can be killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from select import select
from typing import Any

import numpy as np

from remuda.gan.parcels import Parcel
from remuda.runs.store import RunFolder
from tests import faults

ROUNDS = 3
CELLS = 3
TIMES = ("time", "seconds", "cpu_seconds")  # what two equal runs differ in
# One process imports torch once; every command of a test is a fork of it, a process of its own.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "remuda.cli",
        "remuda.parallel.training",
        "remuda.cli.view",
        "remuda.api",
        "remuda.analysis.battle",
        "remuda.analysis.figures",
        # What torch and Pillow load at their first use, seconds of it.
        "torch._dynamo",
        "torch._refs",
        "torch._decomp",
        "PIL.PngImagePlugin",
    ]
)


def write_data(path: Path, seed: int = 0) -> Path:
    """Sixty images in the shape of digits, so that the scores are part of what is tested.

    As many labels as cells, so that every method makes the same grid of them.
    """
    images = np.random.default_rng(seed).integers(0, 256, (60, 28, 28), dtype=np.uint8)
    np.savez(path, x=images, y=np.arange(60) % CELLS)
    return path


def tiny(data: Path | str, run: Path, *more: str) -> list[str]:
    """Settings of a run of tenths of seconds, with all that a real one does."""
    return [
        "cellular-digits",
        f"data={data}",
        f"run.dir={run}",
        f"rounds={ROUNDS}",
        f"grid=1x{CELLS}",
        "network.hidden=[8]",
        "network.latent=4",
        "training.batch_size=10",
        "training.batches_per_round=3",
        "method.losses=[minimax, heuristic]",
        "score.extractor=digits",
        "score.every=1",
        "score.samples=20",
        "score.final_samples=20",
        "run.sheet_every=2",
        "run.keep_best=false",
        *more,
    ]


def killed_and_resumed(folder: Path, words: Sequence[str], point: str, engine: str) -> None:
    """Train, die of SIGKILL at a point of `tests.faults`, and train on to the end on an engine."""
    run = Path(next(word for word in words if word.startswith("run.dir=")).partition("=")[2])
    train = Command(folder, "train", *words, fault=faults.kill, at=point)
    assert train.wait() == -signal.SIGKILL, train.said
    assert not (run / "result.json").exists()
    code, _, errors = remuda(folder, "resume", str(run), "--engine", engine)
    assert code == 0, errors


def on_an_engine(words: Sequence[str]) -> list[str]:
    """Where a test does not say otherwise, in one process: it starts in a tenth of the time."""
    trains = words[:1] and words[0] in ("train", "resume")
    return [*words, *(["--engine", "local"] if trains and "--engine" not in words else [])]


class Command:
    """`remuda WORDS` in a process of its own."""

    def __init__(
        self, folder: Path, *words: str, fault: Callable[..., None] | None = None, at: str = ""
    ) -> None:
        number = len(list(folder.glob("command-*.out")))
        self.output = folder / f"command-{number}.out"
        self.errors = folder / f"command-{number}.err"
        self.output.touch()
        self._process = _CONTEXT.Process(
            target=_run, args=(words, self.output, self.errors, fault, at)
        )
        self._process.start()

    def wait(self, timeout: float = 60) -> int:
        """The exit code; minus the signal's number where one killed it."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise AssertionError(f"still running after {timeout}s: {self.said}")
        return self._process.exitcode

    def wait_for(self, text: str, timeout: float = 60) -> None:
        """Until the text was printed."""
        end = time.monotonic() + timeout
        while text not in self.said:
            assert self._process.is_alive() or text in self.said, f"no {text!r}: {self.said}"
            assert time.monotonic() < end, f"never said {text!r}: {self.said}"
            time.sleep(0.005)

    def send(self, number: signal.Signals) -> None:
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def said(self) -> str:
        errors = self.errors.read_text() if self.errors.exists() else ""
        return self.output.read_text() + errors


def remuda(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and errors of a command."""
    command = Command(folder, *words)
    code = command.wait()
    return code, command.output.read_text(), command.errors.read_text()


def _run(
    words: tuple[str, ...],
    output: Path,
    errors: Path,
    fault: Callable[..., None] | None,
    at: str,
) -> None:
    for stream, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    if fault is not None:
        fault(*([at] if at else []))
    sys.argv = ["remuda", *on_an_engine(words)]
    from remuda.cli import main

    main()


def in_a_terminal(
    words: list[str], *, columns: int = 100, until: str = "", then: bytes = b""
) -> tuple[int, str]:
    """Exit code and screen of a command under a pseudo-terminal; `then` is typed after `until`."""
    master, slave = os.openpty()
    ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = _CONTEXT.Process(target=_run_in_terminal, args=(words, os.ttyname(slave)))
    process.start()
    seen, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if select([master], [], [], 0.05)[0]:
            seen += os.read(master, 65536)
        elif not process.is_alive():
            break
        if then and until.encode() in seen:
            os.write(master, then)
            then = b""
    process.kill()
    process.join()
    os.close(master)
    os.close(slave)
    assert process.exitcode is not None
    return process.exitcode, seen.decode()


def _run_in_terminal(words: list[str], terminal: str) -> None:
    os.setsid()
    descriptor = os.open(terminal, os.O_RDWR)
    ioctl(descriptor, termios.TIOCSCTTY, 0)
    for stream in (0, 1, 2):
        os.dup2(descriptor, stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ["TERM"] = "xterm-256color"
    for name in ("COLUMNS", "LINES"):  # the terminal knows better
        os.environ.pop(name, None)
    sys.argv = ["remuda", *on_an_engine(words)]
    from remuda.cli import main

    main()


def save_checkpoint(
    folder: RunFolder, round: int, parcels: Mapping[int, Parcel], loss: float | None
) -> None:
    """A complete checkpoint, as workers and master write it together."""
    saved = [folder.save_cell(parcel) for parcel in parcels.values()]
    folder.complete_checkpoint(round, saved, loss)


# ---------------------------------------------------------------------------------- comparing


def tree(run: Path) -> dict[str, bytes]:
    """Every file of a run that must come out the same, however the run was disturbed."""
    found = {
        str(path.relative_to(run)): path.read_bytes()
        for part in ("checkpoints", "ensemble", "samples")
        for path in sorted((run / part).rglob("*"))
        if path.is_file()
    }
    found["config.yaml"] = (run / "config.yaml").read_bytes().replace(str(run).encode(), b"RUN")
    return found


def last_weights(run: Path) -> dict[str, bytes]:
    """The last checkpoint's cells, and the ensemble."""
    last = max((run / "checkpoints").glob("round-*")).name
    return {
        name: content
        for name, content in tree(run).items()
        if name.startswith(f"checkpoints/{last}/cell") or name == "ensemble/model.safetensors"
    }


def happenings(run: Path) -> list[dict[str, Any]]:
    """What the cells did, without when and how fast; the file must hold whole lines only."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in event.items() if key not in TIMES}
        for event in events
        if event["event"] in ("round", "population")
    ]
