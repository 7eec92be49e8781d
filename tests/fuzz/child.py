"""Reads mutated files in a forked process with limits on memory and time, and says what failed.

The kernel ends a process that computes or waits too long, even within a library. The number of an
input is noted before it is read, so the one that the process died of is known; the next process
goes on behind it.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.errors import RemudaError
from tests.fuzz.mutations import mutated
from tests.fuzz.target import Target

_MOST_CPU_SECONDS = 2.0
_MOST_SECONDS = 60.0  # of waiting: others may use the machine
_MOST_MEMORY = 512 * 2**20  # above what the process has when it starts
_MEMORY_SETTING = "64M"  # REMUDA_MEMORY: what a file may take
_MOST_LINES, _MOST_LETTERS = 22, 10_000  # of a message: mistakes in settings have a line each
_MOST_FAILURES = 20  # after which a target is given up


@dataclass(frozen=True)
class Failure:
    """An input that a reader did not survive, and where it was saved."""

    number: int
    reason: str
    path: Path

    def __str__(self) -> str:
        return f"input {self.number} ({self.path}): {self.reason}"


def fuzz(target: Target, first: int, count: int, folder: Path) -> list[Failure]:
    """Read `count` inputs from number `first` on; those that failed are saved in `folder`."""
    seeds = target.seeds()
    failures: list[Failure] = []
    end = first + count
    while first < end and len(failures) < _MOST_FAILURES:
        notes = folder / "notes.jsonl"
        notes.write_text("")
        status = _in_a_fork(target, seeds, range(first, end), folder, notes)
        found = [json.loads(line) for line in notes.read_text().splitlines()]
        failed = [(note["number"], note["failed"]) for note in found if "failed" in note]
        reached = found[-1]["number"] if found else first
        if status != 0:
            failed.append((reached, _death(status)))
        failures += [_saved(target, seeds, number, why, folder) for number, why in failed]
        first = reached + 1
    return failures


def made(target: Target, seeds: Sequence[bytes], number: int) -> bytes:
    """The input of this number: a valid file first, then mutants."""
    if number < len(seeds):
        return seeds[number]
    return mutated(seeds, random.Random(f"{target.name} {number}"))


def _saved(target: Target, seeds: Sequence[bytes], number: int, why: str, folder: Path) -> Failure:
    path = folder / f"{target.name}-{number}{target.suffix}"
    path.write_bytes(made(target, seeds, number))
    return Failure(number, why, path)


def _in_a_fork(
    target: Target, seeds: Sequence[bytes], numbers: range, folder: Path, notes: Path
) -> int:
    work = folder / "work"
    process = multiprocessing.get_context("fork").Process(
        target=_read_all, args=(target, seeds, numbers, work, notes)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        process.start()
    process.join()
    shutil.rmtree(work, ignore_errors=True)
    return process.exitcode or 0


def _death(status: int) -> str:
    known = {
        -signal.SIGPROF: f"took more than {_MOST_CPU_SECONDS} s of CPU",
        -signal.SIGALRM: f"waited for more than {_MOST_SECONDS} s",
    }
    return known.get(status, f"the process died with status {status}")


def _read_all(
    target: Target, seeds: Sequence[bytes], numbers: range, work: Path, notes: Path
) -> None:
    os.environ["REMUDA_MEMORY"] = _MEMORY_SETTING
    for kind in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(kind, signal.SIG_DFL)  # which ends the process, wherever it is
    warnings.simplefilter("error")
    faulthandler.disable()  # pytest's would print every death
    _limit_memory()
    with notes.open("a", buffering=1) as log:
        for number in numbers:
            content = made(target, seeds, number)
            log.write(json.dumps({"number": number}) + "\n")
            why = _read_one(target, content, work)
            if why is not None:
                log.write(json.dumps({"number": number, "failed": why}) + "\n")


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read_one(target: Target, content: bytes, work: Path) -> str | None:
    """What is wrong with how the reader took this content, if anything is."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    path = work / f"input{target.suffix}"
    path.write_bytes(content)
    signal.setitimer(signal.ITIMER_PROF, _MOST_CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, _MOST_SECONDS)
    try:
        target.read(path)
    except RemudaError as error:
        return _wrong_with(error)
    except BaseException:
        return traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _wrong_with(error: RemudaError) -> str | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return f"took more than {_MOST_MEMORY >> 20} MB of memory: {error}"
        cause = cause.__cause__ or cause.__context__
    message = str(error)
    if not message or len(message) > _MOST_LETTERS or message.count("\n") >= _MOST_LINES:
        return f"a message of {len(message)} letters and {message.count(chr(10)) + 1} lines"
    if any(not letter.isprintable() and letter != "\n" for letter in message):
        return f"a message with control characters: {message!r}"
    return None
