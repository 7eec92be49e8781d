"""Commands as forks of a process that has imported torch: a run costs what it does, and no start.

For campaigns of many runs that are killed. Whoever forks must have a single thread, so it computes
nothing itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from remuda.errors import RemudaError
from remuda.parallel.transports import fork_server

UNEXPECTED = 70  # exit code of a fork that ended with an error that is not the user's
# What runs and their workers import at their first use.
PRELOADED = (
    "remuda.parallel.starting",
    "remuda.parallel.training",
    "remuda.api",
    "numpy.random",
    "torch.utils._device",
    "PIL.PngImagePlugin",
    "importlib.resources.readers",
)
_PAUSE = 0.002


class _Fork:
    """A forked process, as `subprocess` shows one it has started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = False

    def wait(self, timeout: float = 60.0) -> None:
        end = time.monotonic() + timeout
        while not self._ended and time.monotonic() < end:
            self._ended = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
            time.sleep(_PAUSE)

    def kill(self) -> None:
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)


class ForkedServer(fork_server.ForkServer):
    """The server that forks workers, itself a fork of its master: everything is imported."""

    def _start(self, descriptor: int, modules: Sequence[str]) -> None:
        pid = os.fork()
        if pid == 0:
            self._socket.close()  # the master's end: it must close when the master is gone
            fork_server.serve(descriptor, ())
            os._exit(0)
        self._process = cast("None", _Fork(pid))


def serve_workers(threads: int = 1) -> None:
    """Let this process's workers be forks of a fork of it. Call it before there is any thread."""
    fork_server._server = ForkedServer(fork_server.worker_environment(threads))


def fork(work: Callable[[], None], log: Path) -> int:
    """Do some work in a process of its own, which leads a session; what it says goes to a file.

    Its exit code is 0, that of a RemudaError, or UNEXPECTED.
    """
    pid = os.fork()
    if pid:
        return pid
    code = UNEXPECTED
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not as who forks takes it
        os.setsid()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        work()
        code = 0
    except RemudaError as error:
        code = error.exit_code
        print(f"remuda: {error}", file=sys.stderr)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else UNEXPECTED
    except BaseException:
        traceback.print_exc()
    finally:
        fork_server.stop_server()
        os._exit(code)


def session(leader: int) -> list[int]:
    """The living processes of the session that a fork of ours leads, itself among them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, own = stat.read_text().rpartition(")")[2].split()[:4]
            if int(own) == leader and state != "Z":
                found.append(int(stat.parent.name))
    return found


def end_session(leader: int) -> None:
    """Kill what is left of the session that a fork of ours leads."""
    while left := session(leader):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(leader, os.WNOHANG)
        time.sleep(_PAUSE)
