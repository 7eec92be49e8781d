"""What reading a file costs, measured in a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

_MOST_SECONDS = 60.0
_MOST_MEMORY = 2**30  # that may be allocated, whether it is used or not


@dataclass(frozen=True)
class Cost:
    """How it ended, and what it took above what the process had before."""

    error: str  # "" if there was none
    bytes: int
    cpu_seconds: float


def cost_of(work: Callable[[], object]) -> Cost:
    """Run `work` in a fork, which the kernel ends if it hangs."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(work, sender))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        process.join()
        return Cost(f"ended by signal {-(process.exitcode or 0)}", 0, _MOST_SECONDS)
    process.join()
    assert isinstance(found, Cost)
    return found


def _run(work: Callable[[], object], sender: Connection) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _MOST_SECONDS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    before, error = resource.getrusage(resource.RUSAGE_SELF), ""
    try:
        work()
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    sender.send(Cost(error, (after.ru_maxrss - before.ru_maxrss) * 1024, seconds))
