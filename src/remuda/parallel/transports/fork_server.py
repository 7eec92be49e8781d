"""A process that has imported torch once, and of which every worker is a fork.

Importing torch takes a second, forking a process that has it a few milliseconds. The server belongs
to one master and ends with it: it waits on a socket whose other end only the master holds. It never
has a second thread, for a lock that another thread holds at the moment of a fork stays locked in
the copy for good; so it only imports, and computes nothing. A worker needs the server for nothing
but its birth: if the server is killed, its workers go on, and the next one comes from a new server.

Importing this module does not import torch: master and server do that at the same time.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import process, spawn
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from remuda.parallel.signals import STOPPING, ignore_signals

# What a worker needs until its first batch, also what would only be imported on the way there.
MODULES = (
    "remuda.parallel.starting",
    "numpy.random",
    "torch.utils._device",
    "importlib.resources.readers",
)
_REPLY_SECONDS = 60.0  # the first one comes after torch is imported
_STOP_SECONDS = 1.0
_REAP_SECONDS = 1.0
_ATTEMPTS = 2
_THREADED = b"threaded"


class NoForkError(Exception):
    """There is no process to fork workers from; they can still be spawned."""


class Forked:
    """A worker that the server forked, as the master sees it."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        # Of the process itself: its number may come again, this not.
        self._descriptor: int | None = descriptor

    def kill(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def join(self, timeout: float) -> None:
        self._has_ended(timeout)

    def is_alive(self) -> bool:
        return not self._has_ended(0)

    def _has_ended(self, timeout: float) -> bool:
        if self._descriptor is None:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(1e3 * timeout))

    def close(self) -> None:
        """Forget it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _importable() -> list[str]:
    """What of `sys.path` the import system uses; users put other things there."""
    return [entry for entry in sys.path if isinstance(entry, str)]


class ForkServer:
    """The master's end: starts the server, and asks it for workers."""

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str] = ()) -> None:
        self.environment = dict(environment)
        self.owner = os.getpid()
        self._idle = False  # whether it has imported everything, and waits
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_REPLY_SECONDS)
        self._process: subprocess.Popen[bytes] | None = None
        with theirs:
            try:
                self._start(theirs.fileno(), (*MODULES, *modules))
            except BaseException:
                self.stop()
                raise

    def _start(self, descriptor: int, modules: Sequence[str]) -> None:
        code = (
            f"import sys; sys.path[:] = {_importable()!r}; from {__name__} import serve; "
            f"serve({descriptor}, {modules!r})"
        )
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        # Until it ignores signals they are blocked, for they would end it. One that comes meanwhile
        # is raised here at the end, when it is known what there is to stop.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-c", code],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                env=self.environment,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def fork(self, pipe: Connection[Any, Any]) -> Forked:
        """A new worker that holds this end of a pipe, from which it reads what to do."""
        self._idle = False
        try:
            socket.send_fds(self._socket, [b"fork"], [pipe.fileno()])
            reply, descriptors, _, _ = socket.recv_fds(self._socket, 64, 1)
        except BaseException:
            self.stop()  # a reply to this may still come, and would be taken for the next one's
            raise
        if reply == _THREADED:
            raise NoForkError
        if not reply or not descriptors:  # it was killed, or this process has no descriptor left
            raise EOFError
        self._idle = True
        return Forked(int(reply), descriptors[0])

    def stop(self) -> None:
        """End the server; its workers go on."""
        self._socket.close()
        if self.owner != os.getpid() or self._process is None:
            return
        if self._idle:  # it ends by itself, at once
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        self._process.kill()
        self._process.wait()


_lock = threading.Lock()
_server: ForkServer | None = None


def can_fork() -> bool:
    """Whether workers can be forks: on Linux, where processes can be watched by descriptor."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def worker_environment(threads: int) -> dict[str, str]:
    """This process's variables, with those that libraries read when they are loaded."""
    # numpy's own library of matrices, which nothing here uses, would start a thread at import.
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}


def start_server(threads: int, modules: Sequence[str] = ()) -> ForkServer:
    """This process's server; a new one where there is none that fits.

    Called early, it imports torch while this process does. `modules` are imported as well.
    """
    global _server
    environment = worker_environment(threads)
    with _lock:
        if _server is not None and (
            _server.owner != os.getpid() or _server.environment != environment
        ):
            _stop()
        if _server is None:
            _server = ForkServer(environment, modules)
        return _server


def fork_worker(
    threads: int,
    pipe: Connection[Any, Any],
    ours: Connection[Any, Any],
    target: Callable[..., None],
    arguments: Sequence[Any],
    name: str,
) -> Forked:
    """A worker that calls `target` with its end of a pipe and these arguments."""
    # As for a spawned process: path, folder, and the main module, which may register extensions.
    about = spawn.get_preparation_data(name)
    about.pop("authkey", None)  # a secret, which is not to be pickled
    if not Path(about.get("init_main_from_path", "")).is_file():
        about.pop("init_main_from_path", None)  # a program from standard input, not from a file
    work = pickle.dumps((about, pickle.dumps((target, tuple(arguments)))))
    for _ in range(_ATTEMPTS):
        try:
            server = start_server(threads)
            with _lock:
                forked = server.fork(pipe)
        except (OSError, EOFError):  # it was killed, or does not answer
            stop_server()
            continue
        with contextlib.suppress(OSError):  # then it has ended, as the master will find out
            ours.send_bytes(work)
        return forked
    raise NoForkError


def stop_server() -> None:
    """End this process's server, if there is one."""
    with _lock:
        _stop()


def _stop() -> None:
    global _server
    if _server is not None:
        _server.stop()
        _server = None


# It would end by itself, but only once it has imported everything.
atexit.register(stop_server)


# -------------------------------------------------------------------------- in the server


def serve(descriptor: int, modules: Sequence[str]) -> None:
    """What the server runs, until its master is gone."""
    ignore_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    _name_process("remuda-server")
    for module in modules:
        with contextlib.suppress(ImportError):  # a worker that needs it says so
            importlib.import_module(module)
    gc.freeze()  # else every worker's first collection would copy all that the server has
    with socket.socket(fileno=descriptor) as master:
        poll = select.poll()
        poll.register(master, select.POLLIN)
        while True:
            while not poll.poll(1e3 * _REAP_SECONDS):
                _reap()
            try:
                request, descriptors, _, _ = socket.recv_fds(master, 64, 1)
            except OSError:
                request = b""
            if not request:
                _reap()  # so that their CPU time counts as the command's
                return
            if not descriptors or len(list(Path("/proc/self/task").iterdir())) > 1:
                master.send(_THREADED)
            elif (pid := os.fork()) == 0:
                master.close()
                _become_worker(descriptors[0])
            else:
                _tell(master, pid)
            for one in descriptors:
                os.close(one)


def _reap() -> None:
    """Wait for the workers that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _tell(master: socket.socket, pid: int) -> None:
    """Tell the master of a new worker. Nobody has waited for it, so the number is still its own."""
    descriptor = os.pidfd_open(pid)
    with contextlib.suppress(OSError):  # the master is gone, as the next request will tell
        socket.send_fds(master, [str(pid).encode()], [descriptor])
    os.close(descriptor)


def _become_worker(descriptor: int) -> None:
    """What a fork does: it reads what to do, does it, and never returns to the server's loop."""
    try:
        pipe: Connection[Any, Any] = Connection(descriptor)
        about, work = pickle.loads(pipe.recv_bytes())
        _name_process(about["name"])
        # As multiprocessing does it: while the main module is imported, no process may be started.
        process.current_process()._inheriting = True  # type: ignore[attr-defined]
        try:
            spawn.prepare(about)
            target, arguments = pickle.loads(work)
        finally:
            del process.current_process()._inheriting  # type: ignore[attr-defined]
        target(pipe, *arguments)
    except EOFError:
        pass  # the master is gone
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(1)


def _name_process(name: str) -> None:
    """For people who look at a list of processes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15])
